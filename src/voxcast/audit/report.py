"""The whole audit, from jobs to savings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from voxcast.audit.app_names import apps_of
from voxcast.audit.groups import KEYS, amounts, group_table
from voxcast.audit.jobs import MINUTE_S
from voxcast.audit.prices import JobPrices
from voxcast.audit.remarks import Remark, is_interactive, remarks_of
from voxcast.audit.savings import ASSUMPTIONS, AppSavings, Objective, savings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pandas as pd

    from voxcast.allocation.site import Cluster
    from voxcast.audit.jobs import AuditedJobs
    from voxcast.audit.predicted import PredictedJobs
    from voxcast.runs.imported import NamePattern


@dataclass(frozen=True, eq=False)
class Audit:
    """Everything an audit states.

    Attributes
    ----------
    total : DataFrame
        One row of `voxcast.audit.groups.group_table`.
    groups : dict of str to DataFrame
        By key of `voxcast.audit.groups.KEYS`.
    savings : list of AppSavings
        Most core-hours first.
    not_judged : list of str
        Applications with too few jobs, or without order in time.
    unpriced : dict of str to int
        Jobs without a price, by partition.
    """

    jobs: AuditedJobs
    total: pd.DataFrame
    groups: dict[str, pd.DataFrame]
    remarks: list[Remark]
    savings: list[AppSavings]
    not_judged: list[str]
    unpriced: dict[str, int]
    cluster: str | None = None
    predicted: PredictedJobs | None = None

    def as_json(self) -> dict[str, Any]:
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
            },
            "cluster": self.cluster,
            "unpriced": self.unpriced,
            "total": _rows(self.total)[0],
            "by": {key: _rows(table) for key, table in self.groups.items()},
            "remarks": [asdict(remark) for remark in self.remarks],
            "savings": [asdict(saving) for saving in self.savings],
            "not_judged": self.not_judged,
            "assumptions": list(ASSUMPTIONS),
            "predicted": None if self.predicted is None else asdict(self.predicted),
        }


def prepare(
    audited: AuditedJobs, pattern: NamePattern | None = None, shortest_s: float = MINUTE_S
) -> None:
    """Add to each job its application, its missing times, and whether it was interactive.

    Parameters
    ----------
    shortest_s : float
        Shorter jobs are not ``long``: left out of ratios of requests, savings and the picture.
    """
    frame = audited.frame
    audited.shortest_s = shortest_s
    frame["long"] = frame["runtime_s"] >= shortest_s
    frame["app"] = apps_of(frame["name"], pattern)
    frame["start_s"] = frame["start_s"].fillna(frame["end_s"] - frame["runtime_s"])
    frame["end_s"] = frame["end_s"].fillna(frame["start_s"] + frame["runtime_s"])
    frame["interactive"] = is_interactive(frame)


def audit(
    audited: AuditedJobs,
    keys: Iterable[str] = KEYS,
    cluster: Cluster | None = None,
    objective: Objective | None = None,
    judged_apps: int = 20,
    on_app: Callable[[str], None] | None = None,
    predicted: PredictedJobs | None = None,
) -> Audit:
    """Audit jobs that `prepare` has prepared.

    Parameters
    ----------
    keys : iterable of str
        Columns to group jobs by.
    cluster : Cluster, optional
        With the prices of hours.
    judged_apps : int
        Number of applications, by core-hours, whose requests are judged.
    on_app : callable, optional
        Called with the name of each of them.
    """
    frame = audited.frame
    prices = None if cluster is None else JobPrices.of(frame, cluster)
    usd = None
    if prices is not None:
        used = (frame[name].to_numpy() for name in ("mem_limit_bytes", "runtime_s", "limit_s"))
        usd = prices.usd(*used)
    of_jobs = amounts(frame, usd)
    submitted = frame[~frame["interactive"]]
    by_app = submitted.groupby(submitted["app"].astype(str)).indices
    hours = of_jobs["core_hours"].groupby(submitted["app"].astype(str)).sum()
    savings, not_judged = [], []
    for name in hours.sort_values(ascending=False).index[:judged_apps]:
        if on_app is not None:
            on_app(name)
        jobs = submitted.iloc[by_app[name]]
        of_app = None if cluster is None else JobPrices.of(jobs, cluster)
        saving = savings_of(jobs, name, objective or Objective(), of_app)
        if saving is None:
            not_judged.append(name)
        else:
            savings.append(saving)
    unpriced: dict[str, int] = {}
    if prices is not None:
        counts = frame["partition"][~prices.priced].astype(str).value_counts().sort_index()
        unpriced = {str(name) or "(not stated)": int(count) for name, count in counts.items()}
    return Audit(
        audited, group_table(of_jobs, None),
        {key: group_table(of_jobs, frame[key]) for key in keys},
        remarks_of(frame, audited.columns, audited.shortest_s), savings, not_judged, unpriced,
        None if cluster is None else cluster.name, predicted,
    )  # fmt: skip


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]
