"""Characteristics that a project adds: functions of a laboratory, declared in the configuration.

Only functions that the project's configuration names are imported, never names from a model.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ConfigError, one_line
from voxcast.images.characteristics import CHARACTERISTICS, Characteristic, Cost
from voxcast.images.header import HEADER_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from voxcast.images.volume import VolumeContents

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
