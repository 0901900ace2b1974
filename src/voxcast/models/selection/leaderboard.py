"""The leaderboard: recipes, their errors by cross-validation, and the choice among them.

The smallest of a dozen cross-validated errors over a few subjects is small by chance. The family
with the smallest error is therefore chosen only if the 80 % interval over subjects of its gain on
the best baseline excludes zero. No other family is tested: it could pass by chance where the
best does not. An interval of 80 % loses less of the gain of families than one of 95 %.

The margin applies only where one of the baselines knows the size. A table of any columns has no
such baseline, and a constant is not a cautious answer where a column drives the time: there the
smallest error decides.

Ensembles are equal votes of the best families, or stacking by least squares. Their out-of-fold
predictions follow from their members'; nothing is fitted again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.files import atomic_path, read_json, write_json
from voxcast.laws.intervals import standard_error
from voxcast.models.families.family import FAMILIES
from voxcast.models.metrics import objective
from voxcast.models.point_model import regressed, weighted_mean
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.models.families.family import Params
    from voxcast.models.metrics import Metrics
    from voxcast.models.point_model import InputLevel, Weights


CONFIDENCE = 0.9  # that the gain is above zero
SIZE_BASELINE = "voxels"  # the baseline that knows the size
LAW = "law"  # the baseline that knows all sizes
MINIMUM_GAIN = 0.01  # of the baseline's error: less is a tie, which rounding would decide


@dataclass(frozen=True)
class FamilyChoice:
    """The chosen family or ensemble.

    Attributes
    ----------
    name : str
        The choice.
    smallest : str
        The candidate with the smallest error; it differs from `name` where its gain is below the
        margin.
    """

    name: str
    smallest: str


def choose_family(
    errors_by_name: Mapping[str, np.ndarray], subjects: Sequence[str]
) -> FamilyChoice:
    """Choose by cross-validated errors; ties go to single families, then to the first.

    Parameters
    ----------
    errors_by_name : mapping of str to ndarray, shape (n_runs,)
        Absolute logarithmic error of each run, by family and ensemble.
    subjects : sequence of str
        Subject of each run.
    """
    from scipy.stats import t

    means = {name: float(errors.mean()) for name, errors in errors_by_name.items()}
    ranked = sorted(sorted(means, key=lambda name: name not in FAMILIES), key=means.__getitem__)
    smallest = ranked[0]
    if SIZE_BASELINE not in means:
        return FamilyChoice(smallest, smallest)
    baseline = next(name for name in ranked if is_baseline(name))
    count = len(set(subjects))
    if count < 2:
        return FamilyChoice(baseline, smallest)
    gains = errors_by_name[baseline] - errors_by_name[smallest]
    margin = float(t.ppf(CONFIDENCE, count - 1)) * standard_error(gains, subjects)
    is_better = gains.mean() > max(margin, MINIMUM_GAIN * means[baseline])
    return FamilyChoice(smallest if is_better else baseline, smallest)


def is_baseline(name: str) -> bool:
    """Whether a name is a baseline's; an ensemble is not one."""
    return name in FAMILIES and FAMILIES[name].baseline


VOTERS = 3
MINIMUM_WEIGHT = 0.1  # a member with less is not worth its time
_SUM_PENALTY = 1e3  # weight of the constraint that the weights of a target sum to 1


def voting_weights(
    out_of_fold: Mapping[str, np.ndarray], actual: np.ndarray, targets: Sequence[str]
) -> Weights:
    """Return equal weights of the best families, excluding baselines."""
    objectives = {
        name: objective(actual, logs, targets)
        for name, logs in out_of_fold.items()
        if not is_baseline(name)
    }
    best = sorted(objectives, key=lambda name: (objectives[name], name))[:VOTERS]
    return {name: (1 / len(best),) * len(targets) for name in best}


def stacked_weights(
    out_of_fold: Mapping[str, np.ndarray],
    actual: np.ndarray,
    targets: Sequence[str],
    rows: np.ndarray | None = None,
) -> Weights:
    """Return non-negative weights with sum 1 whose blend is the least-squares fit.

    Parameters
    ----------
    rows : ndarray of int, optional
        Rows to fit; the rest can then be used for evaluation.

    References
    ----------
    Breiman, "Stacked regressions", Machine Learning 24, 1996.
    """
    from scipy.optimize import nnls

    indices = np.arange(len(actual)) if rows is None else rows
    names = sorted(name for name in out_of_fold if not is_baseline(name))
    columns = []
    for k in range(len(targets)):
        logs = np.column_stack([out_of_fold[name][indices, k] for name in names])
        target_logs = actual[indices, k]
        # Centred, so that small differences between members keep their precision.
        centre = target_logs.mean()
        scale = _SUM_PENALTY * np.sqrt(len(indices)) * max(float(target_logs.std()), 1e-9)
        design = np.vstack([logs - centre, np.full((1, len(names)), scale)])
        solution, _ = nnls(design, np.append(target_logs - centre, scale))
        solution = np.where(solution < MINIMUM_WEIGHT, 0.0, solution)
        columns.append(solution / solution.sum() if solution.sum() > 0 else np.eye(len(names))[0])
    weights = np.column_stack(columns)
    # A derived target gets the weights of the target it is derived from.
    for k, target in enumerate(targets):
        if target not in regressed(targets):
            weights[:, k] = weights[:, list(targets).index("cpu_s")]
    return {
        name: tuple(float(w) for w in by_target)
        for name, by_target in zip(names, weights, strict=True)
        if (by_target > 0).any()
    }


