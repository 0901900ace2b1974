"""Options shared by several verbs: the project folder, the champion and its configurations."""

from __future__ import annotations

import argparse
import logging
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project
from voxcast.cli.run_options import (
    add_device_arguments,
    add_parameter_argument,
    allocations,
    parameters_of,
)
from voxcast.errors import ConfigError, RunError, UnlearnedError, one_line
from voxcast.quantities import parse_seconds

if TYPE_CHECKING:
    from voxcast.config import Here
    from voxcast.content_cache import ContentCache
    from voxcast.images.characteristics import Characteristic
    from voxcast.serving.champion import Champion

logger = logging.getLogger(__name__)

CONF_APP = Path("conf/app")
_NUMBER = re.compile(r"\s*[+-]?[\d.]+(e[+-]?\d+)?\s*", re.IGNORECASE)


def add_project_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--project``; read it with `voxcast.project.find` or `voxcast.project.require`."""
    parser.add_argument(
        "--project",
        type=Path,
        help="project folder (default: VOXCAST_PROJECT, else the nearest parent folder)",
    )


def size_of_this_machine() -> Here:
    """Return the size of this machine, for node types that leave it open."""
    from voxcast.config import Here

    return Here.of_this_machine()


def add_champion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `champion_of`, with ``--project``."""
    parser.add_argument("--app", help="application (needed if the model has several)")
    parser.add_argument(
        "--cpus",
        type=cpu_counts,
        metavar="N,N",
        help="numbers of CPUs (default: those the model was trained on)",
    )
    add_device_arguments(parser)
    add_parameter_argument(parser)
    parser.add_argument("--header-only", action="store_true", help="do not read voxels")
    parser.add_argument(
        "--machine", metavar="NAME",
        help="predict for this machine: its id, or a host class or node type on record "
        "(default: where the model runs)",
    )  # fmt: skip
    add_max_voxels_argument(parser)
    parser.add_argument("--url", help="use the server started by `voxcast serve` at this address")
    add_project_argument(parser)


def add_max_voxels_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--max-voxels``, above which the voxels of a volume are not read."""
    from voxcast.images.header import MAX_VOXELS

    parser.add_argument(
        "--max-voxels",
        type=whole_number,
        default=MAX_VOXELS,
        metavar="N",
        help=f"refuse volumes with more voxels than this (default {MAX_VOXELS:.0e})",
    )


def whole_number(text: str) -> int:
    """Read a number of at least 1, such as ``4``, ``2000000`` or ``2e6``.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is another number, or none.
    """
    try:
        number = float(text)
        if number >= 1 and number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")


def add_time_budget_argument(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add ``--time-budget``, in seconds once it is parsed."""
    parser.add_argument("--time-budget", type=duration_s, metavar="2h", help=meaning)


def add_poll_argument(parser: argparse._ActionsContainer) -> None:
    """Add ``--poll``, the time between two questions to Slurm, in seconds once it is parsed."""
    parser.add_argument(
        "--poll", type=duration_s, default="30s", metavar="30s", help="time between two looks"
    )


def duration_s(text: str) -> float:
    """Read a duration of any length but a negative one, such as ``2h``, ``90min`` or ``3600s``.

    Raises
    ------
    argparse.ArgumentTypeError
        Otherwise.
    """
    try:
        return parse_seconds(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(one_line(error)) from None


def hours_s(text: str) -> float:
    """Read a number of hours, or a duration; errors as `duration_s`."""
    return duration_s(f"{text}h" if _NUMBER.fullmatch(text) else text)


def cpu_counts(text: str) -> tuple[int, ...]:
    """Read numbers of CPUs such as ``1,2``; errors as `whole_number`."""
    return tuple(whole_number(part) for part in text.split(","))


def champion_of(args: argparse.Namespace) -> Champion:
    """Return the champion selected by the options of `add_champion_arguments`.

    Raises
    ------
    ConfigError
        Without a project, or if the allocation is unknown.
    ModelError
        Without a champion, or if it lacks the application or parameter.
    """
    if args.url:
        champion = _served_champion(args.url, args.app, project.find(args.project))
    else:
        from voxcast.serving.prediction_service import PredictionService

        folder = project.require(args.project)
        try:
            champion = PredictionService.of_project(folder).champion(args.app)
        except UnlearnedError:
            if not (folder / CONF_APP / f"{args.app}.yaml").is_file():
                raise
            then = f"run `voxcast learn IMAGES --app {args.app}`"
            raise UnlearnedError("is described, and not learned yet", args.app, then) from None
    listed = champion.app_parameters is not None
    return replace(
        champion,
        lab=_lab_of(champion, project.find(args.project)),
        app=args.app or champion.app,
        configurations=allocations(
            champion.configurations, args.device, args.cpus, args.gpus, complete=listed
        ),
        parameters=parameters_of(args.parameters, champion.app_parameters),
        header_only=args.header_only,
        max_voxels=args.max_voxels,
        host=args.machine,
        cache=question_cache(project.find(args.project)),
    )


def question_cache(folder: Path | None) -> ContentCache | None:
    """Return the cache of image summaries: of ``VOXCAST_CACHE``, or a project's if any.

    A project that this user may not write to is used without.

    Raises
    ------
    RunError
        If ``VOXCAST_CACHE`` names a folder that cannot be used.
    """
    from voxcast.content_cache import FOLDER_VARIABLE, cache_of_environment

    if FOLDER_VARIABLE in os.environ:
        return cache_of_environment()
    try:
        return None if folder is None else cache_of_environment(folder)
    except RunError as error:
        logger.info("images are not remembered: %s", error)
        return None


def characteristic_versions(folder: Path) -> dict[str, int]:
    """Return the versions of all characteristics, also of a project's."""
    from voxcast import config
    from voxcast.images.characteristics import versions_of

    return versions_of(config.load(folder / config.PARAMS_FILE).features.characteristics)


def _lab_of(champion: Champion, folder: Path | None) -> dict[str, Characteristic]:
    """Return the ones that the project declares and the champion may need."""
    from voxcast.images.characteristics import CHARACTERISTICS

    needed = champion.characteristics
    if folder is None or (needed is not None and set(needed) <= set(CHARACTERISTICS)):
        return {}  # without reading the configuration
    from voxcast.config.load import project_characteristics

    return project_characteristics(folder, needed)


def _served_champion(url: str, app: str | None, folder: Path | None) -> Champion:
    """Return the champion served at an address.

    MLflow's server does not tell its allocations; a project, if any, gives these.
    """
    from voxcast.serving.client import Client

    champion = Client(url).champion(app)
    if folder is None or champion.app_parameters is not None:
        return champion
    from voxcast import config

    params = config.load(folder / config.PARAMS_FILE)
    return replace(
        champion,
        configurations=params.configurations("cpu"),
        coarse_points=params.features.coarse_points,
    )
