"""The options of ``voxcast submit`` by which jobs of a set of images are planned together."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import TYPE_CHECKING

from voxcast.cli.shared_options import whole_number
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from voxcast.allocation.choice import HardLimits
    from voxcast.hpc.moldable_requests import NodeLimits


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `node_limits`."""
    group = parser.add_argument_group(
        "jobs planned together", "CPUs of each image and packed jobs, so that all end soonest"
    )
    group.add_argument("--nodes", type=whole_number, metavar="N", help="nodes that you can have")
    group.add_argument(
        "--cores-per-node", type=whole_number, metavar="C",
        help="their cores; without --nodes, as few nodes as end by --deadline are planned",
    )  # fmt: skip
    group.add_argument(
        "--core-hours", type=_positive, metavar="H", help="core-hours that all jobs may hold"
    )
    group.add_argument(
        "--whole-nodes", action="store_true", help="every job takes a node, images side by side"
    )


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (0 < number < math.inf):
        raise ConfigError(f"must be a positive number, not {text}", "--core-hours")
    return number


def node_limits(args: argparse.Namespace, limits: HardLimits) -> NodeLimits | None:
    """Return what the jobs may hold together; None where each image is on its own.

    Raises
    ------
    ConfigError
        If options contradict each other, or one is lacking.
    """
    from voxcast.hpc.moldable_requests import NodeLimits

    is_local = args.executor == "local"
    cores = args.cores_per_node
    if cores is None:
        for name in ("nodes", "core_hours", "whole_nodes"):
            if getattr(args, name):
                option = f"--{name.replace('_', '-')}"
                raise ConfigError("needs --cores-per-node", option, "add the cores of a node")
        return None
    if is_local and (args.nodes or 1) > 1:
        raise ConfigError("this machine is one node", "--nodes", "leave it out")
    if is_local and cores > len(os.sched_getaffinity(0)):
        problem = f"{len(os.sched_getaffinity(0))} cores may be used here, not {cores}"
        raise ConfigError(problem, "--cores-per-node")
    nodes = 1 if is_local else args.nodes
    if nodes is None and limits.deadline_s is None:
        then = "say how many nodes you can have, or by when all is to end"
        raise ConfigError("needs --nodes or --deadline", "--cores-per-node", then)
    most_core_h = math.inf if args.core_hours is None else args.core_hours
    planned = NodeLimits(nodes, cores, limits.deadline_s, most_core_h, args.whole_nodes)
    # Nothing starts a job here but a fork of this process.
    return dataclasses.replace(planned, job_start_s=0.0) if is_local else planned


def without_nodes(args: argparse.Namespace) -> None:
    """Refuse the options where the jobs are planned already.

    Raises
    ------
    ConfigError
        Naming one that is given.
    """
    for name in ("nodes", "cores_per_node", "core_hours", "whole_nodes"):
        if getattr(args, name):
            raise ConfigError(
                "a plan has its jobs already", f"--{name.replace('_', '-')}",
                "give it where the plan is made, or start from `voxcast recommend --json`",
            )  # fmt: skip