def stacked_out_of_fold(
    out_of_fold: Mapping[str, np.ndarray],
    actual: np.ndarray,
    targets: Sequence[str],
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Return the predictions of stacking; each fold's weights are fitted on the other folds."""
    logs = np.empty_like(actual)
    for train, held_out in folds:
        weights = stacked_weights(out_of_fold, actual, targets, train)
        logs[held_out] = weighted_mean(out_of_fold, weights)[held_out]
    return logs


@dataclass(frozen=True)
class Trial:
    """One trial of a set of parameters; ``metrics`` is empty if it was pruned."""

    number: int
    params: Params
    state: str
    duration_s: float
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Search:
    """The result of tuning one family.

    Attributes
    ----------
    out_of_fold : ndarray, shape (n_runs, targets)
        Logarithms predicted by the best trial.
    cut_short : bool
        Whether it stopped at the time budget, so that its result depends on the machine.
    """

    family: str
    params: Params
    metrics: Metrics
    out_of_fold: np.ndarray
    trials: tuple[Trial, ...] = ()
    cut_short: bool = False


GRID, VOTING, STACKED = "grid", "voting", "stacked"


@dataclass(frozen=True)
class TrialCounts:
    """Number of trials, and whether the search stopped at the time budget."""

    trials: int = 0
    pruned: int = 0
    cut_short: bool = False


@dataclass(frozen=True)
class Leaderboard:
    """Families and ensembles, evaluated by cross-validation.

    Attributes
    ----------
    input_level : {"header", "volume"}
        Input level at which the families were tuned.
    params : dict
        Parameters by family and ensemble; see `voxcast.models.selection.fitting`.
    metrics : dict
        Metrics by input level, then by family and ensemble.
    out_of_fold : dict
        Predicted logarithms, (n_runs, targets), from which the metrics are computed.
    chosen : dict of str to str
        Family or ensemble of each input level, see
        `voxcast.models.selection.leaderboard.choose_family`.
    counts : dict of str to TrialCounts
        Counts by family.
    """

    input_level: InputLevel
    params: dict[str, Params]
    metrics: dict[InputLevel, dict[str, Metrics]]
    out_of_fold: dict[InputLevel, dict[str, np.ndarray]]
    counts: dict[str, TrialCounts]
    chosen: dict[InputLevel, str]

    @property
    def tuned(self) -> dict[str, Params]:
        """The best parameters of each family, without ensembles."""
        return {name: params for name, params in self.params.items() if name in FAMILIES}

    @property
    def objectives(self) -> dict[str, float]:
        """The objective of each family and ensemble; the smallest is best."""
        return {name: m["objective"] for name, m in self.metrics[self.input_level].items()}

    @property
    def best(self) -> str:
        """The chosen family or ensemble at the input level of tuning."""
        return self.chosen[self.input_level]

    @property
    def best_family(self) -> str:
        """Single family with the smallest objective; comparisons call it ``grid``."""
        return min(self.tuned, key=self.objectives.__getitem__)

    def name_at(self, name: str, input_level: InputLevel) -> str:
        """Return ``name`` at the input level of tuning, and the chosen name at another level."""
        return name if input_level == self.input_level else self.chosen[input_level]

    @property
    def trials(self) -> int:
        """Number of trials over all families."""
        return sum(counts.trials for counts in self.counts.values())

    @property
    def cut_short(self) -> bool:
        """Whether a search stopped at the time budget."""
        return any(counts.cut_short for counts in self.counts.values())


_COLUMNS = [f"log_{target}" for target in TARGETS]


def save_leaderboard(leaderboard: Leaderboard, cell_keys: Sequence[str], data: Path) -> None:
    """Write ``best.json`` and ``out_of_fold.parquet``.

    Parameters
    ----------
    cell_keys : sequence of str
        Cell keys of the training runs, in their order.
    data : Path
        Folder of the files.
    """
    import pandas as pd

    content = {
        "input_level": leaderboard.input_level,
        "params": leaderboard.params,
        "metrics": leaderboard.metrics,
        "counts": {name: asdict(counts) for name, counts in leaderboard.counts.items()},
        "names": {level: list(by_name) for level, by_name in leaderboard.out_of_fold.items()},
        "chosen": leaderboard.chosen,
    }
    write_json(data / "best.json", content)
    frames = [
        _frame(cell_keys, name, input_level, out_of_fold)
        for input_level, by_name in leaderboard.out_of_fold.items()
        for name, out_of_fold in by_name.items()
    ]
    with atomic_path(data / "out_of_fold.parquet") as partial:
        pd.concat(frames, ignore_index=True).to_parquet(partial, index=False)


def save_trials(searches: Sequence[Search], data: Path) -> None:
    """Write ``trials.json``: the trials of each family, in their order."""
    trials = {search.family: [asdict(trial) for trial in search.trials] for search in searches}
    write_json(data / "trials.json", trials)


def load_trials(data: Path) -> dict[str, list[Trial]]:
    """Read what `save_trials` wrote under ``data``."""
    by_family = read_json(data / "trials.json")
    return {name: [Trial(**trial) for trial in trials] for name, trials in by_family.items()}


def save_table(leaderboards: Mapping[str, Leaderboard], path: Path) -> None:
    """Write the errors of all families as CSV, by application, the best first."""
    import pandas as pd

    frames = []
    for app, leaderboard in leaderboards.items():
        frame = pd.DataFrame(_rows(leaderboard)).sort_values("cv_objective", kind="stable")
        frame.insert(0, "app", app)
        frames.append(frame)
    with atomic_path(path) as partial:
        pd.concat(frames).to_csv(partial, index=False, float_format="%.6g")


def load_leaderboard(data: Path, cell_keys: Sequence[str] | None = None) -> Leaderboard:
    """Read what `save_leaderboard` wrote under ``data``.

    Parameters
    ----------
    cell_keys : sequence of str, optional
        Order of the runs in the out-of-fold predictions; by default as saved.

    Raises
    ------
    ModelError
        If the files are missing, of other runs, or were written by another release.
    """
    import pandas as pd

    again = f"run `voxcast learn --app {data.name}`"
    for name in ("best.json", "out_of_fold.parquet"):
        if not (data / name).is_file():
            raise ModelError("no such file: tuning has not ended", data / name, again)
    content = read_json(data / "best.json")
    if "chosen" not in content:
        raise ModelError("was written by another release", data, "tune again with `voxcast learn`")
    frame = pd.read_parquet(data / "out_of_fold.parquet")
    if cell_keys is not None and set(cell_keys) != set(frame["cell_key"]):
        raise ModelError("was tuned on other runs than the training table has", data, again)
    by_group = dict(iter(frame.groupby(["input_level", "family"], sort=False)))
    out_of_fold: dict[InputLevel, dict[str, np.ndarray]] = {
        level: {name: _out_of_fold(by_group[level, name], cell_keys) for name in names}
        for level, names in content["names"].items()
    }
    counts = {
        name: TrialCounts(**family_counts) for name, family_counts in content["counts"].items()
    }
    return Leaderboard(
        content["input_level"],
        content["params"],
        content["metrics"],
        out_of_fold,
        counts,
        content["chosen"],
    )


def _rows(leaderboard: Leaderboard) -> list[dict[str, Any]]:
    metrics = leaderboard.metrics[leaderboard.input_level]
    singles = {name: metrics[name] for name in leaderboard.tuned}
    ensembles = {name: m for name, m in metrics.items() if name not in singles}
    return [
        {"family": name, "input_level": leaderboard.input_level}
        | asdict(leaderboard.counts.get(name, TrialCounts()))
        | {f"cv_{key.replace('/', '_')}": value for key, value in errors.items()}
        for name, errors in {
            **singles,
            GRID: metrics[leaderboard.best_family],
            **ensembles,
        }.items()
    ]


def _frame(
    cell_keys: Sequence[str], name: str, input_level: InputLevel, out_of_fold: np.ndarray
) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(out_of_fold, columns=_COLUMNS)
    frame.insert(0, "cell_key", list(cell_keys))
    frame.insert(1, "family", name)
    frame.insert(2, "input_level", input_level)
    return frame


def _out_of_fold(frame: pd.DataFrame, cell_keys: Sequence[str] | None) -> np.ndarray:
    ordered = frame if cell_keys is None else frame.set_index("cell_key").loc[list(cell_keys)]
    logs: np.ndarray = ordered[_COLUMNS].to_numpy()
    return logs
