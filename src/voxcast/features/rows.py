"""The features of runs, computed by the same function for training and serving, and their table.

They are known before the run: the header, the voxels' characteristics, the
application with its parameters, and the allocation. Nothing measured during the run is used. The
prefix of a name is its source, so that a model can exclude features of the voxels: ``header.``,
``content.``, ``allocation.``, ``parameter.``. ``app``, ``device`` and text parameters are
categories. The machine is not a feature: `voxcast.models.speeds` are estimated from runs.

Other columns of the table are identity and configuration as in the profiles, and targets as in
`voxcast.records`. A hash of the subject's name decides which side of the split a run is on.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from voxcast.errors import TableError
from voxcast.images.header import SHAPE_COLUMNS, SPACING_COLUMNS
from voxcast.images.network_volume import read_stacked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from voxcast.records import Configuration


CATEGORIES = ("app", "device")
CONTENT = "content."

Row = dict[str, float | str]


def features(
    header: Mapping[str, Any] | None,
    characteristics: Mapping[str, float] | None,
    app: str,
    parameters: Mapping[str, Any],
    configuration: Configuration,
) -> Row:
    """Return the features of running ``app`` on one volume in one configuration.

    Parameters
    ----------
    header : mapping or None
        Columns of the catalogue (`voxcast.images.header.ImageHeader.columns`); None for an
        application without an image.
    characteristics : mapping or None
        Columns of `voxcast.images.characteristics.characteristics`; None when only the header is
        known, which excludes all ``content.`` features.
    app : str
        Name of the application.
    parameters : mapping
        Its parameters. If ``spacing_mm`` is above zero, the application resamples the image to
        this spacing, and the size of the resampled grid is a feature.
    configuration : Configuration
        The allocation.

    Raises
    ------
    TableError
        If a header column is missing or not a positive number.
    """
    row: Row = {"app": app, "device": configuration.device}
    if header is not None:
        row |= _header(header, parameters.get("spacing_mm"))
    if characteristics is not None:
        for name, value in characteristics.items():
            row |= _content(name, value)
    row["allocation.log2_cpus"] = math.log2(configuration.cpus)
    row["allocation.gpus"] = float(configuration.gpus)
    for name, value in parameters.items():
        if isinstance(value, bool | int | float):
            row[f"parameter.{name}"] = float(value)
        elif isinstance(value, str):
            row[f"parameter.{name}"] = value
    return row


def content_names(characteristic: str) -> tuple[str, ...]:
    """Return the names of the features of a characteristic.

    Examples
    --------
    >>> content_names("foreground_voxels")
    ('content.log_foreground_voxels', 'content.foreground_megavoxels')
    >>> content_names("noise_ratio")
    ('content.noise_ratio',)
    """
    return tuple(_content(characteristic, 0.0))


def _content(name: str, value: float) -> Row:
    """Return sizes for additive laws, and their logarithms for multiplicative ones."""
    row: Row = {}
    if name.endswith(("_voxels", "_ml")):
        row[f"{CONTENT}log_{name}"] = math.log1p(max(value, 0.0))
    if name.endswith("_voxels"):
        row[f"{CONTENT}{name.replace('_voxels', '_megavoxels')}"] = value / 1e6
    elif not name.endswith("_ml"):
        row[f"{CONTENT}{name}"] = float(value)
    return row


def _header(header: Mapping[str, Any], working_mm: Any) -> Row:
    shape = [_positive(header, name) for name in SHAPE_COLUMNS]
    spacing = [_positive(header, name) for name in SPACING_COLUMNS]
    file_size = _positive(header, "file_size_bytes")
    voxels = math.prod(shape)
    extent_mm3 = voxels * math.prod(spacing)
    working = voxels
    if isinstance(working_mm, int | float) and working_mm > 0:
        # Coarser images are not resampled; the cube of a smaller number is 0.
        working = min(voxels, extent_mm3 / max(working_mm, 1e-100) ** 3)
    return {
        "header.log_voxels": math.log(voxels),
        "header.log_working_voxels": math.log(working),
        "header.megavoxels": voxels / 1e6,
        "header.log_extent_mm3": math.log(extent_mm3),
        "header.spacing_min_mm": min(spacing),
        "header.spacing_max_mm": max(spacing),
        "header.log_anisotropy": math.log(max(spacing) / min(spacing)),
        "header.obliqueness_deg": float(header.get("obliqueness_deg") or 0.0),
        "header.bytes_per_voxel": _positive(header, "bytes_per_voxel"),
        "header.is_float": float(str(header.get("dtype", "")).startswith("float")),
        # The compression ratio depends on noise and background.
        "header.log_file_bytes_per_voxel": math.log(file_size / voxels),
    }


def _positive(header: Mapping[str, Any], name: str) -> float:
    try:
        value = float(header[name])
    except (KeyError, TypeError, ValueError):
        raise TableError("header column is missing or not a number", name) from None
    if not (math.isfinite(value) and value > 0):
        raise TableError(f"must be positive, not {value}", name)
    return value


MARK = "×"
# A column of a table may hold the mark itself.
_BETWEEN = re.compile(rf"{MARK}(?=(?:allocation|parameter|column|header|content)\.)")


def combination(first: str, second: str) -> str:
    """Return the name of the combination of two features."""
    return f"{first}{MARK}{second}"


def members(name: str) -> tuple[str, ...]:
    """Return the features of a combination; of any other name, itself.

    Examples
    --------
    >>> members(combination("column.a×b", "column.c d")), members("column.a×b")
    (('column.a×b', 'column.c d'), ('column.a×b',))
    """
    return tuple(_BETWEEN.split(name))


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


FULL, DOWN = "full_scale", "scaled_down"
# The work of a run: the same again takes the same.
WORK = ("app", "app_version", "volume_id", "parameters_json", "device", "cpus", "gpus", "scale")
CENSORED_OUTCOMES = (
    "timeout", "out_of_memory", "preempted", "stalled", "cancelled", "node_failure",
)  # fmt: skip


def feature_names(table: pd.DataFrame) -> list[str]:
    """Return the feature columns of a table, sorted."""
    return sorted(c for c in table.columns if "." in c or c in CATEGORIES)


def rows_of(table: pd.DataFrame) -> list[Row]:
    """Return the features of a table's rows as `voxcast.features.rows.features` made them."""
    return cast("list[Row]", table[feature_names(table)].to_dict("records"))


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


