"""The parameters of a run: the application's own, scaled down or not, and overrides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.records import App, Scale


def merged_parameters(app: App, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of ``app`` with ``overrides`` put in.

    Raises
    ------
    ConfigError
        If the application has no such parameter.
    """
    unknown = sorted(set(overrides) - set(app.parameters))
    if unknown:
        names = ", ".join(sorted(app.parameters)) or "none"
        where = f"{app.name}.{unknown[0]}"
        raise ConfigError("unknown parameter", where, f"known are: {names}")
    return {**app.parameters, **overrides}


def scaled_parameters(app: App, scale: Scale, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run at ``scale``; ``overrides`` win over what scales it down.

    Raises
    ------
    ConfigError
        If the application has no such parameter, the value is not of its kind, or nothing scales
        it down: such a run would be a full-scale one under a wrong name.
    """
    for name, value in overrides.items():
        _check_value(app, name, value)
    if scale == "full_scale":
        return merged_parameters(app, overrides)
    if not app.scaled_down:
        then = f"set scaled_down in conf/app/{app.name}.yaml, or run it at full scale"
        raise ConfigError("cannot be scaled down", app.name, then)
    return merged_parameters(app, {**app.scaled_down, **overrides})


def _check_value(app: App, name: str, value: Any) -> None:
    """Refuse a value that the application would only reject, or hang on, once it runs."""
    if name not in app.parameters:
        return  # reported when parameters are merged
    usual, where = app.parameters[name], f"{app.name}.{name}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(usual, bool) or not isinstance(usual, int | float | str):
        kind_holds, kind = isinstance(value, type(usual)) or usual is None, type(usual).__name__
    elif isinstance(usual, str):
        kind_holds, kind = isinstance(value, str), "a text"
    elif isinstance(usual, int):
        kind_holds, kind = number and float(value).is_integer(), "a whole number"
    else:
        kind_holds, kind = number and math.isfinite(value), "a number"
    if not kind_holds:
        raise ConfigError(f"needs {kind}, not {value!r}", where)
    texts = [choice for choice in app.ranges.get(name, ()) if isinstance(choice, str)]
    if texts and value not in texts:
        raise ConfigError(f"is not one of {', '.join(texts)}: {value!r}", where)
    if number and not isinstance(usual, str) and usual >= 0:
        minimum = "above zero" if isinstance(usual, int) and usual > 0 else "zero or more"
        if value < 0 or (value == 0 and minimum == "above zero"):
            raise ConfigError(f"must be {minimum}, not {value!r}", where)
