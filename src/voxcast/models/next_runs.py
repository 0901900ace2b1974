"""Selection of the next runs to measure: those most informative for their cost.

The uncertainty of a Gaussian process does not depend on the outcomes. The value of a run is the
reduction in uncertainty over all candidates, divided by its expected time. The best run is chosen
and treated as measured before the next one is chosen (Cohn, Ghahramani and Jordan, JAIR 1996).

That is better than chance where runs differ much in their cost, and was worse where they do not:
the study `scales` compares both on the recorded history.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.rows import features
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.families.encoder import Encoder
from voxcast.runs.series import runs_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from voxcast.features.rows import Row
    from voxcast.measure.campaign import Campaign
    from voxcast.measure.plan import CampaignPlan


LENGTH = 1.5  # of the kernel, in standard deviations of a column, times the root of their number
NOISE = 0.1  # of a run, in units of the prior standard deviation
MAXIMUM_CANDIDATES = 3000  # more are sampled


@dataclass(frozen=True)
class Proposal:
    """A proposed candidate.

    Attributes
    ----------
    position : int
        Position among the candidates.
    gain : float
        Share of the current uncertainty (mean variance over the candidates) that it removes.
    expected_s : float
        Expected time of the run.
    """

    position: int
    gain: float
    expected_s: float


def propose(
    recorded: Sequence[Row],
    candidates: Sequence[Row],
    expected_s: Sequence[float],
    count: int,
    *,
    seed: int = 0,
) -> list[Proposal]:
    """Return the runs to measure, best first.

    Parameters
    ----------
    recorded, candidates : sequence of Row
        Features of the runs on record and of possible runs.
    expected_s : sequence of float
        Expected time of each candidate, above zero.
    count : int
        Maximum number of proposals.

    Examples
    --------
    >>> rows = [{"header.log_voxels": float(n)} for n in range(9)]
    >>> [proposal.position for proposal in propose(rows[:2], rows, [1.0] * 9, 1)]
    [7]
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    if not candidates:
        return []
    order = np.arange(len(candidates))
    if len(order) > MAXIMUM_CANDIDATES:
        shuffled = np.random.default_rng(seed).permutation(order)
        order = np.sort(shuffled[:MAXIMUM_CANDIDATES])
    rows = [*recorded, *(candidates[int(n)] for n in order)]
    cost_s = np.asarray(expected_s, dtype=float)[order]
    raw = Encoder.fit(rows, content=True).transform(rows)
    x = (raw - raw.mean(axis=0)) / np.where(raw.std(axis=0) > 0, raw.std(axis=0), 1.0)
    kernel = RBF(LENGTH * max(x.shape[1], 1) ** 0.5)
    process = GaussianProcessRegressor(kernel, alpha=NOISE**2, optimizer=None)
    if recorded:
        process.fit(x[: len(recorded)], np.zeros(len(recorded)))
    _, covariance = process.predict(x[len(recorded) :], return_cov=True)
    before = max(float(np.trace(covariance)), 1e-12)
    proposals: list[Proposal] = []
    available = np.ones(len(order), dtype=bool)
    for _ in range(min(count, len(order))):
        gain = np.square(covariance).sum(axis=0) / (np.diag(covariance) + NOISE**2)
        best = int(np.argmax(np.where(available, gain / cost_s, -np.inf)))
        available[best] = False
        share = float(gain[best]) / before
        proposals.append(Proposal(int(order[best]), share, float(cost_s[best])))
        column = covariance[:, best]
        covariance = covariance - np.outer(column, column) / (column[best] + NOISE**2)
    return proposals


def proposed_runs(campaign: Campaign, count: int) -> list[dict[str, Any]]:
    """Return the runs of a campaign that would reduce uncertainty most, best first.

    They are what ``voxcast measure --next N`` lists.
    """
    plan = campaign.plan()
    recorded = campaign.recorded(plan).keys() | runs_in(campaign.settings.runs).keys()
    return proposals(plan, recorded, campaign.volume_rows(), count)


def proposals(
    plan: CampaignPlan,
    recorded: Collection[str],
    volumes: Mapping[str, Mapping[str, Any]],
    count: int,
) -> list[dict[str, Any]]:
    """Return the runs of a plan that would reduce uncertainty most for their time, best first.

    Parameters
    ----------
    recorded : collection of str
        Keys of the cells on record.
    volumes : mapping
        Headers and characteristics of the campaign's volumes, by volume id.
    """
    characteristics = {
        volume_id: {name: row[name] for name in CHARACTERISTICS if name in row}
        for volume_id, row in volumes.items()
    }
    rows = {
        key: features(
            volumes.get(cell.volume_id),
            characteristics.get(cell.volume_id),
            cell.app,
            cell.parameters,
            cell.configuration,
        )
        for key, cell in plan.cells.items()
    }
    candidates = [key for key in plan.cells if key not in recorded]
    best = propose(
        [row for key, row in rows.items() if key in recorded],
        [rows[key] for key in candidates],
        [plan.expected_s[plan.cells[key].app, plan.cells[key].volume_id] for key in candidates],
        count,
    )
    runs = []
    for proposal in best:
        cell = plan.cells[candidates[proposal.position]]
        path = plan.paths.get(cell.volume_id, Path())  # which is empty if it is not prepared
        runs.append({
            "app": cell.app,
            "volume_id": cell.volume_id,
            "subject": cell.subject,
            "image": None if path == Path() else str(path),
            "cpus": cell.configuration.cpus,
            "device": cell.configuration.device,
            "scale": cell.scale,
            "parameters": cell.parameters,
            "expected_s": proposal.expected_s,
            "gain": proposal.gain,
        })  # fmt: skip
    return runs