SPEED_DEVIATION = "speed_deviation"
KERNEL_S = "kernel_s"  # CPU time of the metronome's kernels before a run
TIMES = ("cpu_s", "runtime_s")  # which follow the speed of the machine


def tables_by_app(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each application, sorted by name, with positions from 0.

    Columns that are empty for an application, such as the parameters of others, are left out.
    """
    return {
        str(app): rows.dropna(axis="columns", how="all").reset_index(drop=True)
        for app, rows in table.groupby("app", sort=True)
    }


Side = Literal["train", "test"]
# Of fewer subjects a quarter would be less than ten. Those tell little, and would be missed where
# models learn and bounds are calibrated: cross-validation then judges on all.
MIN_SUBJECTS = 40


@dataclass(frozen=True)
class Sides:
    """The two sides of the table.

    Attributes
    ----------
    train, test : DataFrame
        Rows of the table.
    not_judged : frozenset of str
        Applications with so few subjects that all are on the training side.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    not_judged: frozenset[str]


def side(subject: str, split_seed: int, test_fraction: float) -> Side:
    """Return the side of ``subject``; it never changes as the history grows.

    Examples
    --------
    >>> side("0001", 5, 0.25) == side("0001", 5, 0.25)
    True
    """
    digest = hashlib.sha256(f"{split_seed}:{subject}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if position < test_fraction else "train"


def split(table: pd.DataFrame, split_seed: int, test_fraction: float) -> Sides:
    """Split the table by subject, for each application by itself.

    Subjects of different image sets that share a label are one group: they may be the same person,
    and a person on both sides would make the test too easy. An application with fewer than
    `MIN_SUBJECTS` has all of them on the training side, and is judged by cross-validation alone.
    When more subjects are on record, each is on its own side.

    Parameters
    ----------
    table : DataFrame
        Runs with ``app`` and ``subject``.
    """
    sides = table["subject"].map(lambda s: side(str(s), split_seed, test_fraction))
    subjects = table["subject"].groupby(table["app"]).nunique()
    few = subjects[subjects < MIN_SUBJECTS].index
    sides = sides.mask(table["app"].isin(few), "train")
    train, test = (table[sides == name].reset_index(drop=True) for name in ("train", "test"))
    return Sides(train, test, frozenset(map(str, few)))
