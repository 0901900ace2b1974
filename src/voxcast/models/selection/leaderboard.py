"""The leaderboard: recipes, their errors by cross-validation, their out-of-fold predictions.

It is written as files: for later stages, and as a table to read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.files import atomic_path, read_json, write_json
from voxcast.models.families.family import FAMILIES
from voxcast.models.selection.search import Trial
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from voxcast.models.families.family import Params
    from voxcast.models.metrics import Metrics
    from voxcast.models.point_model import InputLevel
    from voxcast.models.selection.search import Search


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
        Parameters by family and ensemble; see `voxcast.models.selection.recipes`.
    metrics : dict
        Metrics by input level, then by family and ensemble.
    out_of_fold : dict
        Predicted logarithms, (n_runs, targets), from which the metrics are computed.
    chosen : dict of str to str
        Family or ensemble of each input level, see
        `voxcast.models.selection.family_choice.choose_family`.
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
