"""Characteristics of a volume that its header does not hold: each with unit, cost and source.

The most informative is the extent of the foreground: the mask of ANTs' `get_mask` decides how many
voxels bias correction and segmentation work on. None depends on the intensity scale.

Each characteristic has a version. A table of volumes states the versions of each row as JSON, and
values of another version count as unknown.

A project may add characteristics: functions of a laboratory, declared in its configuration. Only
functions named there are imported, never names from a model.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from voxcast.errors import ConfigError, one_line
from voxcast.files import canonical_json
from voxcast.images.header import HEADER_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pandas as pd

    from voxcast.images.volume import VolumeContents


# The input of a characteristic: the mask takes as long as reading, the rest milliseconds.
Cost = Literal["native mask", "strided grid"]
COSTS: tuple[str, ...] = get_args(Cost)


@dataclass(frozen=True)
class Characteristic:
    """A number that the voxels tell and the header does not.

    Attributes
    ----------
    name : str
        Name of its column; sizes end in ``_voxels`` or ``_ml``.
    meaning : str
        Its meaning, in a few words.
    unit : str
        ``share`` is from 0 to 1, ``ratio`` is not.
    cost : {"native mask", "strided grid"}
        Its input.
    source : str
        The paper or the definition.
    function : callable
        `VolumeContents` to its value.
    version : int
        Raised whenever its values change: values of another version are not used.
    """

    name: str
    meaning: str
    unit: str
    cost: Cost
    source: str
    function: Callable[[VolumeContents], float]
    version: int = 1


def noise_ratio(data: np.ndarray, mask: np.ndarray, median: float) -> float:
    """Return the noise inside of a mask over the median intensity there.

    The second difference of white noise has six times its variance; anatomy mostly has small
    ones, and the median ignores its edges.
    """
    noise = []
    for axis in range(3):
        if data.shape[axis] < 3:
            continue
        middle = data.take(range(1, data.shape[axis] - 1), axis)
        left, right = _ends(data, axis, 2)
        inside = np.logical_and(*_ends(mask, axis, 2))
        if inside.any():
            bend = np.abs((left - 2 * middle + right)[inside])
            noise.append(1.4826 * float(np.median(bend)) / math.sqrt(6))
    return min(noise, default=0.0) / median


def gradient_energy(data: np.ndarray, mask: np.ndarray, median: float) -> float:
    """Return the mean squared step between neighbours inside of a mask, over squared median."""
    energy, pairs = 0.0, 0
    for axis in range(3):
        first, second = _ends(data, axis, 1)
        both = np.logical_and(*_ends(mask, axis, 1))
        step = (second - first)[both]
        energy += float(np.square(step, dtype=np.float64).sum())
        pairs += step.size
    return energy / max(pairs, 1) / median**2


def _ends(array: np.ndarray, axis: int, gap: int) -> tuple[np.ndarray, np.ndarray]:
    first = [slice(None)] * 3
    second = [slice(None)] * 3
    first[axis], second[axis] = slice(None, -gap), slice(gap, None)
    return array[tuple(first)], array[tuple(second)]


def bias_strength(data: np.ndarray, mask: np.ndarray, median: float) -> float:
    """Return the spread of a quadratic fitted to log intensity in a mask."""
    bright = np.argwhere(mask & (data > 0.3 * median))
    if len(bright) < 50:
        return 0.0
    bright = bright[:: max(1, len(bright) // 4000)]  # a quadratic needs no more points
    values = np.log(data[tuple(bright.T)].astype(np.float64))
    x = 2.0 * bright / np.maximum(np.array(data.shape) - 1, 1) - 1.0
    pairs = [x[:, i] * x[:, j] for i in range(3) for j in range(i, 3)]
    basis = np.column_stack([np.ones(len(x)), x, *pairs])
    # Ten normal equations, ridged for flat grids: twenty times as fast as a decomposition.
    square = basis.T @ basis + 1e-6 * len(x) * np.eye(basis.shape[1])
    weights = np.linalg.solve(square, basis.T @ values)
    return float((basis @ weights).std())


def asymmetry(mask: np.ndarray, axcodes: str) -> float:
    """Return the share of a mask, mirrored left to right, that does not overlap, 0 to 1."""
    axis = next(n for n, code in enumerate(axcodes) if code in "LR")
    # About the middle of the mask, because heads are seldom in the middle of the grid.
    filled = np.flatnonzero(mask.any(axis=tuple(n for n in range(3) if n != axis)))
    head = mask.take(range(filled[0], filled[-1] + 1), axis)
    mirrored = np.flip(head, axis)
    return 1.0 - float((head & mirrored).sum()) / float((head | mirrored).sum())


def _surface_ratio(volume: VolumeContents) -> float:
    spacing_mm = volume.coarse.spacing_mm
    voxel_mm3 = math.prod(spacing_mm)
    surface_mm2 = sum(
        count * voxel_mm3 / mm
        for count, mm in zip(volume.foreground.faces, spacing_mm, strict=True)
    )
    sphere_mm2 = (36 * math.pi) ** (1 / 3) * volume.foreground_mm3 ** (2 / 3)
    return float(surface_mm2 / sphere_mm2)


def _component_count(volume: VolumeContents) -> float:
    from scipy import ndimage

    labels, _ = ndimage.label(volume.above_mean)
    return float((np.bincount(labels.ravel())[1:] >= 10).sum())


def _foreground_p10_over_p90(volume: VolumeContents) -> float:
    low, _, high = volume.foreground_percentiles
    return low / (high or 1.0)


def _entropy_bits(volume: VolumeContents) -> float:
    highest = max(volume.percentiles[3] or 1.0, volume.foreground_percentiles[2], 1e-6)
    counts, _ = np.histogram(volume.inside, bins=64, range=(0.0, highest))
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log2(shares)).sum())


def _background_noise_ratio(volume: VolumeContents) -> float:
    outside = volume.intensity[~volume.mask]
    median = float(np.median(outside)) if outside.size else 0.0
    return median / (volume.foreground_percentiles[1] or 1.0)


_ANTS = "mask of ANTs' get_mask, as antspyx 0.6.3 computes it"
_PERCENTILES = "definition; the percentiles of Nyúl and Udupa 1999"
_MASK: Cost = "native mask"
_GRID: Cost = "strided grid"

CHARACTERISTICS: dict[str, Characteristic] = {
    characteristic.name: characteristic
    for characteristic in (
        Characteristic(
            "foreground_voxels", "voxels of the native grid in the foreground mask",
            "voxels", _MASK, _ANTS, lambda v: float(v.foreground.voxels),
        ),
        Characteristic(
            "foreground_ml", "volume of the foreground mask in millilitres",
            "ml", _MASK, _ANTS, lambda v: v.foreground_mm3 / 1000,
        ),
        Characteristic(
            "foreground_fraction", "share of the grid in the foreground mask",
            "share", _MASK, _ANTS, lambda v: v.foreground.voxels / v.grid_voxels,
        ),
        Characteristic(
            "above_mean_fraction", "share of the grid at or above the mean intensity",
            "share", _MASK, "threshold of ANTs' get_mask",
            lambda v: v.foreground.above_mean_voxels / v.grid_voxels,
        ),
        Characteristic(
            "eroded_fraction", "share of the mask that is left in its largest piece after erosion",
            "share", _MASK, _ANTS, lambda v: v.foreground.core_voxels / v.foreground.voxels,
        ),
        Characteristic(
            "foreground_extent_fraction", "share of the grid in the mask's bounding box",
            "share", _MASK, _ANTS, lambda v: math.prod(v.foreground.box_voxels) / v.grid_voxels,
        ),
        Characteristic(
            "foreground_surface_ratio", "sides of voxels around the mask over a sphere's surface",
            "ratio", _MASK, "inverse of sphericity, Wadell 1935", _surface_ratio,
        ),
        Characteristic(
            "component_count", "pieces above the mean of at least 10 voxels of the coarse grid",
            "pieces", _GRID, "definition; 6-connected pieces", _component_count,
        ),
        Characteristic(
            "zero_fraction", "share of the grid at the lowest intensity",
            "share", _GRID, "definition", lambda v: float((v.intensity < 1e-3).mean()),
        ),
        Characteristic(
            "p10_over_p99", "10th over 99th percentile of intensity above the lowest",
            "share", _GRID, _PERCENTILES, lambda v: v.over_top(0),
        ),
        Characteristic(
            "p50_over_p99", "50th over 99th percentile of intensity above the lowest",
            "share", _GRID, _PERCENTILES, lambda v: v.over_top(1),
        ),
        Characteristic(
            "p90_over_p99", "90th over 99th percentile of intensity above the lowest",
            "share", _GRID, _PERCENTILES, lambda v: v.over_top(2),
        ),
        Characteristic(
            "foreground_p10_over_p90", "10th over 90th percentile of intensity in the foreground",
            "share", _GRID, _PERCENTILES, _foreground_p10_over_p90,
        ),
        Characteristic(
            "foreground_variation", "standard deviation over mean intensity in the foreground",
            "ratio", _GRID, "definition; coefficient of variation",
            lambda v: float(v.inside.std()) / (float(v.inside.mean()) or 1.0),
        ),
        Characteristic(
            "entropy_bits", "entropy of 64 intensity classes in the foreground",
            "bits", _GRID, "Shannon 1948", _entropy_bits,
        ),
        Characteristic(
            "noise_ratio", "noise in the foreground over its median intensity",
            "ratio", _GRID, "median of second differences, after Immerkær 1996",
            lambda v: noise_ratio(v.intensity, v.mask, v.median),
        ),
        Characteristic(
            "background_noise_ratio", "median background over median foreground intensity",
            "ratio", _GRID, "definition", _background_noise_ratio,
        ),
        Characteristic(
            "gradient_energy", "mean squared step between neighbours over squared median",
            "ratio", _GRID, "definition",
            lambda v: gradient_energy(v.intensity, v.mask, v.median),
        ),
        Characteristic(
            "bias_strength", "spread of a quadratic fitted to log intensity in the foreground",
            "ratio", _GRID, "polynomial bias field of Van Leemput et al. 1999",
            lambda v: bias_strength(v.intensity, v.mask, v.median),
        ),
        Characteristic(
            "asymmetry", "share of left-right mirrored foreground that does not overlap",
            "share", _GRID, "1 - Jaccard index with the mirror image",
            lambda v: asymmetry(v.mask, v.coarse.axcodes),
        ),
    )
}  # fmt: skip


def characteristics(volume: VolumeContents) -> dict[str, float]:
    """Compute all of `CHARACTERISTICS`: extent on the native grid, intensity on the coarse one.

    Examples
    --------
    The foreground of a cube has lost its corners, as in the mask of ANTs.

    >>> from voxcast.images.foreground import RowBits, foreground
    >>> from voxcast.images.volume import CoarseVolume, VolumeContents
    >>> data = np.zeros((20, 20, 20), np.float32)
    >>> data[5:15, 5:15, 5:15] = 100
    >>> bits = RowBits(data.shape)
    >>> bits.set_rows(0, data.reshape(-1, 20) > 0)
    >>> coarse = CoarseVolume(data, (1, 1, 1), (20, 20, 20), (1.0, 1.0, 1.0), "RAS")
    >>> contents = VolumeContents(coarse, foreground(bits, (1, 1, 1)))
    >>> characteristics(contents)["foreground_voxels"]
    896.0
    """
    return {name: entry.function(volume) for name, entry in CHARACTERISTICS.items()}


VERSIONS = "versions_json"
# Older tables estimated the foreground on the strided grid, and lack this column.
FIRST_STATED = "eroded_fraction"


def versions_of(
    characteristics: Mapping[str, Characteristic] | Mapping[str, LabCharacteristic],
) -> dict[str, int]:
    """Return the versions of the characteristics of voxcast and of others, by name."""
    versions = {name: entry.version for name, entry in CHARACTERISTICS.items()}
    return versions | {name: entry.version for name, entry in characteristics.items()}


def current_rows(rows: pd.DataFrame, versions: Mapping[str, int]) -> pd.DataFrame:
    """Return rows of volumes with the characteristics of ``versions`` alone.

    A value of another version becomes unknown, and so does a missing column; `VERSIONS` then
    states those characteristics that were computed in the required version.
    """
    import pandas as pd

    texts = rows[VERSIONS] if VERSIONS in rows else pd.Series([None] * len(rows), rows.index)
    is_first = rows[FIRST_STATED].notna() if FIRST_STATED in rows else texts.notna() & False
    stated = [
        _stated(text, first) for text, first in zip(texts, is_first.astype(bool), strict=True)
    ]
    columns = {}
    for name, version in versions.items():
        valid = [name in rows and of_row.get(name) == version for of_row in stated]
        values = rows[name] if name in rows else pd.Series(float("nan"), rows.index)
        columns[name] = values.astype(float).where(pd.Series(valid, rows.index, dtype=bool))
    texts_now = [
        canonical_json({n: v for n, v in versions.items() if n in rows and of_row.get(n) == v})
        for of_row in stated
    ]
    others = [name for name in rows if name not in columns and name != VERSIONS]
    return pd.concat(
        [
            rows[others],
            pd.DataFrame(columns, rows.index),
            pd.Series(texts_now, rows.index, name=VERSIONS, dtype=object),
        ],
        axis=1,
    )


def is_current(text: str, versions: Mapping[str, int]) -> bool:
    """Whether all characteristics of a row were computed in these versions."""
    stated = _stated(text, is_first=False)
    return all(stated.get(name) == version for name, version in versions.items())


def _stated(text: object, is_first: bool) -> dict[str, int]:
    if isinstance(text, str) and text:
        content = json.loads(text)
        return dict(content) if isinstance(content, dict) else {}
    return dict.fromkeys(CHARACTERISTICS, 1) if is_first else {}


KEY = "features.characteristics"
LARGEST = 1e15
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class LabCharacteristic:
    """A characteristic as the configuration declares it.

    Attributes
    ----------
    name, unit, cost, source, version
        See `voxcast.images.characteristics.Characteristic`.
    function : str
        ``module:function``; the function takes `voxcast.images.volume.VolumeContents` and
        returns a number.
    """

    name: str
    function: str
    unit: str
    cost: Cost
    source: str
    version: int


def check_lab_characteristics(declared: Mapping[str, LabCharacteristic]) -> None:
    """Check names, functions and versions; nothing is imported.

    Raises
    ------
    ConfigError
        If one cannot be used.
    """
    for name, entry in declared.items():
        where = f"{KEY}.{name}"
        if not _NAME.fullmatch(name) or name in CHARACTERISTICS or name in HEADER_COLUMNS:
            then = "use small letters, digits and _, and no name that voxcast has"
            raise ConfigError("cannot be the name of a characteristic", where, then)
        if not _FUNCTION.fullmatch(entry.function):
            raise ConfigError("needs module:function", f"{where}.function", "e.g. lesions:load_ml")
        if entry.version < 1:
            raise ConfigError("must be at least 1", f"{where}.version")


def load_lab_characteristics(
    declared: Mapping[str, LabCharacteristic], project: Path
) -> dict[str, Characteristic]:
    """Import the functions of declared characteristics.

    Parameters
    ----------
    project : Path
        Folder in which modules are looked for, after all that is installed.

    Raises
    ------
    ConfigError
        If a module or its function is missing, or the module cannot be imported.
    """
    return {
        name: Characteristic(
            name, entry.source, entry.unit, entry.cost, entry.source,
            _function(entry, project), entry.version,
        )
        for name, entry in declared.items()
    }  # fmt: skip


def _function(entry: LabCharacteristic, project: Path) -> Callable[[VolumeContents], float]:
    module, _, name = entry.function.partition(":")
    where = f"{KEY}.{entry.name}.function"
    folder = str(project.resolve())
    if folder not in sys.path:
        sys.path.append(folder)  # last: nothing in the project hides an installed package
    try:
        function = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # the code of a laboratory may raise anything
        problem = f"{module} cannot be imported ({type(error).__name__}: {one_line(error)})"
        raise ConfigError(problem[:300], where, f"modules are looked for in {folder}") from None
    if not callable(function):
        raise ConfigError(f"{module} has no function {name}", where)
    checked: Callable[[VolumeContents], float] = function
    return checked


def lab_values(
    entries: Mapping[str, Characteristic], volume: VolumeContents
) -> tuple[dict[str, float], dict[str, str]]:
    """Compute the characteristics of a laboratory.

    Returns
    -------
    values : dict of str to float
        NaN where a function fails, or returns no finite number.
    failures : dict of str to str
        Why, by name.
    """
    values: dict[str, float] = {}
    failures: dict[str, str] = {}
    for name, entry in entries.items():
        values[name] = math.nan
        try:
            value: object = entry.function(volume)
        except Exception as error:  # one image must not end the reading of other images
            failures[name] = f"{type(error).__name__}: {one_line(error)}"[:200]
            continue
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if is_number and abs(float(value)) <= LARGEST:  # type: ignore[arg-type]  # false for NaN
            values[name] = float(value)  # type: ignore[arg-type]
        else:
            failures[name] = f"returned {value!r:.80}, not a finite number"
    return values, failures
