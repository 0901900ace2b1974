"""The training table: one row per completed run, with features and targets, and its split.

Column names: identity and configuration as in the profiles, targets as in `voxcast.records`,
features with the prefixes of `voxcast.features.rows`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from voxcast.features.comparability import Comparability
from voxcast.features.phase_labels import COLUMN as PHASES
from voxcast.features.rows import CATEGORIES, features
from voxcast.files import sha256_of
from voxcast.images.network_volume import read_stacked
from voxcast.records import ANCHOR_REPEAT, MEASURED, TARGETS, Configuration
from voxcast.runs.table import settled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from voxcast.features.rows import Row

IDENTITY = (
    "cell_key",
    "volume_id",
    "subject",
    "app",
    "device",
    "cpus",
    "gpus",
    "scale",
    "repeat",
    "host_class",
    "noisy",
)
# Where and when a run was measured: plain columns, not features.
PLACE = ("host_id", "node_type", "sitting", "started_at")  # fmt: skip


# What a run is asked to do: the same again takes the same.
WORK = ("app", "app_version", "volume_id", "parameters_json", "device", "cpus", "gpus", "scale")
CENSORED_OUTCOMES = (
    "timeout", "out_of_memory", "preempted", "stalled", "cancelled", "node_failure",
)  # fmt: skip


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

    Censored runs (every outcome but ``completed``) are lower bounds and never become labels. Runs
    of another scale, and those that `voxcast.features.comparability` objects to, are excluded.
    Anchors, which every sitting repeats, and disturbed runs that were repeated undisturbed do not
    count twice. Excluded runs are counted by reason.

    Parameters
    ----------
    profiles : DataFrame
        Runs; column ``batch``, if there is one, names the recorded batch.
    catalogue : DataFrame
        Headers of the volumes, with the ``problem`` of those that cannot be used, and
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
        if phase_texts is not None:
            identity[PHASES] = phase_texts.get(run["cell_key"], "")
        records.append(identity | row)
    return pd.DataFrame(records), left_out


def censored_subjects(
    profiles: pd.DataFrame, volumes: Collection[str], scales: Collection[str] = ("full_scale",)
) -> pd.DataFrame:
    """Return application and subject of censored runs: those stopped before they completed.

    Their values are lower bounds: they are not in the table but count where a bound is calibrated.
    Failed runs carry no information on time or memory and are not included. A run that was stopped
    and made again with more time or memory is known: it completed.

    Parameters
    ----------
    volumes : collection of str
        Ids of the volumes on record.
    """
    censored = profiles[
        profiles["outcome"].isin(CENSORED_OUTCOMES)
        & profiles["scale"].isin(list(scales))
        & profiles["volume_id"].isin(list(volumes))
    ]
    completed = profiles.loc[profiles["outcome"] == "completed", list(WORK)].drop_duplicates()
    again = censored[list(WORK)].merge(completed, how="left", on=list(WORK), indicator=True)
    censored = censored[(again["_merge"] == "left_only").to_numpy()]
    comparability = Comparability.of(profiles)
    current = [
        comparability.has_version(app, device, version)
        for app, device, version in zip(
            censored["app"], censored["device"], censored["app_version"], strict=True
        )
    ]
    columns = ["app", "subject"]
    return censored.loc[current, columns].drop_duplicates().sort_values(columns, ignore_index=True)


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


def feature_names(table: pd.DataFrame) -> list[str]:
    """Return the feature columns of a table, sorted."""
    return sorted(c for c in table.columns if "." in c or c in CATEGORIES)


def rows_of(table: pd.DataFrame) -> list[Row]:
    """Return the features of a table's rows as `voxcast.features.rows.features` made them."""
    return cast("list[Row]", table[feature_names(table)].to_dict("records"))


def censored_of(path: Path) -> set[tuple[str, str]]:
    """Read the pairs of application and subject of `censored_subjects`."""
    import pandas as pd

    table = pd.read_parquet(path)
    return set(zip(table["app"].astype(str), table["subject"].astype(str), strict=True))


def volumes_of(table: pd.DataFrame, path: Path) -> np.ndarray:
    """Return the small volume of each run of a table, shape (n_runs,).

    A volume whose small volume is not on record is all zeros: the network sees it as unknown.

    Parameters
    ----------
    table : DataFrame
        Runs with their ``volume_id``.
    path : Path
        ``volumes.npz`` of the stage featurize.
    """
    import numpy as np

    ids, stored = read_stacked(path, "run `dvc repro featurize`, which writes it")
    position = {name: n for n, name in enumerate(ids)}
    small = np.zeros(len(table), stored.dtype)
    positions = np.array([position.get(v, -1) for v in table["volume_id"]], dtype=int)
    small[positions >= 0] = stored[positions[positions >= 0]]
    return small
