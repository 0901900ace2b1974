"""The training table: one row per completed run, with features and targets, and its split.

Column names: identity and configuration as in the profiles, targets as in `voxcast.records`,
features with the prefixes of `voxcast.features.rows`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from voxcast.errors import TableError
from voxcast.features.rows import CATEGORIES, features
from voxcast.features.split import side
from voxcast.files import sha256_of
from voxcast.history.repeats import settled
from voxcast.records import TARGETS, Configuration

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from voxcast.features.rows import Row

IDENTITY = (
    "cell_key", "volume_id", "subject", "app", "device", "cpus", "gpus", "scale", "repeat",
    "host_class",
)  # fmt: skip


CENSORED_OUTCOMES = ("timeout", "out_of_memory", "preempted", "stalled")
PROBES = ("probe_cpu", "probe_membw", "probe_disk")


@dataclass(frozen=True)
class Sides:
    """The two sides of the table, and the number of unusable runs by reason."""

    train: pd.DataFrame
    test: pd.DataFrame
    left_out: dict[str, int]


def build_table(
    profiles: pd.DataFrame,
    catalogue: pd.DataFrame,
    characteristics: pd.DataFrame,
    *,
    scales: Collection[str] = ("full_scale",),
    without_image: bool = False,
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Join profiles with headers and characteristics of their volumes.

    Censored runs (every outcome but ``completed``) are lower bounds and never become labels. Runs
    of another scale, of an older version of their application, or whose memory was measured by
    another method than most, are not comparable and are excluded. Anchors, which every sitting
    repeats, and disturbed runs that were repeated undisturbed do not count twice. Excluded runs
    are counted by reason.

    Parameters
    ----------
    profiles, catalogue, characteristics : DataFrame
        Runs; headers and characteristics of the volumes.
    scales : collection of str
        Runs at other scales are excluded.
    without_image : bool
        Whether to include runs of applications that take no image. Each set of parameters is a
        subject of such runs.

    Returns
    -------
    table : DataFrame
        One row per usable run, sorted by cell key.
    left_out : dict of str to int
        Number of excluded runs, by reason.
    """
    import pandas as pd

    headers = catalogue[catalogue["problem"].isna()].drop_duplicates("volume_id")
    by_volume = _by_volume(headers)
    contents = _by_volume(characteristics.drop_duplicates("volume_id"))
    records = []
    left_out: dict[str, int] = {}
    versions, method = _versions(profiles), _method(profiles)
    completed = profiles[profiles["outcome"] == "completed"]
    settled_keys = set(settled(completed)["cell_key"])
    probes = _probes(profiles)
    for run in _records(profiles.sort_values("cell_key")):
        reason = _unusable(run, by_volume, without_image) or _not_comparable(run, versions, method)
        if not reason and run["scale"] not in scales:
            reason = f"scale: {run['scale']}"
        if not reason and run["cell_key"] not in settled_keys:
            reason = "anchor, or disturbed and made again"
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        volume_id = run["volume_id"]
        row = features(
            by_volume[volume_id] if volume_id else None,
            contents[volume_id] if volume_id else None,
            run["app"],
            json.loads(run["parameters_json"]),
            Configuration(run["device"], int(run["cpus"]), int(run["gpus"])),
            probes.get(str(run.get("host_id"))),
        )
        identity = {n: run[n] for n in IDENTITY} | {t: run[t] for t in TARGETS}
        if not volume_id:
            identity["subject"] = sha256_of(run["parameters_json"])[:12]
        records.append(identity | row)
    return pd.DataFrame(records), left_out


def censored_subjects(
    profiles: pd.DataFrame, volumes: Collection[str], scales: Collection[str] = ("full_scale",)
) -> pd.DataFrame:
    """Return application and subject of censored runs: those stopped before they completed.

    Their values are lower bounds: they are not in the table but count where a bound is calibrated.
    Failed runs carry no information on time or memory and are not included.

    Parameters
    ----------
    volumes : collection of str
        Ids of the volumes in the catalogue.
    """
    censored = profiles[
        profiles["outcome"].isin(CENSORED_OUTCOMES)
        & profiles["scale"].isin(list(scales))
        & profiles["volume_id"].isin(list(volumes))
    ]
    versions = _versions(profiles)
    current = [
        versions[app, device] == version
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


def _probes(profiles: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the probes of each machine: the median over its sittings."""
    if not set(PROBES) <= set(profiles.columns):
        return {}
    medians = profiles.groupby("host_id")[list(PROBES)].median()
    return cast("dict[str, dict[str, float]]", medians.to_dict("index"))


def _unusable(
    run: Mapping[str, Any], volumes: Mapping[str, Any], without_image: bool
) -> str | None:
    import pandas as pd

    if run["outcome"] != "completed":
        return f"censored: {run['outcome']}"
    if not run["volume_id"] and not without_image:
        return "an application without an image"
    if run["volume_id"] and run["volume_id"] not in volumes:
        return "volume not in this catalogue"
    if not all(not pd.isna(run[t]) and float(run[t]) > 0 for t in TARGETS):
        return "a target is unknown or not positive"
    return None


def _not_comparable(
    run: Mapping[str, Any], versions: Mapping[tuple[str, str], str], method: str
) -> str | None:
    if run["app_version"] != versions[run["app"], run["device"]]:
        return "an older version of the application"
    if run["memory_method"] != method:
        return f"memory by another method: {run['memory_method']}"
    return None


def _versions(profiles: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return the most recently run version of each application on each device."""
    ordered = profiles.sort_values("started_at", kind="stable")
    return {
        (str(app), str(device)): str(versions.iloc[-1])
        for (app, device), versions in ordered.groupby(["app", "device"])["app_version"]
    }


def _method(profiles: pd.DataFrame) -> str:
    """Return the most frequent method of measuring memory; of equals the first."""
    methods = profiles["memory_method"].mode()
    return str(methods.iloc[0]) if len(methods) else ""


def split(
    table: pd.DataFrame, left_out: dict[str, int], split_seed: int, test_fraction: float
) -> Sides:
    """Split the table by subject.

    Raises
    ------
    TableError
        If there are fewer than two subjects on the training side.
    """
    if table.empty:
        raise TableError("no usable completed run", "data/runs", "see outcome in profiles.parquet")
    sides = table["subject"].map(lambda s: side(str(s), split_seed, test_fraction))
    train, test = (table[sides == name].reset_index(drop=True) for name in ("train", "test"))
    if train["subject"].nunique() < 2:
        raise TableError(
            f"training needs two subjects, not {train['subject'].nunique()}",
            "data/runs",
            "measure more volumes",
        )
    return Sides(train, test, left_out)


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
    """Return the small volume of each run of a table, shape (n_runs, p, p, p), float16.

    Parameters
    ----------
    table : DataFrame
        Runs with their ``volume_id``.
    path : Path
        ``volumes.npz`` of the catalogue.
    """
    import numpy as np

    with np.load(path, allow_pickle=False) as content:
        position = {str(name): n for n, name in enumerate(content["volume_id"])}
        small: np.ndarray = content["volumes"][[position[v] for v in table["volume_id"]]]
    return small
