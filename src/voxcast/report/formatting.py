"""Formatting of numbers for display, with their units and intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.laws.intervals import Interval

TITLES = {"cpu_s": "CPU time", "runtime_s": "wall time", "peak_rss_bytes": "peak memory"}


def percent(value: float) -> str:
    """Write a percentage with two significant digits.

    Examples
    --------
    >>> percent(4.0), percent(0.456), percent(123.4), percent(float("nan"))
    ('4.0 %', '0.46 %', '123 %', 'unknown')
    """
    if not math.isfinite(value):
        return "unknown"
    if abs(value) >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if abs(value) >= 0.95 else f"{value:.2g} %"


def percents(values: Sequence[float]) -> str:
    """Write several percentages, the sign once.

    Examples
    --------
    >>> percents([4.0, 0.456]), percents([1.0, float("nan")])
    ('4.0 · 0.46 %', '1.0 % · unknown')
    """
    texts = [percent(value) for value in values]
    if all(text.endswith(" %") for text in texts):
        return f"{' · '.join(text.removesuffix(' %') for text in texts)} %"
    return " · ".join(dict.fromkeys(texts))


def percent_interval(interval: Interval) -> str:
    """Write a percentage with its interval, if it has one; the lower end is at least 0.

    Examples
    --------
    >>> from voxcast.laws.intervals import Interval
    >>> percent_interval(Interval(9.8, -1.0, 21.0, 3))
    '9.8 % (0 to 21 %)'
    >>> percent_interval(Interval(9.8, -math.inf, math.inf, 1))
    '9.8 %'
    """
    if not interval.bounded:
        return percent(interval.value)
    low = percent(max(interval.low, 0.0)).removesuffix(" %")
    return f"{percent(interval.value)} ({low} to {percent(interval.high)})"


def amount(target: str, value: float) -> str:
    """Write a value of ``target`` with its unit.

    Examples
    --------
    >>> amount("cpu_s", 95), amount("peak_rss_bytes", 1.2e9)
    ('1 min 35 s', '1.20 GB')
    """
    if not math.isfinite(value):
        return "unknown"
    return format_bytes(value) if target.endswith("_bytes") else format_seconds(value)


def amounts(target: str, values: Sequence[float]) -> str:
    """Write several values of ``target`` in one unit, the one of the largest.

    Examples
    --------
    >>> amounts("cpu_s", [0.5, 12.34, 95]), amounts("peak_rss_bytes", [3e8, 1.2e9])
    ('0.50 · 12.3 · 95.0 s', '0.30 · 1.20 GB')
    """
    if not all(math.isfinite(value) for value in values):
        return " · ".join(dict.fromkeys(amount(target, value) for value in values))
    largest = max(values)
    if target.endswith("_bytes"):
        unit = format_bytes(largest).rpartition(" ")[2]
        factor = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0}[unit]
    else:
        steps = ((10 * 3600.0, "h", 3600.0), (600.0, "min", 60.0), (0.0, "s", 1.0))
        unit, factor = next((u, f) for least, u, f in steps if largest >= least)
    return f"{' · '.join(_short(value / factor) for value in values)} {unit}"


def _short(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def heading(text: str) -> str:
    """Capitalise the first letter of a text only.

    Examples
    --------
    >>> heading("wall time"), heading("CPU time")
    ('Wall time', 'CPU time')
    """
    return text[:1].upper() + text[1:]
