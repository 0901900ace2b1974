"""All that the report is made from, read once and strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from voxcast.errors import TableError
from voxcast.files import read_json
from voxcast.records import TARGETS, Configuration

if TYPE_CHECKING:
    from pathlib import Path

HEADER_ONLY = "header_only"
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
    phases, leaderboard, predictions : DataFrame
        As written by phases, tune and evaluate; predictions are empty without a test side.
    metrics, receipt : dict
        As written by evaluate and register.
    """

    catalogue: pd.DataFrame
    runs: pd.DataFrame
    notes: list[str]
    phases: pd.DataFrame
    leaderboard: pd.DataFrame
    predictions: pd.DataFrame
    metrics: dict[str, Any]
    receipt: dict[str, Any]

    @property
    def completed(self) -> pd.DataFrame:
        """The runs that ended by themselves and well."""
        return self.runs[self.runs["outcome"] == "completed"]

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
        return cls(
            catalogue=catalogue,
            # What other image sets have left on record is not what this model has learned from.
            runs=runs[runs["volume_id"].isin(catalogue["volume_id"])].reset_index(drop=True),
            notes=[str(note) for frame in devices for note in frame.attrs.get("notes", [])],
            phases=_parquet(project / "data/profiles/phases.parquet"),
            leaderboard=_leaderboard(project / "results/tune/leaderboard.csv"),
            predictions=_csv(project / "results/evaluate/predictions.csv").reindex(
                columns=_PREDICTED
            ),
            metrics=_json(project / "results/evaluate/families.json"),
            receipt=_json(project / "results/register/receipt.json"),
        )


def by_configuration(frame: pd.DataFrame) -> list[tuple[str, Configuration, pd.DataFrame]]:
    """Part a table of runs by application and allocation, in this order."""
    groups = frame.groupby(["app", "device", "cpus"], sort=True)
    parts = [(own.iloc[0], own) for _, own in groups]
    return [
        (str(one["app"]), Configuration(str(one["device"]), int(one["cpus"])), own)
        for one, own in parts
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
