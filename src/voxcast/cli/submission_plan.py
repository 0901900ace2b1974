"""The plan of ``voxcast submit``, from a champion, a recommendation or another plan."""

from __future__ import annotations

import dataclasses
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.recommendation_options import (
    hard_limits,
    recommendation_of,
    refuse_local,
    site_of,
)
from voxcast.cli.submission_schedule import with_cores, without_cores
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError
from voxcast.quantities import parse_usd

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from voxcast.jobs.submission import Plan
    from voxcast.jobs.task import Task
    from voxcast.records import App

CONF_APP, CONF_DEVICE = Path("conf/app"), Path("conf/device")

logger = logging.getLogger(__name__)


def plan_of(args: argparse.Namespace) -> tuple[Plan, int]:
    """Return the plan, and the exit code: 2 where an image has no request.

    Raises
    ------
    VoxcastError
        If images, requests or the application cannot be used.
    """
    from voxcast.jobs.submission import (
        VERSION_KEY,
        Plan,
        existing_outputs,
        read_json_object,
        sbatch_option,
    )
    from voxcast.jobs.task import Limits, from_file

    code = 0
    if args.requests is not None:
        if args.paths or args.images:
            raise ConfigError("has its images", "--requests", "leave out IMAGE and --images")
        if args.parameters:
            raise ConfigError("has its parameters", "--requests", "leave out --parameter")
        content = read_json_object(args.requests)
        if VERSION_KEY in content:
            without_cores(args)
            plan = Plan.from_record(content, args.requests)
        else:
            name, tasks = from_file(_cores(content, args), args.requests)
            app = _described(args, args.app or name)
            parameters = content.get("parameters", {})  # missing in plans of an earlier release
            if not isinstance(parameters, dict):
                raise ConfigError("parameters must be an object", args.requests, "write it again")
            cluster = str(content.get("cluster", ""))
            plan = _plan(app, tasks, args, cluster, parameters)
    else:
        plan, code = _predicted(args)
    slurm = plan.slurm
    plan = dataclasses.replace(
        plan,
        container_engine=args.container_engine or plan.container_engine,
        limits=Limits(
            max_attempts=args.max_attempts,
            max_usd=math.inf if args.budget is None else parse_usd(args.budget),
        ),
        slurm=dataclasses.replace(
            slurm,
            account=args.account or slurm.account, qos=args.qos or slurm.qos,
            constraint=args.constraint or slurm.constraint,
            throttle=args.throttle or slurm.throttle,
            further=tuple(map(sbatch_option, args.sbatch)) or slurm.further,
        ),
        stall_s=args.stall or None,
    )  # fmt: skip
    if args.partition and args.requests is not None:
        moved = (
            dataclasses.replace(
                task, requests=dataclasses.replace(task.requests, partition=args.partition)
            )
            for task in plan.tasks
        )
        plan = dataclasses.replace(plan, tasks=tuple(moved))
    if args.skip_existing and args.out is not None:
        existing = set(existing_outputs(plan, args.out))
        logger.info("%d of %d images have results", len(existing), len(plan.tasks))
        tasks_left = tuple(task for task in plan.tasks if task.name not in existing)
        plan = dataclasses.replace(plan, tasks=tasks_left)
    _check(plan)
    return plan, code


def _cores(content: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    try:
        return with_cores(content, args)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"incomplete: {error!r}", args.requests, "write it again") from None


def _plan(
    app: App,
    tasks: list[Task],
    args: argparse.Namespace,
    cluster: str,
    parameters: Mapping[str, Any],
) -> Plan:
    """Return a plan; ``parameters`` differ from the application's defaults."""
    from voxcast.apps.parameters import scaled_parameters
    from voxcast.jobs.submission import Plan

    engine = args.container_engine or _container_engine(args, app, tasks)
    merged = scaled_parameters(app, "full_scale", parameters)
    return Plan(app, tuple(tasks), merged, engine, cluster)


