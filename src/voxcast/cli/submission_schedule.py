"""The options of ``voxcast submit`` by which the CPUs of a set of images are chosen together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from voxcast.cli.shared_options import whole_number
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    import argparse


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `with_cores`."""
    group = parser.add_argument_group(
        "CPUs chosen together", "CPUs of each image, so that all images end soonest"
    )
    group.add_argument("--nodes", type=whole_number, metavar="N", help="nodes that you can have")
    group.add_argument("--cores-per-node", type=whole_number, metavar="C", help="their cores")


def with_cores(content: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return a recommendation with the CPUs of each image chosen for the nodes of the options.

    Raises
    ------
    ConfigError
        If the options contradict each other, or an image does not fit.
    """
    from voxcast.allocation.cores import JOB_START_S, with_planned_cpus

    is_local = args.executor == "local"
    cores = args.cores_per_node
    if cores is None:
        if args.nodes:
            raise ConfigError("needs --cores-per-node", "--nodes", "add the cores of a node")
        return content
    if is_local and (args.nodes or 1) > 1:
        raise ConfigError("this machine is one node", "--nodes", "leave it out")
    if is_local and cores > len(os.sched_getaffinity(0)):
        problem = f"{len(os.sched_getaffinity(0))} cores may be used here, not {cores}"
        raise ConfigError(problem, "--cores-per-node")
    if not is_local and args.nodes is None:
        raise ConfigError("needs --nodes", "--cores-per-node", "say how many nodes you can have")
    # On this machine a process is started, which takes no time; on a cluster a job.
    start_s = 0.0 if is_local else JOB_START_S
    return with_planned_cpus(content, args.nodes or 1, cores, start_s)


def without_cores(args: argparse.Namespace) -> None:
    """Refuse the options where the CPUs are chosen already.

    Raises
    ------
    ConfigError
        Naming the option that is given.
    """
    for name in ("nodes", "cores_per_node"):
        if getattr(args, name):
            raise ConfigError(
                "a plan has its CPUs already", f"--{name.replace('_', '-')}",
                "give it where the plan is made, or start from `voxcast recommend --json`",
            )  # fmt: skip
