"""Study: by how much a request grows after the predicted bound was exceeded.

All rules make the same first request, the bound, so that they differ on the runs beyond it alone.
Cost follows `voxcast.jobs.task`: of each request 0.95 of its length, its time in use, and a
minute. Where waiting follows the requested time so, it is the turnaround.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.replay import PlannedRequests, ReplayedRuns, replay
from voxcast.allocation.site import stepped
from voxcast.jobs.task import COST, Limits, walltime_sequences
from voxcast.laws.families import parse_law
from voxcast.laws.intervals import clustered_mean, exponential

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

GROWTHS = (1.2, 1.35, 1.5, 2.0, 3.0)
BASE = "1.2"
SPREAD = "spread"  # by bound over median, and at least by the smallest factor
# The factor of least cost on the runs beyond the bound in the other folds, or in the other data.
OTHER_FOLDS, OTHER_DATA = "other_folds", "other_data"
STEP_S = 60.0
# As in the trial of docs/results.md, recorded runs of seconds stand for jobs of minutes.
RECORDED_SCALE = 15.0
SCALES = {"slant": 1.0}
# Table 1 of Aupy et al. (IPDPS 2019), all with a median of an hour here.
LAWS = (
    "exponential(1)", "weibull(1,0.5)", "gamma(2,2)", "lognormal(3,0.5)",
    "truncnormal(8,2,0,inf)", "pareto(1.5,3)", "uniform(10,20)", "beta(2,2)",
    "boundedpareto(1,20,2.1)",
)  # fmt: skip
LAW_MEDIAN_S, LAW_POINTS = 3600.0, 400
QUANTILES = (0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True, eq=False)
class BeyondBound:
    """Runs that exceeded their first request; arrays of shape (n,).

    Attributes
    ----------
    used_s, first_s, median_s, upper_s : ndarray
    subjects, folds : ndarray
    runs : int
        How many were predicted, with those within the bound.
    """

    used_s: Floats
    first_s: Floats
    median_s: Floats
    upper_s: Floats
    subjects: NDArray[np.str_]
    folds: NDArray[np.int64]
    runs: int

    @classmethod
    def of_runs(cls, app: str, runs: pd.DataFrame) -> BeyondBound:
        """Return the results of an application, in the time of a cluster."""
        scale = SCALES.get(app, RECORDED_SCALE)
        median, upper, used = (
            scale * runs[name].to_numpy(dtype=np.float64)
            for name in ("runtime_s_median", "runtime_s_upper", "runtime_s")
        )
        first = stepped(upper, STEP_S)
        subjects, folds = runs["subject"].to_numpy(dtype=str), runs["fold"].to_numpy()
        n = used > first
        return cls(used[n], first[n], median[n], upper[n], subjects[n], folds[n], len(runs))

    @classmethod
    def of_law(cls, text: str, confidence: float) -> BeyondBound:
        """Return points of equal probability of a law beyond its bound, which is exact."""
        law = parse_law(text)
        scale = LAW_MEDIAN_S / float(law.quantile(0.5))
        upper = scale * float(law.quantile(confidence))
        tail = (1 - confidence) * (np.arange(LAW_POINTS) + 0.5) / LAW_POINTS
        used = scale * law.isf(tail)
        first = float(stepped(upper, STEP_S))
        used = used[used > first]
        n = len(used)
        return cls(
            used, np.full(n, first), np.full(n, LAW_MEDIAN_S), np.full(n, upper),
            np.zeros(n, dtype=str), np.zeros(n, np.int64), n,
        )  # fmt: skip

    def replayed(self, growth: float | Sequence[float], confidence: float) -> ReplayedRuns:
        """Return what becomes of the runs if requests grow at least so."""
        ladders = walltime_sequences(
            self.first_s.tolist(), self.median_s.tolist(), self.upper_s.tolist(), confidence,
            STEP_S, growth,
        )  # fmt: skip
        requests = np.full((len(ladders), max(map(len, ladders), default=1)), np.nan)
        for row, ladder in zip(requests, ladders, strict=True):
            row[: len(ladder)] = ladder
        after = max(Limits().factor, growth) if isinstance(growth, float) else Limits().factor
        return replay(PlannedRequests(requests, after), self.used_s, CostModel(*COST))


def study(predicted: Mapping[str, pd.DataFrame], confidence: float) -> dict[str, Any]:
    """Return the outcomes of each rule on the runs beyond the bound.

    Parameters
    ----------
    predicted : mapping of str to DataFrame
        By application, out-of-fold predictions as of
        `voxcast.evaluation.out_of_sample.voxcast_predictions`, with ``fold``.
    confidence : float
        Of the bound.

    Returns
    -------
    dict
        ``apps``, ``laws`` and ``pooled`` over the applications, and `regrets`; of each ``runs``,
        ``beyond``, ``subjects_beyond``, quantiles ``excess`` of used over requested time, and
        ``rules``. Of each rule ``attempts``, a mean; ``turnaround`` and ``held``, means over
        those of knowing the time beforehand; and ``ratios`` to `BASE`, geometric means over
        runs with intervals over subjects, which laws do not have.
    """
    data = {app: BeyondBound.of_runs(app, runs) for app, runs in predicted.items()}
    by_app = {app: _by_growth(beyond, confidence) for app, beyond in data.items()}
    costs = {app: np.stack([r.cost / r.omniscient for r in by_app[app].values()]) for app in data}
    for app, beyond in data.items():
        elsewhere = [costs[other] for other in data if other != app]
        choices = {OTHER_DATA: np.full(len(beyond.used_s), _best(elsewhere))}
        choices[OTHER_FOLDS] = np.array(
            [_best([costs[app][:, beyond.folds != fold]]) for fold in beyond.folds], dtype=int
        )
        growths = [by_app[app][f"{growth:g}"] for growth in GROWTHS]
        for rule, chosen in choices.items():
            by_app[app][rule] = _chosen(growths, chosen)
    laws = {name: BeyondBound.of_law(name, confidence) for name in LAWS}
    rules = list(next(iter(by_app.values())))
    together = {r: _united([by_app[app][r] for app in data]) for r in rules}
    apps = {app: _outcomes(data[app], by_app[app]) for app in data}
    of_laws = {name: _outcomes(law, _by_growth(law, confidence)) for name, law in laws.items()}
    return {
        "confidence": confidence,
        "apps": apps,
        "pooled": _outcomes(_pooled(list(data.values())), together),
        "laws": of_laws,
        "regrets": regrets({**apps, **of_laws}),
    }


def regrets(outcomes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return by how much each constant factor is beside the best one, at worst over the data.

    Parameters
    ----------
    outcomes : mapping
        By application or law, as in what `study` returns.

    Returns
    -------
    dict
        ``largest`` ratio to the best factor of the same data, of turnaround or time held, by
        factor; the factor ``chosen``, where it is smallest; and the factors that would be
        chosen ``without`` each of the data.
    """
    rules = [f"{growth:g}" for growth in GROWTHS]
    table = {}
    for name, of in outcomes.items():
        figures = [
            [of["rules"][rule][figure] for rule in rules] for figure in ("turnaround", "held")
        ]
        table[name] = (np.array(figures) / np.min(figures, axis=1, keepdims=True)).max(axis=0)

    def chosen(names: Sequence[str]) -> str:
        return rules[int(np.argmin(np.max([table[name] for name in names], axis=0)))]

    largest = np.max(list(table.values()), axis=0)
    return {
        "largest": dict(zip(rules, largest.tolist(), strict=True)),
        "chosen": chosen(list(table)),
        "without": {name: chosen([other for other in table if other != name]) for name in table},
    }


