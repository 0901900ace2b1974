"""The parameters of a run: the application's defaults, scaled down or not, and overrides."""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from voxcast.records import App, Scale


def parameter_values(
    texts: Iterable[str], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return parameters from texts ``NAME=VALUE`` of a command line.

    Parameters
    ----------
    texts : iterable of str
        Values are numbers, ``true`` and ``false``, or texts.
    defaults : mapping, optional
        Parameters of the application. Where the default is a text, the value is one; where it is
        a list or an object, the value is read as YAML.

    Raises
    ------
    ConfigError
        If a text has no ``=``.

    Examples
    --------
    >>> parameter_values(["iterations=30", "tolerance=1e-3", "mask=true", "kernel=cubic"])
    {'iterations': 30, 'tolerance': 0.001, 'mask': True, 'kernel': 'cubic'}
    >>> parameter_values(["release=7"], {"release": "8.1"})
    {'release': '7'}
    """
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ConfigError(f"needs NAME=VALUE, not {text!r}", "--parameter")
        values[name] = _value(value, (defaults or {}).get(name))
    return values


def _value(text: str, default: Any) -> Any:
    import yaml

    if isinstance(default, str):
        return text
    try:
        value = yaml.safe_load(text)
        json.dumps(value, allow_nan=False)
    except (yaml.YAMLError, TypeError, ValueError):
        return text  # what YAML reads as another type, such as a date, or as no number
    if isinstance(value, str):  # YAML reads 1e-3 as text
        with contextlib.suppress(ValueError):
            number = float(value)
            return number if math.isfinite(number) else text
    is_scalar = isinstance(value, bool | int | float)
    return value if is_scalar or isinstance(default, list | dict) else text


def merged_parameters(app: App, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of ``app`` with ``overrides`` applied.

    Raises
    ------
    ConfigError
        If the application has no such parameter.
    """
    unknown = sorted(set(overrides) - set(app.parameters))
    if unknown:
        names = ", ".join(sorted(app.parameters)) or "none"
        where = f"{app.name}.{unknown[0]}"
        raise ConfigError("unknown parameter", where, f"choose from {names}")
    return {**app.parameters, **overrides}


def scaled_parameters(app: App, scale: Scale, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run at ``scale``; ``overrides`` take precedence.

    Raises
    ------
    ConfigError
        If the application has no such parameter, a value has the wrong type, or it has no
        scaled-down parameters: a full-scale run would then be mislabelled.
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
    """Refuse a value on which the application would only fail or hang once it runs."""
    if name not in app.parameters:
        return  # reported when parameters are merged
    default, where = app.parameters[name], f"{app.name}.{name}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, bool) or not isinstance(default, int | float | str):
        kind_holds, kind = (
            isinstance(value, type(default)) or default is None,
            type(default).__name__,
        )
    elif isinstance(default, str):
        kind_holds, kind = isinstance(value, str), "a text"
    elif isinstance(default, int):
        kind_holds, kind = number and float(value).is_integer(), "a whole number"
    else:
        kind_holds, kind = number and math.isfinite(value), "a number"
    if not kind_holds:
        raise ConfigError(f"needs {kind}, not {value!r}", where)
    texts = [choice for choice in app.ranges.get(name, ()) if isinstance(choice, str)]
    if texts and value not in texts:
        raise ConfigError(f"is not one of {', '.join(texts)}: {value!r}", where)
    if number and not isinstance(default, str) and default >= 0:
        minimum = "above zero" if isinstance(default, int) and default > 0 else "zero or more"
        if value < 0 or (value == 0 and minimum == "above zero"):
            raise ConfigError(f"must be {minimum}, not {value!r}", where)
