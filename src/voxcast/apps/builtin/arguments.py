"""The command line of every built-in application, and the parsing of its parameters."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.launch import THREAD_VARIABLES
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Arguments:
    """The parsed command line; `image` is None for an application without input."""

    image: Path | None
    out: Path
    threads: int
    device: str
    parameters: dict[str, Any]


def parse(
    argv: Sequence[str] | None,
    defaults: Mapping[str, Any],
    *,
    prog: str,
    description: str | None,
    image: bool = True,
) -> Arguments:
    """Parse the command line of an application, and limit its libraries to ``--threads``.

    Must be called before the libraries are imported: ITK, OpenMP and torch read their number of
    threads from the environment when they are loaded. Variables already set take precedence.

    Parameters
    ----------
    argv : sequence of str or None
        None for those of the process.
    defaults : mapping
        All parameters with their defaults; numbers keep the type of their default.

    Raises
    ------
    ConfigError
        If ``--parameters`` is not JSON, or holds an unknown name or a value of another type.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    if image:
        parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1, help="unless set in the environment")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--parameters", default="{}", help="JSON: " + ", ".join(defaults))
    args = parser.parse_args(argv)
    parameters = _merged(args.parameters, defaults)
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(args.threads))
    return Arguments(
        args.image if image else None, args.out, args.threads, args.device, parameters
    )


def _merged(text: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parameters = dict(json.loads(text))
    except (ValueError, TypeError):
        raise ConfigError("needs a JSON object", "--parameters") from None
    merged = dict(defaults)
    for name, value in parameters.items():
        if name not in defaults:
            names = ", ".join(sorted(defaults))
            raise ConfigError("unknown parameter", name, f"choose from {names}")
        kind = type(defaults[name])
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(f"needs {kind.__name__}, not {value!r}", name)
        merged[name] = value
    return merged
