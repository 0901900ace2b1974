"""All that the report is made from, read once and strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from voxcast.analysis.runs_on_record import runs_on_record, united
from voxcast.errors import TableError
from voxcast.files import read_json
from voxcast.records import TARGETS, Configuration

if TYPE_CHECKING:
    from pathlib import Path

HEADER_ONLY = "header_only"
FULL_SCALE = "full_scale"
STUDIES = "results/studies"  # made apart: of the recorded history, not of this pass
_NAMES = ("cell_key", "subject", "volume_id", "app", "device", "family")
_BOUNDS = [f"{t}_{kind}" for t in TARGETS for kind in ("actual", "lower", "median", "upper")]
_PREDICTED = [*_NAMES[:-1], "cpus", "repeat", *_BOUNDS, "family"]


@dataclass(frozen=True)
class Evidence:
    """Tables and receipts of one pass of the pipeline; columns as their stages wrote them.

    Attributes
    ----------
    catalogue : DataFrame
        All volumes, those with a ``problem`` too.
    runs : DataFrame
        Profiles of all devices, censored ones too.
    notes : list of str
        Why something was not measured.
    on_record, phases_on_record : DataFrame
        All measured runs and their phases, those of other image sets and of the recorded history
        too: devices are compared on all that is known of them.
    phases, leaderboard, predictions : DataFrame
        As written by phases, tune and evaluate; predictions are empty without a test side.
    shuffled, dependence : DataFrame
        As written by explain.
    studies : dict
        Those of ``results/studies`` that there are, by name; of the recorded history.
    metrics, receipt : dict
        As written by evaluate and register.
    """

    catalogue: pd.DataFrame
    runs: pd.DataFrame
    notes: list[str]
    on_record: pd.DataFrame
    phases_on_record: pd.DataFrame
    phases: pd.DataFrame
    leaderboard: pd.DataFrame
    predictions: pd.DataFrame
    shuffled: pd.DataFrame
    dependence: pd.DataFrame
    studies: dict[str, Any]
    metrics: dict[str, Any]
    receipt: dict[str, Any]

    @property
    def completed(self) -> pd.DataFrame:
        """The runs that ended by themselves and well."""
        return self.runs[self.runs["outcome"] == "completed"]

    @property
    def modelled(self) -> pd.DataFrame:
        """Completed runs of the kind that models learn from: at full scale, on a volume."""
        done = self.completed
        return done[(done["scale"] == FULL_SCALE) & (done["volume_id"] != "")]

    def predicted(self, family: str) -> pd.DataFrame:
        """Return one family's predictions on the test side, by cell key."""
        own = self.predictions[self.predictions["family"] == family]
        return own.sort_values("cell_key", ignore_index=True)

    @classmethod
    def read(cls, project: Path) -> Evidence:
        """Read what the stages before left under ``project``.

        Raises
        ------
        TableError
            If a file is missing or cannot be read.
        """
        devices = [
            _parquet(project / f"data/runs/{device}/profiles.parquet") for device in ("cpu", "gpu")
        ]
        filled = [frame for frame in devices if len(frame)] or devices[:1]
        catalogue = _parquet(project / "data/catalogue/catalogue.parquet")
        runs = pd.concat(filled, ignore_index=True)
        phases = _parquet(project / "data/profiles/phases.parquet")
        history = runs_on_record([project / "data/history"], named=False)
        on_record, phases_on_record = united([(runs, phases), history])
        return cls(
            catalogue=catalogue,
            # What other image sets have left on record is not what this model has learned from.
            runs=runs[runs["volume_id"].isin([*catalogue["volume_id"], ""])].reset_index(
                drop=True
            ),
            notes=[str(note) for frame in devices for note in frame.attrs.get("notes", [])],
            on_record=on_record,
            phases_on_record=phases_on_record,
            phases=phases,
            leaderboard=_leaderboard(project / "results/tune/leaderboard.csv"),
            predictions=_csv(project / "results/evaluate/predictions.csv").reindex(
                columns=_PREDICTED
            ),
            shuffled=_csv(project / "results/explain/shuffled.csv"),
            dependence=_csv(project / "results/explain/dependence.csv"),
            studies={p.stem: _json(p) for p in sorted((project / STUDIES).glob("*.json"))},
            metrics=_json(project / "results/evaluate/families.json"),
            receipt=_json(project / "results/register/receipt.json"),
        )


@dataclass(frozen=True)
class Part:
    """The runs of one application in one allocation, at one scale."""

    app: str
    configuration: Configuration
    scale: str
    runs: pd.DataFrame

    @property
    def allocation(self) -> str:
        """Allocation and scale, for people."""
        return allocation(self.configuration, self.scale)

    @property
    def label(self) -> str:
        """Application, allocation and scale, for people."""
        return f"{self.app}: {self.allocation}"


def allocation(configuration: Configuration, scale: str | None) -> str:
    """Write an allocation, and the scale where it is not the full one.

    Examples
    --------
    >>> allocation(Configuration("cpu", 1), "scaled_down")
    'cpu, 1 CPU, scaled down'
    """
    return f"{configuration.label}{', scaled down' if scale == 'scaled_down' else ''}"


def by_configuration(frame: pd.DataFrame) -> list[Part]:
    """Part a table of runs by application, allocation and scale, in this order.

    A table without a scale, such as predictions, is all at full scale.
    """
    scales = frame["scale"] if "scale" in frame.columns else frame["app"].map(lambda _: FULL_SCALE)
    groups = frame.groupby(["app", "device", "cpus", scales.rename("scale")], sort=True)
    return [
        Part(str(app), Configuration(str(device), int(str(cpus))), str(scale), own)
        for (app, device, cpus, scale), own in groups
    ]


def _leaderboard(path: Path) -> pd.DataFrame:
    board = _csv(path).sort_values("cv_objective", kind="stable", ignore_index=True)
    if board.empty:
        raise TableError("holds no family", path, "run `dvc repro tune`")
    return board


def _parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _csv(path: Path) -> pd.DataFrame:
    try:
        # Labels stay as they are: a subject may be called 0001, or NA.
        return pd.read_csv(
            path, dtype=dict.fromkeys(_NAMES, "str"), keep_default_na=False, na_values=[""]
        )
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = read_json(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return content


def _unreadable(path: Path, error: Exception) -> TableError:
    missing = isinstance(error, FileNotFoundError)
    what = "no such file" if missing else f"cannot be read ({error})"
    return TableError(what, path, "run `dvc repro`, which makes it")