def _predicted(args: argparse.Namespace) -> tuple[Plan, int]:
    """Return the plan for all images that have a request, as `voxcast recommend` chooses it.

    The exit code is 2 where one has none.
    """
    from voxcast.jobs.submission import SlurmOptions, partitions_per_cpu
    from voxcast.jobs.task import recommended

    images = _images(args)
    site = site_of(args)
    if args.executor == "slurm":
        refuse_local(site, args)
    volumes: dict[str, dict[str, Any]] = {}
    recommendation = recommendation_of(args, images, site, hard_limits(args), volumes)
    if recommendation is None:
        raise ImageError("no image can be predicted", None, "see the lines above")
    code = EXIT_BAD_INPUT if len(recommendation.images) < len(images) else 0
    for image, reason in recommendation.without_request():
        logger.error("%s: %s", image, reason)
        code = EXIT_BAD_INPUT
    app = _described(args, str(recommendation.images[0].by_candidate[0]["app"]))
    tasks, _ = recommended(recommendation, lambda content: with_cores(content, args))
    model = _model_facts(args, app.name)
    for n, task in tasks.items():
        volume, prediction = volumes.get(recommendation.images[n].image), task.prediction
        if prediction is not None:
            prediction = dataclasses.replace(prediction, **model)
        tasks[n] = dataclasses.replace(task, volume=volume, prediction=prediction)
    parameters, cluster = recommendation.parameters, recommendation.cluster.name
    plan = _plan(app, list(tasks.values()), args, cluster, parameters)
    added_bytes = recommendation.cluster.stated_bytes_of(app.name)
    slurm = SlurmOptions(memory_per_cpu=partitions_per_cpu(recommendation.cluster))
    return dataclasses.replace(plan, slurm=slurm, added_memory_bytes=added_bytes), code


def _model_facts(args: argparse.Namespace, app: str) -> dict[str, Any]:
    """Return which model predicted; a server does not tell it."""
    if args.url:
        return {}
    from voxcast.serving.model_store import ModelStore

    bundle = ModelStore.of(project.require(args.project)).open()
    served = bundle.apps[app]
    return {
        "model_version": bundle.version,
        "forecaster_sha256": served.forecaster_sha256,
        "family": served.promotion.family,
    }


def _images(args: argparse.Namespace) -> list[Path]:
    """Return the named images, or a dataset's.

    Raises
    ------
    VoxcastError
        If there are none, or a subject is not there.
    """
    if args.images is None:
        if args.participant_label:
            raise ConfigError("needs --images", "--participant-label")
        if not args.paths:
            raise ConfigError("no images", "submit", "name some, or give --images DIR")
        return list(args.paths)
    if args.paths:
        raise ConfigError("are named twice, by IMAGE and by --images", "images")
    from voxcast.images.bids import find_images, subject_label

    entries = find_images(args.images)
    for entry in entries:
        if entry.problem:
            logger.error("%s: %s", entry.path, entry.problem)
    usable = [entry for entry in entries if not entry.problem]
    if args.participant_label:
        wanted = {subject_label(label) for label in args.participant_label}
        if absent := wanted - {entry.subject for entry in usable}:
            names = ", ".join(sorted(absent))
            raise ImageError(f"has no subject {names}", args.images, "check --participant-label")
        usable = [entry for entry in usable if entry.subject in wanted]
    return [entry.path for entry in usable]


def _described(args: argparse.Namespace, name: str) -> App:
    """Return the application as the project describes it."""
    from voxcast import config

    return config.load_app(project.require(args.project) / CONF_APP, name)


def _container_engine(args: argparse.Namespace, app: App, tasks: list[Task]) -> str:
    if not app.container or not tasks:
        return "none"
    from voxcast import config

    folder = project.require(args.project) / CONF_DEVICE
    return config.load_device(folder, tasks[0].requests.device).container_engine


def _check(plan: Plan) -> None:
    """Check the application, its container and the images before anything is submitted."""
    from voxcast.apps.app import chosen
    from voxcast.apps.containers import ENGINES

    engine = plan.container_engine
    if plan.app.container:
        chosen(engine, ("none", *ENGINES), "container engine")
        if engine == "none":
            then = "give --container-engine, e.g. apptainer"
            raise ConfigError("needs a container engine, and none is chosen", plan.app.name, then)
    for task in plan.tasks:
        if task.image and not Path(task.image).is_file():
            raise ImageError("no such file", task.image)
