"""``voxcast tune``: search the parameters of all families by several workers.

Workers are processes here (``--workers N``), or jobs: ``--cluster C --submit`` submits and follows
them; without ``--submit`` the line that starts them is printed, and the same command again says
how far they are. All share one study for each application and family, in a journal file in
``--folder``, or in a database (``--storage URL``). The trials are
fixed beforehand, so that the result does not depend on who made which when; a worker may be killed
at any time, and others make its trial again.

When all trials are made, the best parameters are written to conf/tune/tuned.yaml. The stage `tune`
takes them with `tune: tuned`: ``voxcast learn -S tune=tuned``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.campaign_pool import add_worker_job_arguments, check_worker_jobs
from voxcast.cli.shared_options import (
    add_project_argument,
    duration_s,
    size_of_this_machine,
    whole_number,
)
from voxcast.cli.tune_jobs import submit_workers, worker_request
from voxcast.cli.verb_parser import VerbParser

if TYPE_CHECKING:
    from voxcast.allocation.site import Cluster
    from voxcast.cli.tune_search import Searches
    from voxcast.studies.shared_search import FamilyResult, SharedSearch

FOLDER = Path("data/tuning")
TUNED = Path("conf/tune/tuned.yaml")
LOCAL = "local"  # the cluster that is this machine
WORKERS = 2
UNFINISHED = 1

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Search, or say how far the search is; 1 if trials are left."""
    parser = VerbParser(
        prog="voxcast tune", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes, or jobs")
    parser.add_argument("--cluster", default=LOCAL, help="a cluster of conf/cluster")
    parser.add_argument("--mem", default="4GiB", metavar="4GiB", help="memory of each worker")
    parser.add_argument(
        "--time", type=duration_s, default="4h", metavar="4h", help="time of each job"
    )
    add_worker_job_arguments(parser.add_argument_group("jobs of Slurm"))
    parser.add_argument("--folder", type=Path, default=FOLDER, metavar="DIR", help="shared by all")
    parser.add_argument(
        "--storage", default="", metavar="URL", help="of a database, without its password"
    )
    parser.add_argument("--worker", action="store_true", help="make trials until none is left")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv)
    check_worker_jobs(args)
    worker_request(args)  # checks it
    if args.submit:
        from voxcast.jobs.slurm import check_installed

        check_installed()
    os.chdir(project.require(args.project))
    with _database_problems(args.storage):
        return _tune(args)


def _database_problems(url: str) -> contextlib.AbstractContextManager[None]:
    if not url:
        return contextlib.nullcontext()
    from voxcast.studies.search_database import database_problems

    return database_problems(url)


def _tune(args: argparse.Namespace) -> int:
    from voxcast.cli.tune_search import project_search

    search, searches, settings = project_search(args.folder, args.storage)
    if args.worker:
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        count = search.work(searches, name, _log_trial)
        logger.info("%d trials made", count)
        return 0
    for name, (family_name, _) in searches.items():
        search.add(name, family_name)
    line, code = None, 0
    if args.cluster == LOCAL:
        _run_here(args, search, searches)
    elif args.submit:
        code = submit_workers(
            args, _cluster(args), [sys.executable, "-m", "voxcast.cli", *_command(args)],
            args.workers or WORKERS, lambda: _trials_left(_results(search, searches)),
        )  # fmt: skip
    elif not all(result.finished for result in _results(search, searches).values()):
        line = _sbatch_line(args)
    results = _results(search, searches)
    finished = all(result.finished for result in results.values())
    if finished:
        _write_tuned(results, settings)
    _print_end(args, results, line)
    return code or (0 if finished else UNFINISHED)


def _results(search: SharedSearch, searches: Searches) -> dict[str, FamilyResult]:
    return {name: search.result(name, family) for name, (family, _) in searches.items()}


def _log_trial(name: str, index: int, value: float) -> None:
    logger.debug("%s, trial %d: error %.4g", name, index, value)


def _command(args: argparse.Namespace) -> list[str]:
    """Return the options of a worker."""
    options = ["tune", "--worker", "--project", str(Path.cwd())]
    options += ["--folder", str(args.folder.resolve())]
    return [*options, "--storage", args.storage] if args.storage else options


def _run_here(args: argparse.Namespace, search: SharedSearch, searches: Searches) -> None:
    """Run workers until all have ended; they end with this process."""
    from voxcast.jobs.passes import run_local_workers

    def log_progress() -> None:
        completed = sum(result.completed for result in _results(search, searches).values())
        logger.info("tune: %d of %d trials", completed, total)

    count = args.workers or WORKERS
    total = sum(result.trials for result in _results(search, searches).values())
    logger.info("tune: %d trials by %d workers", total, count)
    command = [sys.executable, "-m", "voxcast.cli", *_command(args)]
    run_local_workers(command, count, log_progress)


def _sbatch_line(args: argparse.Namespace) -> str:
    """Return a line for a shell that starts workers as an array of Slurm."""
    from voxcast.jobs.script import array_line
    from voxcast.jobs.submission import partitions_per_cpu

    count = args.workers or WORKERS
    cluster = _cluster(args)
    partition = args.partition or cluster.partitions[0].name
    per_cpu = partition in partitions_per_cpu(cluster)
    request = dataclasses.replace(worker_request(args, cluster), partition=partition)
    return array_line(["voxcast", *_command(args)], request, count, per_cpu=per_cpu)


def _cluster(args: argparse.Namespace) -> Cluster:
    from voxcast import config
    from voxcast.jobs.slurm import with_memory_counted

    cluster = config.load_submit(cluster=args.cluster, here=size_of_this_machine).cluster
    return with_memory_counted(cluster)


def _trials_left(results: dict[str, FamilyResult]) -> int:
    return sum(r.trials - r.completed - r.given_up for r in results.values())


def _write_tuned(results: dict[str, FamilyResult], settings: dict[str, Any]) -> None:
    """Write the chosen parameters as a configuration of the stage `tune`."""
    import yaml

    from voxcast import config
    from voxcast.files import write_text
    from voxcast.records import as_fields

    fixed: dict[str, dict[str, Any]] = {}
    for name, result in sorted(results.items()):
        if result.params is not None:
            app, _, family_name = name.partition("/")
            fixed.setdefault(app, {})[family_name] = result.params
    section = as_fields(config.load().tune) | {"fixed": fixed}
    head = (
        "# Written by `voxcast tune`: parameters of the smallest cross-validated error on table\n"
        f"# {settings['table_sha256'][:12]}. Families that are not in `fixed` are searched.\n"
    )
    write_text(TUNED, head + yaml.safe_dump(section, sort_keys=False))


def _print_end(
    args: argparse.Namespace, results: dict[str, FamilyResult], line: str | None
) -> None:
    finished = all(result.finished for result in results.values())
    if args.json:
        rows = {name: dataclasses.asdict(r) for name, r in results.items()}
        for row in rows.values():
            row["objective"] = row["objective"] if row["params"] is not None else None
        tuned = str(TUNED) if finished else None
        content = {"searches": rows, "finished": finished, "tuned": tuned, "workers": line}
        print(json.dumps(content, indent=2, allow_nan=False))
        return
    for name, result in results.items():
        lost = f", {result.lost} attempts lost or failed" if result.lost else ""
        best = "" if result.params is None else f", smallest error {result.objective:.4g}"
        print(f"{name}: {result.completed} of {result.trials} trials{best}{lost}")
    if finished:
        print(f"{TUNED}: learn with it by `voxcast learn -S tune=tuned`")
    if line is not None:
        print(f"start workers:\n{line}")
