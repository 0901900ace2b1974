"""The parameters of a run: the application's defaults, scaled down or not, and overrides."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from voxcast.apps.app import chosen
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from voxcast.records import App, Scale

_KINDS = {str: "a text", int: "a whole number", float: "a number"}


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
        a list or an object, the value is JSON.

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
            raise ConfigError(f"needs NAME=VALUE, not {text!r}", "--param")
        values[name] = _value(value, (defaults or {}).get(name))
    return values


def _value(text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    try:
        value = json.loads(text, parse_constant=str)  # NaN is a text
    except ValueError:
        return text
    is_scalar = isinstance(value, bool | int | float)
    return value if is_scalar or isinstance(default, list | dict) else text


def scaled_parameters(app: App, scale: Scale, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run at ``scale``; ``overrides`` take precedence.

    Raises
    ------
    ConfigError
        If the application has no such parameter, a value has the wrong type, or it has no
        scaled-down parameters: a full-scale run would then be mislabelled.
    """
    if scale == "scaled_down" and not app.scaled_down:
        then = f"set scaled_down in conf/app/{app.name}.yaml, or run it at full scale"
        raise ConfigError("cannot be scaled down", app.name, then)
    for name, value in overrides.items():
        where = f"{app.name}.{name}"
        check_type(value, app.parameters[chosen(name, app.parameters, "parameter", where)], where)
        choices = [choice for choice in app.ranges.get(name, ()) if isinstance(choice, str)]
        if choices and value not in choices:
            raise ConfigError(f"is not one of {', '.join(choices)}: {value!r}", where)
    scaled = app.scaled_down if scale == "scaled_down" else {}
    return {**app.parameters, **scaled, **overrides}


def check_type(value: Any, default: Any, where: str) -> None:
    """Check that a value has the type of the default; a whole number may be written as 3.0.

    Raises
    ------
    ConfigError
        If it has another type, or is not finite.
    """
    if default is None:
        return
    kind = type(default)
    fits = isinstance(value, kind)
    if kind in (int, float):
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        fits = fits and (float(value).is_integer() if kind is int else math.isfinite(value))
    if not fits:
        raise ConfigError(f"needs {_KINDS.get(kind, kind.__name__)}, not {value!r}", where)
