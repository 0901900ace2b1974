"""Which values of parameters are tried together: every combination, or a Latin hypercube.

A parameter's values are a list, or a range ``{low, high}``, drawn on a log scale with ``log``.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError
from voxcast.files import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGE_KEYS = {"low", "high", "log"}


def product(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the lists in ``values``; without parameters, one empty one.

    Raises
    ------
    ConfigError
        If a value is a range, which has no full product.

    Examples
    --------
    >>> product({"a": [1, 2], "b": ["x"]})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    for name, choice in values.items():
        if not _listed(name, choice):
            raise ConfigError("is a range, which has no full product", name, "set sample")
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def latin_hypercube(values: Mapping[str, Any], count: int, seed: object) -> list[dict[str, Any]]:
    """Return ``count`` points of which each parameter takes one value in each of ``count`` strata.

    Parameters
    ----------
    values : mapping
        A range is cut into strata of equal width; the values of a list come equally often.
    seed : object
        Any value that JSON can hold. The strata of a parameter do not depend on the others.

    Examples
    --------
    >>> points = latin_hypercube({"a": {"low": 0.0, "high": 4.0}}, 4, seed=1)
    >>> sorted(int(point["a"]) for point in points)
    [0, 1, 2, 3]
    """
    columns = {}
    for name, choice in values.items():
        # Not a library's generator: the points identify recorded runs and must never change.
        digest = hashlib.sha256(canonical_json([seed, name, count]).encode()).digest()
        drawn = random.Random(digest)  # noqa: S311
        strata = list(range(count))
        drawn.shuffle(strata)
        # The middle of each for a list, so that values come equally often.
        listed = _listed(name, choice)
        shares = [(s + (0.5 if listed else drawn.random())) / count for s in strata]
        columns[name] = [_value(name, choice, share) for share in shares]
    return [{name: column[n] for name, column in columns.items()} for n in range(count)]


def _value(name: str, choice: Any, share: float) -> Any:
    if _listed(name, choice):
        return choice[int(share * len(choice))]
    low, high = choice["low"], choice["high"]
    if choice.get("log", False):
        value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        value = low + share * (high - low)
    if isinstance(low, int) and isinstance(high, int):
        # Every integer is a stratum, the highest included.
        rounded = round(value) if choice.get("log", False) else low + int(share * (high - low + 1))
        return min(max(rounded, low), high)
    return float(f"{value:.6g}")  # short enough to read and to type


def _listed(name: str, choice: Any) -> bool:
    """Tell a list from a range, and refuse what is neither."""
    if isinstance(choice, list | tuple):
        if not choice:
            raise ConfigError("has no values", name)
        return True
    if not isinstance(choice, dict) or not {"low", "high"} <= set(choice) <= RANGE_KEYS:
        raise ConfigError(f"needs a list or {{low, high, log}}, not {choice!r}", name)
    low, high = choice["low"], choice["high"]
    numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in (low, high))
    if not numbers or not low <= high or (choice.get("log", False) and low <= 0):
        raise ConfigError(f"is not a range: {choice!r}", name, "low <= high, above 0 with log")
    return False
