"""The training table of a project: a row for each completed run that may train.

They are the runs measured in the project, on the present image set and on earlier ones, and those
of the recorded batches that the configuration names. Runs that were stopped before they completed
are a table of their own: they are lower bounds.

Only runs of one version and one memory method can be compared. Each application decides by its own
runs, so that one of them does not discard runs of another; runs measured in the project decide,
recorded batches only where there are none.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from voxcast.errors import ConfigError, TableError, one_line
from voxcast.features.phase_labels import COLUMN as PHASES
from voxcast.features.phase_labels import phase_texts
from voxcast.features.rows import (
    CENSORED_OUTCOMES,
    IDENTITY,
    KERNEL_S,
    PLACE,
    SPEED_DEVIATION,
    WORK,
    features,
)
from voxcast.files import sha256_of
from voxcast.images.catalogue import ON_RECORD, RECORDED_IMAGES, RESTORE, read_on_record
from voxcast.images.characteristics import CHARACTERISTICS, current_rows
from voxcast.images.header import HEADER_COLUMNS
from voxcast.images.network_volume import SMALL_VOLUMES, points_of, read_small_volumes
from voxcast.records import ANCHOR_REPEAT, MEASURED, TARGETS, Configuration
from voxcast.runs.series import RUNS, phases_in
from voxcast.runs.speed import kernel_times, speed_deviations
from voxcast.runs.store import (
    batch_names,
    load_history,
    load_phases,
    recorded_parts,
    reserved_names,
)
from voxcast.runs.table import settled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from voxcast.records import App


logger = logging.getLogger(__name__)

KEY = "features.history"
VOLUME_COLUMNS = ("volume_id", *HEADER_COLUMNS)


@dataclass(frozen=True)
class TrainingRuns:
    """Runs that may train, with their volumes.

    Attributes
    ----------
    profiles : DataFrame
        Columns of `voxcast.runs.table`, and ``batch``: the name of the recorded batch,
        empty for runs measured in the project. A run in both is there once.
    volumes : DataFrame
        `VOLUME_COLUMNS`, characteristics, ``image_set``, and ``problem``, the reason why runs on
        it cannot train.
    phases : DataFrame
        Columns of `voxcast.runs.table.PHASE_DTYPES`; imported runs have none.
    small_volumes : dict of str to ndarray
        Small volumes for the network by volume id; not every volume has one.
    """

    profiles: pd.DataFrame
    volumes: pd.DataFrame
    phases: pd.DataFrame
    small_volumes: dict[str, np.ndarray]


def training_runs(
    profiles: Sequence[Path],
    catalogue: Path,
    history: Path,
    batches: Sequence[str],
    apps: Collection[str],
    coarse_points: int,
    network_points: int,
) -> TrainingRuns:
    """Read the runs of applications that may train, and the volumes they were made on.

    Parameters
    ----------
    profiles : sequence of Path
        Tables of the runs measured in the project.
    catalogue : Path
        Folder of the catalogue, with all volumes on record.
    history : Path
        Folder of the recorded batches, such as ``data/history``.
    batches : sequence of str
        Names of folders in `history` whose runs train, too.
    apps : collection of str
        Names of the applications.
    coarse_points : int
        Grid of the characteristics; other grids cannot be compared.
    network_points : int
        Grid of the small volumes; other grids are not used.

    Raises
    ------
    ConfigError
        If a recorded batch is missing.
    TableError
        If a table is missing or cannot be read, or a recorded batch has no images.
    """
    import pandas as pd

    tables = [_read(path, "run `dvc repro profile`, which writes it") for path in profiles]
    runs = [table.assign(batch="") for table in tables]
    phases = [phases_in(path.parent) for path in profiles]
    volumes = []
    if profiles or (catalogue / ON_RECORD).is_file():  # missing where nothing was measured
        volumes.append(read_on_record(catalogue / ON_RECORD))
    small_volumes = _small_volumes(catalogue, network_points, RESTORE)
    for name in dict.fromkeys(batches):
        batch = _batch(history, name)
        images = _images(batch)
        runs.append(load_history([batch]).assign(batch=name))
        phases.append(load_phases([batch]))
        volumes.append(current_rows(images).assign(image_set=name))
        recorded = _small_volumes(
            batch, network_points, f"restore it, or take {name} out of {KEY}"
        )
        small_volumes = {**recorded, **small_volumes}
    all_runs = pd.concat([table for table in runs if len(table)] or runs[:1], ignore_index=True)
    # The project's own come first: they stay.
    all_runs = all_runs[all_runs["app"].isin(list(apps))].drop_duplicates("cell_key")
    # Campaigns record no grid: the configuration that measured them states it.
    columns = [*VOLUME_COLUMNS, *CHARACTERISTICS, "image_set", "coarse_points"]
    all_volumes = pd.concat([table.reindex(columns=columns) for table in volumes])
    # Of a volume that is there twice, the more complete row counts.
    order = all_volumes[list(CHARACTERISTICS)].isna().sum(axis=1).argsort(kind="stable")
    all_volumes = all_volumes.iloc[order]
    all_volumes = all_volumes.drop_duplicates("volume_id", ignore_index=True)
    same_grid = all_volumes["coarse_points"].fillna(coarse_points) == coarse_points
    problem = "volume catalogued with another features.coarse_points"
    return TrainingRuns(
        all_runs.reset_index(drop=True),
        all_volumes.assign(problem=same_grid.map({True: None, False: problem})),
        pd.concat([table for table in phases if len(table)] or phases[:1], ignore_index=True),
        small_volumes,
    )


def _small_volumes(folder: Path, points: int, then: str) -> dict[str, np.ndarray]:
    volumes = read_small_volumes(folder / SMALL_VOLUMES, then)
    same_size = {key: volume for key, volume in volumes.items() if points_of(volume) == points}
    if other := len(volumes) - len(same_size):
        logger.warning(
            "%s: %d small volumes have not %d points; the network sees them as unknown",
            folder / SMALL_VOLUMES, other, points,
        )  # fmt: skip
    return same_size


def _batch(history: Path, name: str) -> Path:
    names = batch_names(history)
    if name not in names:
        choices = f"choose from {', '.join(names)}" if names else f"there are none in {history}"
        raise ConfigError("no such recorded batch", f"{KEY}: {name}", choices)
    return history / name


def _images(batch: Path) -> pd.DataFrame:
    path = batch / RECORDED_IMAGES
    if not path.is_file():
        raise TableError(
            f"has no {RECORDED_IMAGES}, the characteristics of its images",
            batch,
            f"import it again with --images DIR into a new folder, or take it out of {KEY}",
        )
    images = _read(path, f"take {batch.name} out of {KEY}, or restore the file")
    if missing := [name for name in VOLUME_COLUMNS if name not in images.columns]:
        raise TableError(f"lacks the column {missing[0]}", path, f"take it out of {KEY}")
    return images


def _read(path: Path, then: str) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise TableError("no such file", path, then)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, then) from None


def batches_to_learn_from(history: Path, app: str) -> dict[str, int]:
    """Return the number of completed runs of ``app`` by batch, in a folder of batches.

    Batches without characteristics of their images cannot be learned from, and batches reserved
    for judging must not be; both are left out.
    """
    import pandas as pd

    counts = {}
    for name in sorted(set(batch_names(history)) - reserved_names(history)):
        if (history / name / RECORDED_IMAGES).is_file():
            paths = [part / RUNS for part in recorded_parts(history / name)]
            runs = pd.concat([pd.read_parquet(path, columns=["app", "outcome"]) for path in paths])
            count = int(((runs["app"] == app) & (runs["outcome"] == "completed")).sum())
            if count:
                counts[name] = count
    return counts


@dataclass(frozen=True)
class Comparability:
    """The version and the memory method that runs must have.

    Attributes
    ----------
    versions : dict
        The most recently run version by application and device. A run that states no version, as
        most imports, is taken for it.
    methods : dict
        The most frequent method of measuring memory by application; of equals the first.
    """

    versions: dict[tuple[str, str], str]
    methods: dict[str, str]

    @classmethod
    def of(cls, profiles: pd.DataFrame) -> Comparability:
        """Return the requirements on the runs of ``profiles``.

        Parameters
        ----------
        profiles : DataFrame
            Runs of any outcome; a column ``batch``, if there is one, is empty for runs measured
            in the project.
        """
        dated = profiles.assign(here=profiles.get("batch", "") == "")
        dated = dated.sort_values(["here", "started_at"], kind="stable")
        stated = dated[dated["app_version"] != ""]
        measured = dated[(dated["outcome"] == "completed") & (dated["memory_method"] != "")]
        return cls(
            {
                (str(app), str(device)): str(versions.iloc[-1])
                for (app, device), versions in stated.groupby(["app", "device"])["app_version"]
            },
            {
                str(app): str(_decisive(runs)["memory_method"].mode().iloc[0])
                for app, runs in measured.groupby("app")
            },
        )

    def objection(self, run: Mapping[str, Any]) -> str | None:
        """Return why a run cannot be compared with the rest; None if it can."""
        if not self.has_version(run["app"], run["device"], run["app_version"]):
            return "another version of the application"
        if run["memory_method"] != self.methods.get(run["app"], run["memory_method"]):
            return f"memory by another method: {run['memory_method'] or 'not stated'}"
        return None

    def has_version(self, app: str, device: str, version: str) -> bool:
        """Tell whether a version of an application is the one to compare."""
        return version in ("", self.versions.get((app, device), version))


def _decisive(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["here"]] if runs["here"].any() else runs


def training_table(
    training: TrainingRuns, apps: Mapping[str, App]
) -> tuple[pd.DataFrame, dict[str, dict[str, int]]]:
    """Return the table of some applications, and the numbers of runs left out, by reason.

    The table has neither rows nor columns if no run can be used; see
    `build_table`.
    """
    import pandas as pd

    tables, left_out = [], {}
    # Each by itself: runs of one application are compared with each other only.
    for name, app in apps.items():
        of_app = training.profiles[training.profiles["app"] == name]
        table, left_out[name] = build_table(
            of_app,
            training.volumes,
            declared=app.characteristics,
            phase_texts=phase_texts(
                training.phases,
                dict(zip(of_app["cell_key"], of_app["cpu_s"], strict=True)),
                app.phase_drivers,
            ),
        )
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    if table.empty:
        return table, left_out
    return with_speed_deviations(table, training.profiles, training.phases), left_out


def build_table(
    profiles: pd.DataFrame,
    volumes: pd.DataFrame,
    *,
    scales: Collection[str] = ("full_scale",),
    without_image: bool = False,
    declared: Collection[str] | None = None,
    phase_texts: Mapping[str, str] | None = None,
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Join profiles with headers and characteristics of their volumes.

    Runs that did not complete are not in it, see `stopped_runs`. Runs of another scale, and runs
    that `voxcast.features.training_table` objects to, are excluded. Anchors, which every sitting
    repeats, and disturbed runs that were repeated undisturbed do not count twice. Excluded runs
    are counted by reason.

    Parameters
    ----------
    profiles : DataFrame
        Runs; column ``batch``, if there is one, names the recorded batch.
    volumes : DataFrame
        Headers and characteristics of the volumes, with the ``problem`` of unusable ones, and
        ``image_set``, if it is known.
    scales : collection of str
        Runs at other scales are excluded.
    without_image : bool
        Whether to include runs of applications that take no image. Each set of parameters is a
        subject of such runs.
    declared : collection of str, optional
        The characteristics that are features; all of them if None. A run on a volume of which one
        is unknown is excluded.
    phase_texts : mapping, optional
        Labels by phase of each run, see `voxcast.features.phase_labels`.

    Returns
    -------
    table : DataFrame
        One row per usable run, sorted by cell key. Beside the features, whose names have a dot or
        are in `CATEGORIES`, it has identity and targets of the run, whether it was ``noisy``,
        ``image_set`` and ``batch`` that it comes from, and `PLACE`, all empty if unknown.
    left_out : dict of str to int
        Number of excluded runs, by reason.
    """
    import pandas as pd

    by_volume = _usable(volumes)
    problems = dict(zip(volumes["volume_id"], volumes["problem"], strict=True))
    names = [n for n in CHARACTERISTICS if n in volumes] if declared is None else sorted(declared)
    records = []
    left_out: dict[str, int] = {}
    comparability = Comparability.of(profiles)
    completed = profiles[profiles["outcome"] == "completed"]
    settled_keys = set(settled(completed)["cell_key"])
    for run in _records(profiles.sort_values("cell_key")):
        reason = _unusable(run, by_volume, problems, without_image)
        volume = by_volume.get(run["volume_id"])
        reason = reason or comparability.objection(run) or _unknown(volume, names)
        if not reason and run["scale"] not in scales:
            reason = f"scale: {run['scale']}"
        if not reason and run["cell_key"] not in settled_keys:
            is_anchor = run["repeat"] >= ANCHOR_REPEAT
            reason = "anchor of a sitting" if is_anchor else "disturbed, and undisturbed again"
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        texts = None if phase_texts is None else phase_texts.get(run["cell_key"], "")
        records.append(_record(run, volume, names, texts))
    return pd.DataFrame(records), left_out