def _by_growth(beyond: BeyondBound, confidence: float) -> dict[str, ReplayedRuns]:
    rules = {f"{growth:g}": beyond.replayed(growth, confidence) for growth in GROWTHS}
    spread = np.maximum(GROWTHS[0], beyond.upper_s / beyond.median_s)
    return rules | {SPREAD: beyond.replayed(spread.tolist(), confidence)}


def _best(costs: Sequence[Floats]) -> int:
    """Return the place of the growth of least cost; costs have shape (growths and more, n).

    Without any run to choose by, that is the first.
    """
    if not costs:
        return 0
    n_growths = len(GROWTHS)
    return int(np.argmin(np.concatenate(costs, axis=1)[:n_growths].sum(axis=1)))


def _chosen(growths: Sequence[ReplayedRuns], chosen: NDArray[np.int64]) -> ReplayedRuns:
    runs = np.arange(len(chosen))
    return ReplayedRuns(
        **{
            name: np.stack([vars(replayed)[name] for replayed in growths])[chosen, runs]
            for name in vars(growths[0])
        }
    )


def _united(parts: Sequence[ReplayedRuns]) -> ReplayedRuns:
    return ReplayedRuns(
        **{name: np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])}
    )


def _pooled(parts: Sequence[BeyondBound]) -> BeyondBound:
    arrays = [name for name in vars(parts[0]) if name != "runs"]
    columns = {name: np.concatenate([vars(part)[name] for part in parts]) for name in arrays}
    return BeyondBound(**columns, runs=sum(part.runs for part in parts))


def _outcomes(beyond: BeyondBound, rules: Mapping[str, ReplayedRuns]) -> dict[str, Any]:
    excess = beyond.used_s / beyond.first_s
    by_rule = {}
    for rule, replayed in rules.items():
        amounts = {"turnaround": replayed.cost, "held": replayed.busy_s}
        base = {"turnaround": rules[BASE].cost, "held": rules[BASE].busy_s}
        by_rule[rule] = {
            "attempts": float(replayed.attempts.mean()),
            "turnaround": float((replayed.cost / replayed.omniscient).mean()),
            "held": float((replayed.busy_s / beyond.used_s).mean()),
            "ratios": {
                name: _ratio(amounts[name] / base[name], beyond.subjects) for name in amounts
            },
        }
    return {
        "runs": beyond.runs,
        "beyond": len(excess),
        "subjects_beyond": len(np.unique(beyond.subjects)),
        "excess": dict(zip(map(str, QUANTILES), np.quantile(excess, QUANTILES), strict=True)),
        "rules": by_rule,
    }


def _ratio(ratios: Floats, subjects: NDArray[np.str_]) -> dict[str, Any]:
    interval = exponential(clustered_mean(np.log(ratios), subjects.tolist()))
    bounds = [interval.low, interval.high] if interval.bounded else None
    return {"ratio": interval.value, "interval": bounds}
