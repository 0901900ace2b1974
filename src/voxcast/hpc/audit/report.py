"""The audit of an accounting as a whole, from jobs to savings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.hpc.audit.app_names import apps_of
from voxcast.hpc.audit.groups import KEYS, GroupAudit, audit_by
from voxcast.hpc.audit.job_prices import JobPrices
from voxcast.hpc.audit.jobs import MINUTE_S
from voxcast.hpc.audit.population import Remark, mark_interactive, remarks_of
from voxcast.hpc.audit.request_replays import Objective
from voxcast.hpc.audit.savings import ASSUMPTIONS, AppSavings, savings_of, select_apps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from voxcast.allocation.machines import Cluster
    from voxcast.history.imports.name_patterns import NamePattern
    from voxcast.hpc.audit.jobs import AuditedJobs
    from voxcast.hpc.audit.predicted_jobs import PredictionErrors


@dataclass(frozen=True)
class Audit:
    """Everything an audit states.

    Attributes
    ----------
    total : GroupAudit
        All jobs.
    groups : dict of str to list of GroupAudit
        By key of `voxcast.hpc.audit.groups.KEYS`.
    savings : list of AppSavings
        Most core-hours first.
    unpriced : dict of str to int
        Jobs without a price, by partition.
    """

    jobs: AuditedJobs
    total: GroupAudit
    groups: dict[str, list[GroupAudit]]
    remarks: list[Remark]
    savings: list[AppSavings]
    not_judged: list[str] = field(default_factory=list)
    unpriced: dict[str, int] = field(default_factory=dict)
    cluster: str | None = None
    predicted: PredictionErrors | None = None

    def to_record(self) -> dict[str, Any]:
        """Return the audit as JSON's types."""
        jobs = self.jobs
        return {
            "records": {
                "read": jobs.records,
                "jobs": len(jobs.frame),
                "not_ended": dict(jobs.not_ended),
                "never_started": dict(jobs.never_started),
                "below_a_second": jobs.instant,
                "duplicates": jobs.duplicates,
                "refused": dict(jobs.refused),
                "refused_examples": jobs.examples,
                "unread_fields": dict(jobs.unread),
                "notes": jobs.notes,
            },
            "cluster": self.cluster,
            "unpriced": self.unpriced,
            "total": self.total.to_record(),
            "by": {k: [g.to_record() for g in groups] for k, groups in self.groups.items()},
            "remarks": [remark.to_record() for remark in self.remarks],
            "savings": [saving.to_record() for saving in self.savings],
            "not_judged": self.not_judged,
            "assumptions": list(ASSUMPTIONS),
            "predicted": None if self.predicted is None else self.predicted.to_record(),
        }


def prepare(
    audited: AuditedJobs, pattern: NamePattern | None = None, shortest_s: float = MINUTE_S
) -> None:
    """Add to each job its application, its missing times, and whether it was interactive.

    Parameters
    ----------
    shortest_s : float
        Jobs that ran for less are left out of ratios of requests, savings and the picture.
    """
    frame = audited.frame
    audited.shortest_s = shortest_s
    frame["long"] = frame["runtime_s"] >= shortest_s
    frame["app"] = apps_of(frame["name"], pattern)
    frame["start_s"] = frame["start_s"].fillna(frame["end_s"] - frame["runtime_s"])
    frame["end_s"] = frame["end_s"].fillna(frame["start_s"] + frame["runtime_s"])
    mark_interactive(audited)


def audit(
    audited: AuditedJobs,
    keys: Iterable[str] = KEYS,
    cluster: Cluster | None = None,
    objective: Objective | None = None,
    judged_apps: int = 20,
    on_app: Callable[[str], None] | None = None,
    predicted: PredictionErrors | None = None,
) -> Audit:
    """Audit jobs that were prepared by `prepare`.

    Parameters
    ----------
    keys : iterable of str
        What jobs are grouped by.
    cluster : Cluster, optional
        Its prices make money of hours.
    judged_apps : int
        Number of applications, by core-hours, whose requests are judged.
    on_app : callable, optional
        Called with the name of each of them.
    """
    frame = audited.frame
    prices = None if cluster is None else JobPrices.of(frame, cluster)
    usd = None
    if prices is not None:
        usd = prices.usd(
            frame["mem_limit_bytes"].to_numpy(),
            frame["runtime_s"].to_numpy(),
            frame["limit_s"].to_numpy(),
        )
    savings, not_judged = [], []
    names = select_apps(frame, judged_apps)
    batch = frame[~frame["interactive"]]
    by_app = batch.groupby(batch["app"].to_numpy(dtype=object)).indices
    for name in names:
        if on_app is not None:
            on_app(name)
        jobs = batch.iloc[by_app[name]]
        of_app = None if cluster is None else JobPrices.of(jobs, cluster)
        saving = savings_of(jobs, name, objective or Objective(), of_app)
        if saving is None:
            not_judged.append(name)
        else:
            savings.append(saving)
    return Audit(
        audited,
        audit_by(frame, None, usd)[0],
        {key: audit_by(frame, key, usd) for key in keys},
        remarks_of(audited),
        savings,
        not_judged,
        {} if prices is None else _unpriced(frame, prices),
        None if cluster is None else cluster.name,
        predicted,
    )


def _unpriced(frame: pd.DataFrame, prices: JobPrices) -> dict[str, int]:
    partitions = frame["partition"].to_numpy(dtype=object)[~prices.priced]
    names, counts = np.unique(partitions.astype(str), return_counts=True)
    return {str(n) or "(not stated)": int(c) for n, c in zip(names, counts, strict=True)}