def stopped_runs(training: TrainingRuns, apps: Mapping[str, App]) -> pd.DataFrame:
    """Return the runs of some applications that were stopped before they completed.

    Their times and memory are lower bounds, and missing where they are unknown or not comparable
    with those of the training table, whose columns this table has. Failed runs carry no
    information on time or memory and are not included. A run that was stopped and made again with
    more time or memory is known: it completed.
    """
    import pandas as pd

    by_volume = _usable(training.volumes)
    profiles = training.profiles
    stopped = profiles[
        profiles["outcome"].isin(CENSORED_OUTCOMES)
        & (profiles["scale"] == "full_scale")
        & profiles["volume_id"].isin(list(by_volume))
        & profiles["app"].isin(list(apps))
    ]
    completed = profiles.loc[profiles["outcome"] == "completed", list(WORK)].drop_duplicates()
    again = stopped[list(WORK)].merge(completed, how="left", on=list(WORK), indicator=True)
    stopped = stopped[(again["_merge"] == "left_only").to_numpy()]
    comparability = Comparability.of(profiles)
    records = []
    for run in _records(stopped.sort_values(["app", "subject", "cell_key"])):
        if not comparability.has_version(run["app"], run["device"], run["app_version"]):
            continue
        declared = apps[run["app"]].characteristics
        names = list(CHARACTERISTICS if declared is None else declared)
        volume = by_volume[run["volume_id"]]
        record = _record(run, volume, names, "")
        if comparability.objection(run) or _unknown(volume, names):
            record |= dict.fromkeys(TARGETS)
        records.append(record)
    columns = None if records else ["app", "subject"]
    return pd.DataFrame(records, columns=columns).astype({"app": str, "subject": str})


