"""The training table of a project: a row for each completed run that may train.

Runs that were stopped before they completed are a table of their own: they are lower bounds.

Which runs of an application can be compared: runs of one version and one memory method.

Each application has its own, so that one of them does not discard runs of another. Runs measured
in the project decide; recorded batches only where there are none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from voxcast.features.phase_labels import COLUMN as PHASES
from voxcast.features.phase_labels import phase_texts
from voxcast.features.rows import features
from voxcast.features.table import CENSORED_OUTCOMES, IDENTITY, PLACE, SPEED_DEVIATION, WORK
from voxcast.files import sha256_of
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.records import ANCHOR_REPEAT, MEASURED, TARGETS, Configuration
from voxcast.runs.speed import speed_deviations
from voxcast.runs.table import settled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pandas as pd

    from voxcast.features.training_runs import TrainingRuns
    from voxcast.records import App


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
        # A laboratory's are features where they are declared by name.
        declared = tuple(CHARACTERISTICS) if app.characteristics is None else app.characteristics
        of_app = training.profiles[training.profiles["app"] == name]
        table, left_out[name] = build_table(
            of_app,
            training.volumes,
            training.characteristics,
            declared=declared,
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
    catalogue: pd.DataFrame,
    characteristics: pd.DataFrame,
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
    catalogue : DataFrame
        Headers of the volumes, with the ``problem`` of unusable ones, and
        ``image_set``, if it is known.
    characteristics : DataFrame
        Characteristics of the volumes.
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

    usable = catalogue["problem"].isna()
    by_volume = _by_volume(catalogue[usable].drop_duplicates("volume_id"))
    problems = _by_volume(catalogue[~usable].dropna(subset="volume_id"))
    contents = _by_volume(characteristics.drop_duplicates("volume_id"))
    computed = [str(name) for name in characteristics if name != "volume_id"]
    names = computed if declared is None else sorted(declared)
    records = []
    left_out: dict[str, int] = {}
    comparability = Comparability.of(profiles)
    completed = profiles[profiles["outcome"] == "completed"]
    settled_keys = set(settled(completed)["cell_key"])
    for run in _records(profiles.sort_values("cell_key")):
        reason = _unusable(run, by_volume, problems, without_image)
        content: dict[str, Any] = {
            name: contents.get(run["volume_id"], {}).get(name) for name in names
        }
        reason = reason or comparability.objection(run) or _unknown(run["volume_id"], content)
        if not reason and run["scale"] not in scales:
            reason = f"scale: {run['scale']}"
        if not reason and run["cell_key"] not in settled_keys:
            is_anchor = run["repeat"] >= ANCHOR_REPEAT
            reason = "anchor of a sitting" if is_anchor else "disturbed, and undisturbed again"
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        texts = None if phase_texts is None else phase_texts.get(run["cell_key"], "")
        records.append(_record(run, by_volume, content, texts))
    return pd.DataFrame(records), left_out


def stopped_runs(training: TrainingRuns, apps: Mapping[str, App]) -> pd.DataFrame:
    """Return the runs of some applications that were stopped before they completed.

    Their times and memory are lower bounds, and missing where they are unknown or not comparable
    with those of the training table, whose columns this table has. Failed runs carry no
    information on time or memory and are not included. A run that was stopped and made again with
    more time or memory is known: it completed.
    """
    import pandas as pd

    usable = training.volumes[training.volumes["problem"].isna()]
    by_volume = _by_volume(usable.drop_duplicates("volume_id"))
    contents = _by_volume(training.characteristics.drop_duplicates("volume_id"))
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
        names = tuple(CHARACTERISTICS) if declared is None else declared
        content = {name: contents.get(run["volume_id"], {}).get(name) for name in names}
        record = _record(run, by_volume, content, "")
        if comparability.objection(run) or _unknown(run["volume_id"], content):
            record |= dict.fromkeys(TARGETS)
        records.append(record)
    columns = None if records else ["app", "subject"]
    return pd.DataFrame(records, columns=columns).astype({"app": str, "subject": str})


def _record(
    run: Mapping[str, Any],
    by_volume: Mapping[str, Any],
    content: Mapping[str, Any],
    phase_text: str | None,
) -> dict[str, Any]:
    """Return identity, place, targets and features of a run."""
    volume_id = run["volume_id"]
    row = features(
        by_volume[volume_id] if volume_id else None,
        content if volume_id else None,
        run["app"],
        json.loads(run["parameters_json"] or "{}"),  # imports state none
        Configuration(run["device"], int(run["cpus"]), int(run["gpus"])),
    )
    identity = {n: run[n] for n in IDENTITY} | {t: run[t] for t in TARGETS}
    if not volume_id:
        identity["subject"] = sha256_of(run["parameters_json"])[:12]
    identity["image_set"] = by_volume.get(volume_id, {}).get("image_set", "")
    identity["batch"] = run.get("batch", "")
    identity |= {name: run.get(name, "") for name in PLACE}
    if identity["batch"] and identity["sitting"]:  # batches number their own sittings
        identity["sitting"] = f"{identity['batch']}/{identity['sitting']}"
    if phase_text is not None:
        identity[PHASES] = phase_text
    return identity | row


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", frame.to_dict("records"))


def _by_volume(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return cast("dict[str, dict[str, Any]]", frame.set_index("volume_id").to_dict("index"))


def _unusable(
    run: Mapping[str, Any],
    volumes: Mapping[str, Any],
    problems: Mapping[str, Mapping[str, Any]],
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
        return str(problems.get(volume_id, {}).get("problem", "volume not on record"))
    if not run["device"] or run["cpus"] < 1:
        return f"{'number of CPUs' if run['device'] else 'device'} is not stated"
    for target in TARGETS:
        if pd.isna(run[target]) or not float(run[target]) > 0:
            return f"{target} is unknown or not positive"
    return None


def _unknown(volume_id: str, content: Mapping[str, float | None]) -> str | None:
    import pandas as pd

    unknown = [name for name, value in content.items() if volume_id and pd.isna(value)]
    return f"{unknown[0]} of the volume is unknown, or of another version" if unknown else None


def with_speed_deviations(
    table: pd.DataFrame, runs: pd.DataFrame, phases: pd.DataFrame
) -> pd.DataFrame:
    """Add the column `SPEED_DEVIATION`, a natural logarithm whose median in every sitting is zero.

    The work of neighbours comes and goes within minutes. Timings beside a run show part of it, so
    that families can be compared by errors that are less of the machine. It is measured during the
    run, so it is never a feature, and labels stay as measured. How fast a whole sitting was is
    left in the times: it is for a model to know. Where nothing was timed beside a run the value is
    zero.

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
    return table.assign(**{SPEED_DEVIATION: deviations - of_sitting.transform("median")})
