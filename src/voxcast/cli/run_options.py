"""Options of runs: parameters of an application, and its allocation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError
from voxcast.records import Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def add_parameter_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--parameter``; read it with `parameters_of`, or `voxcast.apps.parameters`."""
    parser.add_argument(
        "-p", "--parameter", dest="parameters", action="append", default=[], metavar="NAME=VALUE",
        help="a parameter of the application; may be repeated",
    )  # fmt: skip


def parameters_of(
    texts: Sequence[str], app_parameters: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return parameters of a command line, checked if the application's are known.

    Raises
    ------
    ModelError
        If the application has no such parameter, or the value is of another type.
    """
    if not texts:
        return {}
    from voxcast.apps.parameters import parameter_values
    from voxcast.serving.rows import check_parameters

    parameters = parameter_values(texts, app_parameters)
    if app_parameters is not None:
        check_parameters(parameters, app_parameters, "--parameter")
    return parameters


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--device`` and ``--gpus``; read them with `allocations`."""
    parser.add_argument("--device", metavar="NAME", help="allocations of this device only")
    parser.add_argument(
        "--gpus", type=gpu_counts, metavar="N,N",
        help="numbers of GPUs; 0: allocations without (default: those the model was trained on)",
    )  # fmt: skip


def gpu_counts(text: str) -> tuple[int, ...]:
    """Read numbers of GPUs such as ``1,2`` or ``0``.

    Raises
    ------
    argparse.ArgumentTypeError
        If one is not a whole number, or negative.
    """
    counts = text.split(",")
    if not all(count.isascii() and count.isdigit() for count in counts):
        raise argparse.ArgumentTypeError(f"must be whole numbers of at least 0, not {text!r}")
    return tuple(int(count) for count in counts)


def allocations(
    listed: Sequence[Configuration],
    device: str | None,
    cpus: Sequence[int] | None,
    gpus: Sequence[int] | None,
    *,
    complete: bool = True,
) -> list[Configuration]:
    """Return the allocations to predict.

    Parameters
    ----------
    listed : sequence of Configuration
        The ones that the model was trained on. ``device`` and ``gpus`` choose among them.
    device : str or None
        Name of a device.
    cpus, gpus : sequence of int or None
        Replace the numbers of the allocations that are chosen. Numbers of CPUs alone are for
        allocations without GPUs, if there are such.
    complete : bool
        Whether all devices are listed; a server does not list its own.

    Raises
    ------
    ConfigError
        If none is left.

    Examples
    --------
    >>> listed = [Configuration("cpu", 1), Configuration("cpu", 2), Configuration("gpu", 2, 1)]
    >>> [c.label for c in allocations(listed, None, (4,), None)]
    ['cpu, 4 CPUs']
    >>> [c.label for c in allocations(listed, None, None, (1, 2))]
    ['gpu, 2 CPUs, 1 GPU', 'gpu, 2 CPUs, 2 GPUs']
    """
    if device is None and cpus is None and gpus is None:
        return list(listed)
    sizes = [(c.device, c.cpus, c.gpus) for c in listed if device in (None, c.device)]
    if gpus is not None:
        sizes = [(name, n, g) for name, n, size in sizes for g in gpus if (g > 0) == (size > 0)]
    elif device is None:
        sizes = [size for size in sizes if size[2] == 0] or sizes
    if not sizes and not complete and device not in {c.device for c in listed}:
        has_gpu = device != "cpu" if gpus is None else max(gpus) > 0
        name = device or ("gpu" if has_gpu else "cpu")
        sizes = [(name, 1, g) for g in gpus or (int(has_gpu),)]
    if not sizes:
        wanted = " ".join(
            f"--{name} {value}"
            for name, value in (("device", device), ("gpus", ",".join(map(str, gpus or ()))))
            if value
        )
        labels = "; ".join(configuration.label for configuration in listed)
        raise ConfigError("no such allocation was measured", wanted, f"the model has {labels}")
    if cpus is not None:
        sizes = [(name, n, g) for name, _, g in sizes for n in cpus]
    return [Configuration(name, n, g) for name, n, g in dict.fromkeys(sizes)]