def _record(
    run: Mapping[str, Any],
    volume: Mapping[str, Any] | None,
    names: Sequence[str],
    phase_text: str | None,
) -> dict[str, Any]:
    """Return identity, place, targets and features of a run; ``names`` are characteristics."""
    row = features(
        volume,
        None if volume is None else {name: volume[name] for name in names},
        run["app"],
        json.loads(run["parameters_json"] or "{}"),  # imports state none
        Configuration(run["device"], int(run["cpus"]), int(run["gpus"])),
    )
    identity = {n: run[n] for n in IDENTITY} | {t: run[t] for t in TARGETS}
    if volume is None:
        identity["subject"] = sha256_of(run["parameters_json"])[:12]
    identity["image_set"] = "" if volume is None else volume.get("image_set", "")
    identity["batch"] = run.get("batch", "")
    identity |= {name: run.get(name, "") for name in PLACE}
    if identity["batch"] and identity["sitting"]:  # batches number their own sittings
        identity["sitting"] = f"{identity['batch']}/{identity['sitting']}"
    if phase_text is not None:
        identity[PHASES] = phase_text
    return identity | row


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", frame.to_dict("records"))


def _usable(volumes: pd.DataFrame) -> dict[str, dict[str, Any]]:
    usable = volumes[volumes["problem"].isna()].drop_duplicates("volume_id")
    return cast("dict[str, dict[str, Any]]", usable.set_index("volume_id").to_dict("index"))


