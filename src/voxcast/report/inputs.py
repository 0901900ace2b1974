"""The inputs of the report, read once and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from voxcast.analysis.run_groups import FULL_SCALE
from voxcast.analysis.runs_on_record import runs_on_record, united
from voxcast.errors import TableError
from voxcast.files import read_json
from voxcast.records import TARGETS
from voxcast.runs.store import load_history, recorded_parts
from voxcast.runs.table import frame_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


_NAMES = ("cell_key", "subject", "volume_id", "app", "device", "family")
_BOUNDS = [f"{t}_{kind}" for t in TARGETS for kind in ("actual", "lower", "median", "upper")]
_ORIGIN = ["cell_key", "app", "subject", "noisy", "image_set", "batch"]
_PREDICTED = [*_NAMES[:-1], "cpus", "repeat", *_BOUNDS, "family"]


@dataclass(frozen=True)
class ReportInputs:
    """Tables and receipts of one pass of the pipeline, with the columns written by their stages.

    Attributes
    ----------
    catalogue : DataFrame
        All volumes, also the ones with a ``problem``.
    runs : DataFrame
        Profiles of all devices, including censored runs.
    notes : list of str
        Reasons why runs were not measured.
    runs_left : int
        Planned runs for which the time did not suffice.
    on_record, phases_on_record : DataFrame
        All measured runs and their phases, also of other image sets and of the
        recorded history: devices are compared on all of them.
    trained_on : DataFrame
        The training side of the table: ``cell_key app subject noisy image_set batch`` of each run.
    phases, leaderboard, predictions : DataFrame
        As written by phases, tune and evaluate; predictions are empty without a test side.
    shuffled, dependence : DataFrame
        As written by explain.
    metrics, laws, receipt : dict
        As written by evaluate and register, by application.
    jobs : DataFrame
        Collected jobs of a cluster; empty without any.
    new_days : DataFrame
        As written by evaluate: errors on days that were not measured.
    marker : dict
        Where the champion was registered, see `voxcast.tracking.registry.write_marker`.
    """

    catalogue: pd.DataFrame
    runs: pd.DataFrame
    notes: list[str]
    runs_left: int
    on_record: pd.DataFrame
    phases_on_record: pd.DataFrame
    trained_on: pd.DataFrame
    phases: pd.DataFrame
    leaderboard: pd.DataFrame
    predictions: pd.DataFrame
    shuffled: pd.DataFrame
    dependence: pd.DataFrame
    metrics: dict[str, Any]
    laws: dict[str, dict[str, str]]
    jobs: pd.DataFrame
    new_days: pd.DataFrame
    receipt: dict[str, Any]
    marker: dict[str, Any]

    @property
    def completed(self) -> pd.DataFrame:
        """The runs that completed."""
        return self.runs[self.runs["outcome"] == "completed"]

    @property
    def modelled(self) -> pd.DataFrame:
        """Completed runs of the kind that models are trained on: at full scale, on a volume."""
        runs = self.completed
        return runs[(runs["scale"] == FULL_SCALE) & (runs["volume_id"] != "")]

    @property
    def comparable(self) -> pd.DataFrame:
        """The modelled runs and the recorded ones beside them, whose repeats tell the noise."""
        recorded = self.trained_on.loc[self.trained_on["batch"] != "", "cell_key"]
        runs = self.on_record
        beside = runs["cell_key"].isin(recorded) & (runs["scale"] == FULL_SCALE)
        beside &= ~runs["cell_key"].isin(self.modelled["cell_key"])
        if not beside.any():
            return self.modelled
        return pd.concat([self.modelled, runs[beside]], ignore_index=True)

    def of_app(self, name: str, app: str) -> pd.DataFrame:
        """Return the rows of an application in one of the tables."""
        table: pd.DataFrame = getattr(self, name)
        return table[table["app"] == app].reset_index(drop=True)

    @classmethod
    def read(cls, project: Path, apps: Collection[str] | None = None) -> ReportInputs:
        """Read the outputs of the earlier stages under ``project``.

        Parameters
        ----------
        apps : collection of str, optional
            Applications of this pass; runs of others that are on record too are left out. All by
            default.

        Raises
        ------
        TableError
            If a file is missing or cannot be read.
        """
        devices = [
            _read(project / f"data/runs/{device}/runs.parquet") for device in ("cpu", "gpu")
        ]
        non_empty = [frame for frame in devices if len(frame)] or devices[:1]
        catalogue = _read(project / "data/catalogue/catalogue.parquet")
        runs = pd.concat(non_empty, ignore_index=True)
        # Runs on record of other image sets and applications are not part of this pass.
        in_pass = runs["volume_id"].isin([*catalogue["volume_id"], ""])
        if apps is not None:
            in_pass &= runs["app"].isin(apps)
        phases = _read(project / "data/profiles/phases.parquet")
        history = runs_on_record([project / "data/history"], named=False)
        on_record, phases_on_record = united([(runs, phases), history])
        return cls(
            catalogue=catalogue,
            runs=runs[in_pass].reset_index(drop=True),
            notes=[str(note) for frame in devices for note in frame.attrs.get("notes", [])],
            runs_left=sum(int(frame.attrs.get("runs_left", 0)) for frame in devices),
            on_record=on_record,
            phases_on_record=phases_on_record,
            trained_on=_read(project / "data/features/train.parquet", _ORIGIN),
            phases=phases,
            leaderboard=_read(project / "results/tune/leaderboard.csv").sort_values(
                "cv_objective", kind="stable"
            ),
            predictions=_read(project / "results/evaluate/predictions.csv")
            .reindex(columns=_PREDICTED)
            .sort_values("cell_key", kind="stable"),
            shuffled=_read(project / "results/explain/shuffled.csv"),
            dependence=_read(project / "results/explain/dependence.csv"),
            metrics=_read(project / "results/evaluate/families.json"),
            laws=_read(project / "results/evaluate/laws.json"),
            jobs=_jobs(project / "data/history/jobs", apps),
            new_days=_read(project / "results/evaluate/new_days.csv"),
            receipt=_read(project / "results/register/receipt.json"),
            marker=_read(project / "models/registered.json"),
        )


def _jobs(batch: Path, apps: Collection[str] | None) -> pd.DataFrame:
    runs = load_history([batch]) if recorded_parts(batch) else frame_of([])
    return runs if apps is None else runs[runs["app"].isin(apps)]


def _read(path: Path, columns: list[str] | None = None) -> Any:
    """Return the table, or the content of a JSON file."""
    try:
        if path.suffix == ".json":
            return read_json(path)
        if path.suffix == ".parquet":
            return pd.read_parquet(path, columns=columns)
        # Names are read as text: a subject may be called 0001, or NA.
        return pd.read_csv(
            path, dtype=dict.fromkeys(_NAMES, "str"), keep_default_na=False, na_values=[""]
        )
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        message = "no such file" if missing else f"cannot be read ({error})"
        raise TableError(message, path, "run `dvc repro`, which writes it") from None
