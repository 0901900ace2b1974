"""Features in words: their natural names, values and units, for messages and the report.

The columns of a model are logarithms and millions; people read voxels and CPUs. Nothing here is
used to predict.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.quantities import format_voxels

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of these only integers exist.
COUNTS = frozenset({"cpus", "gpus", "is_float"})


@dataclass(frozen=True)
class Quantity:
    """How a quantity is written.

    Attributes
    ----------
    title : str
        As the head of a column or an axis.
    phrase : str
        With ``{}`` for the value, to follow "for": ``a field of view of {}``.
    unit : str
        Follows a value; empty for a number or where ``phrase`` holds the unit.
    subject : str
        The quantity that is larger or smaller; empty where only a range can be stated.
    """

    title: str
    phrase: str = ""
    unit: str = ""
    subject: str = ""


QUANTITIES = {
    "voxels": Quantity("voxels", "{}", "voxels", "this volume"),
    "working_voxels": Quantity("voxels after resampling", "{} after resampling", "voxels"),
    "foreground_voxels": Quantity(
        "voxels in the foreground", "{} in the foreground", "voxels", "the foreground"
    ),
    "foreground_ml": Quantity("volume of the foreground", "a foreground of {}", "ml"),
    "extent_mm3": Quantity("field of view", "a field of view of {}", "mm³"),
    "spacing_min_mm": Quantity("smallest spacing", "a smallest spacing of {}", "mm"),
    "spacing_max_mm": Quantity("largest spacing", "a largest spacing of {}", "mm"),
    "anisotropy": Quantity("largest over smallest spacing", "a ratio of spacings of {}"),
    "obliqueness_deg": Quantity("obliqueness", "an obliqueness of {}", "degrees"),
    "bytes_per_voxel": Quantity("bytes per voxel", "{} per voxel in memory", "bytes"),
    "file_bytes_per_voxel": Quantity("file size per voxel", "{} per voxel in the file", "bytes"),
    "is_float": Quantity("floating-point voxels", "{} voxels"),
    "cpus": Quantity("CPUs", "{}", "CPUs"),
    "gpus": Quantity("GPUs", "{}", "GPUs"),
}


def plain_name(column: str) -> str:
    """Return the name of a column's quantity, without source and scale.

    Examples
    --------
    >>> plain_name("header.log_working_voxels"), plain_name("content.foreground_megavoxels")
    ('working_voxels', 'foreground_voxels')
    >>> plain_name("allocation.log2_cpus"), plain_name("parameter.log_level")
    ('cpus', 'log_level')
    """
    source, _, name = column.rpartition(".") if "." in column else ("", "", column)
    if source in ("parameter", "column"):
        return name
    return re.sub(r"^log2?_", "", name).replace("megavoxels", "voxels")


def stem(column: str) -> str:
    """Return the name that columns with the same information share.

    Examples
    --------
    >>> {stem(n) for n in ("header.log_voxels", "header.megavoxels", "header.log_working_voxels")}
    {'voxels'}
    >>> stem("content.log_foreground_ml"), stem("allocation.log2_cpus")
    ('foreground_voxels', 'cpus')
    """
    return re.sub(r"_ml$", "_voxels", plain_name(column).replace("working_", ""))


def plainest(columns: list[str]) -> str:
    """Return the column that is easiest to read: no logarithm, not resampled, in voxels."""
    return min(columns, key=lambda c: ("log" in c, "working" in c, c.endswith("_ml"), c))


def natural(column: str, value: float) -> float:
    """Return a column's value in the unit of its quantity.

    Examples
    --------
    >>> natural("allocation.log2_cpus", 1.0), natural("header.megavoxels", 9.5)
    (2.0, 9500000.0)
    """
    source, _, name = column.partition(".")
    if source in ("parameter", "column"):
        return value
    if name.startswith("log2_"):
        return math.exp2(value)
    if name.startswith("log_"):
        return math.expm1(value) if source == "content" else math.exp(value)
    return value * 1e6 if name.endswith("megavoxels") else value


def usual(column: str, median: float) -> float:
    """Return a column's usual value: its median, or the next value that exists.

    Examples
    --------
    >>> usual("allocation.log2_cpus", 0.5)  # half of the runs on 1 CPU, half on 2
    1.0
    """
    if plain_name(column) not in COUNTS:
        return median
    count = math.ceil(natural(column, median) - 1e-9)
    return math.log2(count) if column == "allocation.log2_cpus" else float(count)


def quantity_title(name: str) -> str:
    """Return the title of a quantity by its plain name.

    Examples
    --------
    >>> quantity_title("cpus"), quantity_title("bias_strength")
    ('CPUs', 'bias strength')
    """
    return QUANTITIES[name].title if name in QUANTITIES else name.replace("_", " ")


def amount(name: str, value: float) -> str:
    """Write a value of a quantity with its unit.

    Examples
    --------
    >>> amount("cpus", 1), amount("foreground_voxels", 1.52e6), amount("spacing_min_mm", 0.8)
    ('1 CPU', '1.52 million voxels', '0.8 mm')
    """
    number, unit = _parts(name, value)
    return f"{number} {unit}".rstrip()


def _parts(name: str, value: float) -> tuple[str, str]:
    """Return a value as a number and its unit."""
    unit = QUANTITIES[name].unit if name in QUANTITIES else ""
    if unit == "voxels":
        return format_voxels(value).removesuffix(f" {unit}"), unit
    if name == "is_float":
        return ("floating-point" if value else "integer"), unit
    if name == "extent_mm3":
        return f"{value / 1e6:.3g}", "litres"
    return f"{value:.4g}", unit.removesuffix("s") if value == 1 else unit


def value_range(name: str, low: float, high: float) -> str:
    """Write a range of values of a quantity, the unit once.

    Examples
    --------
    >>> value_range("cpus", 1, 2), value_range("foreground_voxels", 1.2e6, 2.4e6)
    ('1 to 2 CPUs', '1.20 million to 2.40 million voxels')
    """
    return f"{_parts(name, low)[0]} to {amount(name, high)}"


def change(name: str, factor: float, value: float, usual_value: float) -> str:
    """Write how much a feature changed a prediction, with its value and the usual one.

    Examples
    --------
    >>> change("cpus", 0.96, 1, 2)
    '-4 % for 1 CPU (usual: 2)'
    >>> change("foreground_voxels", 1.21, 2.5e6, 2.0e6)
    '+21 % for 2.50 million voxels in the foreground (usual: 2.00 million)'
    >>> change("n4_iterations", 1.1, 60, 50)
    '+10 % for n4_iterations 60 (usual: 50)'
    """
    phrase = QUANTITIES[name].phrase if name in QUANTITIES else f"{name} {{}}"
    usual_number, _ = _parts(name, usual_value)
    return (
        f"{100 * (factor - 1):+.0f} % for {phrase.format(amount(name, value))} "
        f"(usual: {usual_number})"
    )


def outside(column: str, value: float | str | None, low: float | None, high: float | None) -> str:
    """Describe how a question lies outside everything measured.

    Parameters
    ----------
    column : str
        Name of the feature.
    value : float, str or None
        Its value, a number on the scale of the column, or a text that never occurred; None or NaN
        if it is missing, which it never was in the measured runs.
    low, high : float or None
        Range of the column over the measured runs; None for a text.

    Examples
    --------
    >>> outside("header.megavoxels", 42.0, 2.0, 10.5)
    'this volume is 4.0 times larger than any that was measured (42.0 million voxels, at most 10.5 million)'
    >>> outside("allocation.log2_cpus", 4.0, 0.0, 1.0)
    '16 CPUs were not measured (1 to 2 were)'
    >>> outside("parameter.n4_iterations", 200.0, 50.0, 50.0)
    'n4_iterations is 200 (measured: 50)'
    >>> outside("parameter.network", "vgg16", None, None)
    'network vgg16 was not measured'
    >>> outside("parameter.network", None, None, None)
    'network is missing; all runs that were measured have it'
    """  # noqa: E501
    name = plain_name(column)
    noun = {"app": "the application", "device": "the device"}.get(column, quantity_title(name))
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return f"{noun} is missing; all runs that were measured have it"
    if isinstance(value, str) or low is None or high is None:
        return f"{noun} {value} was not measured"
    x, least, most = (natural(column, v) for v in (value, low, high))
    quantity = QUANTITIES.get(name)
    if quantity is not None and quantity.subject and least > 0 and x > 0:
        return _compared(name, quantity, x, least, most)
    span = f"{least:.4g}" if least == most else f"{least:.4g} to {most:.4g}"
    if name in ("cpus", "gpus"):
        verbs = ("was", "were")
        return f"{amount(name, x)} {verbs[x != 1]} not measured ({span} {verbs[most != 1]})"
    return f"{quantity_title(name) if quantity else name} is {amount(name, x)} (measured: {span})"


def outside_together(values: Mapping[str, float | str]) -> str:
    """Write which values a question combines that were measured apart only.

    Examples
    --------
    >>> outside_together({"content.foreground_megavoxels": 2.5, "allocation.log2_cpus": 0.0})
    '2.50 million voxels in the foreground with 1 CPU were not measured together'
    >>> outside_together({"parameter.n4_iterations": 60.0, "allocation.log2_cpus": 1.0})
    'n4_iterations 60 with 2 CPUs were not measured together'
    """
    phrases = []
    for column, value in values.items():
        name = plain_name(column)
        phrase = QUANTITIES[name].phrase if name in QUANTITIES else f"{name} {{}}"
        phrases.append(phrase.format(amount(name, natural(column, float(value)))))
    return f"{' with '.join(phrases)} were not measured together"


def _compared(name: str, quantity: Quantity, x: float, least: float, most: float) -> str:
    larger = x > most
    ratio, word = (x / most, "larger") if larger else (least / x, "smaller")
    times = f"{ratio:.1f} times" if ratio >= 1.95 else f"{100 * (ratio - 1):.0f} %"
    if not larger and ratio < 1.95:
        times = f"{100 * (1 - x / least):.0f} %"
    text = f"{quantity.subject} is {times} {word} than any that was measured"
    edge, _ = _parts(name, most if larger else least)
    return f"{text} ({amount(name, x)}, {'at most' if larger else 'at least'} {edge})"
