"""The command line of every application, and the checks of its parameters."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.launch import THREAD_VARIABLES
from voxcast.errors import ConfigError, RunError, exits_cleanly

if TYPE_CHECKING:
    import torch

NO_IMAGE = Path()


@dataclass(frozen=True)
class Arguments:
    """The parsed command line; `image` is `NO_IMAGE` for an application without input."""

    image: Path
    out: Path
    threads: int
    device: str
    parameters: Mapping[str, Any]

    def torch_device(self) -> torch.device:
        """Return the device of torch.

        Raises
        ------
        RunError
            If torch finds no GPU and one is requested: a run on the CPU would be mislabelled.
        """
        import torch

        if self.device == "gpu" and not torch.cuda.is_available():
            then = "run it with --device cpu"
            raise RunError("torch finds no CUDA device", "--device gpu", then)
        return torch.device("cuda" if self.device == "gpu" else "cpu")

    def argv(self) -> list[str]:
        """Return the arguments that start another process of the same program."""
        parameters = json.dumps(dict(self.parameters))
        image = [] if self.image == NO_IMAGE else ["--image", str(self.image)]
        settings = ["--threads", str(self.threads), "--device", self.device]
        return [*image, "--out", str(self.out), *settings, "--parameters", parameters]


def application(
    name: str,
    description: str | None,
    defaults: Mapping[str, Any],
    run: Callable[[Arguments], object],
    *,
    image: bool = True,
) -> Callable[..., int]:
    """Return the function ``main`` of an application, which parses its arguments and runs it."""

    @exits_cleanly
    def main(argv: Sequence[str] | None = None) -> int:
        run(parse(argv, name, description, defaults, image=image))
        return 0

    return main


def parse(
    argv: Sequence[str] | None,
    name: str,
    description: str | None,
    defaults: Mapping[str, Any],
    *,
    image: bool = True,
) -> Arguments:
    """Parse the command line of an application, and limit its libraries to ``--threads``.

    An application imports ITK, OpenMP and torch afterwards: they read their number of threads from
    the environment when they are loaded. Variables that are already set take precedence.

    Parameters
    ----------
    argv : sequence of str or None
        None for the arguments of this process.
    defaults : mapping
        All parameters with their defaults; numbers keep the type of their default.

    Raises
    ------
    ConfigError
        If ``--parameters`` is not JSON, or holds an unknown name or a value of another type.
    """
    parser = argparse.ArgumentParser(prog=name, description=description)
    if image:
        parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1, help="unless set in the environment")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--parameters", default="{}", help="JSON: " + ", ".join(defaults))
    args = parser.parse_args(argv)
    parameters = _merged(args.parameters, defaults)
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(args.threads))
    path = args.image if image else NO_IMAGE
    return Arguments(path, args.out, args.threads, args.device, parameters)


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


def check(
    parameters: Mapping[str, Any],
    least: Mapping[str, int],
    choices: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Check parameters against their least values and choices; a learning rate is positive.

    Raises
    ------
    ConfigError
        For the first invalid parameter.
    """
    for name, names in (choices or {}).items():
        if parameters[name] not in names:
            then = "choose from " + ", ".join(names)
            raise ConfigError(f"unknown: {parameters[name]!r}", name, then)
    for name, value in least.items():
        if parameters[name] < value:
            raise ConfigError(f"must be at least {value}, not {parameters[name]}", name)
    if not 0 < parameters.get("learning_rate", 1.0) < math.inf:
        raise ConfigError("must be positive", "learning_rate")