def _unusable(
    run: Mapping[str, Any],
    volumes: Mapping[str, Any],
    problems: Mapping[str, Any],
    without_image: bool,
) -> str | None:
    import pandas as pd

    if run["outcome"] != "completed":
        return f"censored: {run['outcome']}"
    volume_id = run["volume_id"]
    if not volume_id and not without_image:
        imported = run.get("source", MEASURED) != MEASURED
        return "imported without an image" if imported else "an application without an image"
    if volume_id and volume_id not in volumes:
        return str(problems.get(volume_id, "volume not on record"))
    if not run["device"] or run["cpus"] < 1:
        return f"{'number of CPUs' if run['device'] else 'device'} is not stated"
    for target in TARGETS:
        if pd.isna(run[target]) or not float(run[target]) > 0:
            return f"{target} is unknown or not positive"
    return None


def _unknown(volume: Mapping[str, Any] | None, names: Sequence[str]) -> str | None:
    import pandas as pd

    unknown = [name for name in names if volume is not None and pd.isna(volume.get(name))]
    return f"{unknown[0]} of the volume is unknown, or of another version" if unknown else None


def with_speed_deviations(
    table: pd.DataFrame, runs: pd.DataFrame, phases: pd.DataFrame
) -> pd.DataFrame:
    """Add the timings around each run: `SPEED_DEVIATION` and `KERNEL_S`.

    The work of neighbours comes and goes within minutes. Timings beside a run show part of it, so
    that families can be compared by errors that are less of the machine. The deviation is measured
    during the run, so it is never a feature, and labels stay as measured. It is a natural
    logarithm whose median in every sitting is zero: how fast a whole sitting was is left in the
    times, for a model to know. Where nothing was timed beside a run the value is zero.

    The time of the kernels before a run shows how fast its machine was; NaN where it is unknown.

    Parameters
    ----------
    table : DataFrame
        As of `voxcast.features.training_table.build_table`.
    runs, phases : DataFrame
        All runs on record with their phases: the runs of the table, and others that show how runs
        follow the speed of the machine.
    """
    completed = runs[runs["outcome"] == "completed"].drop_duplicates("cell_key")
    by_key = speed_deviations(completed, phases)["log_speed"]
    deviations = table["cell_key"].map(by_key).fillna(0.0).astype(float)
    of_sitting = deviations.groupby([table["app"], table["host_id"], table["sitting"]])
    return table.assign(
        **{
            SPEED_DEVIATION: deviations - of_sitting.transform("median"),
            KERNEL_S: table["cell_key"].map(kernel_times(completed)).astype(float),
        }
    )
