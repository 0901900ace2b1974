"""The command line of every application, and the checks of its parameters."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.app import THREAD_VARIABLES, chosen
from voxcast.apps.parameters import check_type
from voxcast.errors import ConfigError, RunError, exits_cleanly

if TYPE_CHECKING:
    import torch

NO_IMAGE = Path()
Limits = Mapping[str, float | tuple[float, float]]  # the least value, or least and largest


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
            problem = "torch finds no CUDA device"
            raise RunError(problem, "--device gpu", "run it with --device cpu")
        return torch.device("cuda" if self.device == "gpu" else "cpu")


def application(
    name: str,
    description: str | None,
    defaults: Mapping[str, Any],
    run: Callable[[Arguments], object],
    *,
    limits: Limits,
    choices: Mapping[str, Sequence[str]] | None = None,
    image: bool = True,
) -> Callable[..., int]:
    """Return the function ``main`` of an application: it parses the command line and runs it.

    Libraries are limited to ``--threads``. An application imports ITK, OpenMP and torch in
    ``run``: they read their number of threads from the environment when they are loaded. Variables
    that are already set take precedence.

    Parameters
    ----------
    defaults : mapping
        All parameters with their defaults; numbers keep the type of their default.
    limits, choices : mapping
        See `check`.
    image : bool
        Whether it takes an image.
    """
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("--image", type=Path, required=image, default=NO_IMAGE)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1, help="unless set in the environment")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--parameters", default="{}", help="JSON: " + ", ".join(defaults))

    @exits_cleanly
    def main(argv: Sequence[str] | None = None) -> int:
        args = parser.parse_args(argv)
        for variable in THREAD_VARIABLES:
            os.environ.setdefault(variable, str(args.threads))
        parameters = _merged(args.parameters, defaults)
        check(parameters, limits, choices)
        run(Arguments(**{**vars(args), "parameters": parameters}))
        return 0

    return main


def _merged(text: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    try:
        settings = dict(json.loads(text))
    except (ValueError, TypeError):
        raise ConfigError("needs a JSON object", "--parameters") from None
    for name, value in settings.items():
        check_type(value, defaults[chosen(name, defaults, "parameter")], name)
    return {name: type(value)(settings.get(name, value)) for name, value in defaults.items()}


def check(
    parameters: Mapping[str, Any],
    limits: Limits,
    choices: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Check parameters; a learning rate is positive.

    Parameters
    ----------
    limits : mapping
        Limits of parameters that are numbers.
    choices : mapping, optional
        The values of a parameter that is a text.

    Raises
    ------
    ConfigError
        For the first invalid parameter.
    """
    for name, names in (choices or {}).items():
        chosen(parameters[name], names, f"value {parameters[name]!r}", name)
    for name, limit in limits.items():
        value, (low, high) = parameters[name], limit if isinstance(limit, tuple) else (limit, None)
        if value < low or (high is not None and value > high):
            needed = f"must be at least {low}" if high is None else f"needs {low} to {high}"
            raise ConfigError(f"{needed}, not {value}", name)
    if not parameters.get("learning_rate", 1.0) > 0:
        raise ConfigError("must be positive", "learning_rate")


def timed(steps: Iterable[int], seconds: list[float]) -> Iterator[int]:
    """Yield the steps of a loop, and add to ``seconds`` how long each took."""
    for step in steps:
        start = time.monotonic()
        yield step
        seconds.append(time.monotonic() - start)
