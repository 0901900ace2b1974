"""The command line of every application, and the checks of its parameters."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.app import THREAD_VARIABLES, check_type, chosen
from voxcast.errors import ConfigError, RunError, exits_cleanly

if TYPE_CHECKING:
    import torch

NO_IMAGE = Path()
SMALLEST_RATE = 1e-9  # of learning
# What is accepted of a parameter: the least number, the least and the largest, or a list of texts.
Accepted = Mapping[str, float | tuple[float, float] | list[str]]


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
    accepted: Accepted,
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
    accepted : mapping
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
        check(parameters, accepted)
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


def check(parameters: Mapping[str, Any], accepted: Accepted) -> None:
    """Check parameters.

    Raises
    ------
    ConfigError
        For the first one that is not accepted.
    """
    for name, limit in accepted.items():
        value = parameters[name]
        if isinstance(limit, list):
            chosen(value, limit, f"value {value!r}", name)
            continue
        low, high = limit if isinstance(limit, tuple) else (limit, math.inf)
        if not low <= value <= high:
            needed = f"needs {low} to {high}" if high < math.inf else f"must be at least {low}"
            raise ConfigError(f"{needed}, not {value}", name)


def timed(steps: Iterable[int], seconds: list[float]) -> Iterator[int]:
    """Yield the steps of a loop, and add to ``seconds`` how long each took."""
    for step in steps:
        start = time.monotonic()
        yield step
        seconds.append(time.monotonic() - start)
