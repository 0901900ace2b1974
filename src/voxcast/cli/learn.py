"""``voxcast learn IMAGES --app NAME``: measure, learn, register, and name the next command.

Without IMAGES and --app the project's present configuration is run. The images are not copied.
Measured runs are kept: the same command continues after an interruption.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project
from voxcast.cli.learning_end import show_end
from voxcast.cli.machine_update import update_after_runs
from voxcast.cli.shared_options import (
    add_project_argument,
    add_time_budget_argument,
    cpu_counts,
)
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError, VoxcastError
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.cli.learning_session import LearningSession
    from voxcast.config import Config
    from voxcast.config.learning import DeviceOutlook, LearningRequest

CATALOGUE = Path("data/catalogue/catalogue.parquet")
IMAGES = Path("data/images")
HISTORY = Path("data/history")
MAX_PROBLEMS_SHOWN = 10
BOUND_SUBJECTS = 19


def main(argv: list[str]) -> int:
    """Learn an application on a user's images, or run the present configuration."""
    args = _parser().parse_intermixed_args(argv)
    # Batch systems stop a job with SIGTERM, terminals with SIGHUP; they interrupt as Ctrl-C does.
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signal_number) != signal.SIG_IGN:  # by nohup
            signal.signal(signal_number, signal.default_int_handler)
    folder = project.require(args.project)
    named = (
        args.images
        or args.cpus
        or args.participants
        or args.changes
        or args.time_budget is not None
    )
    if args.app is None and named:
        raise ConfigError(
            "is needed", "--app", "name an application of conf/app, see `voxcast app list`"
        )
    paths = [path.expanduser().absolute() for path in args.images]
    again = shlex.join(["voxcast", "learn", *argv])
    if inside := [
        path for path in paths if path.resolve().is_relative_to((folder / IMAGES).resolve())
    ]:
        raise ConfigError(
            f"is in {IMAGES} of the project, which is replaced by a list of your images",
            inside[0], "move it elsewhere",
        )  # fmt: skip
    os.chdir(folder)  # all other paths are relative to the project
    from voxcast.cli.learning_session import LearningSession
    from voxcast.cli.project_locks import learning_lock
    from voxcast.tracking.address import tracking_uri

    tracking_uri(folder)  # a folder that MLflow cannot use is refused before anything is measured
    session = LearningSession(None if args.app is None else _request(args, paths), again)
    try:
        with contextlib.nullcontext() if args.dry_run else learning_lock(Path()):
            return _learn(session, args)
    except KeyboardInterrupt:
        print(
            f"voxcast: interrupted; finished runs are kept, `{again}` continues", file=sys.stderr
        )
        return 130


def _learn(session: LearningSession, args: argparse.Namespace) -> int:
    from voxcast.config.learning import check_measurable, device_outlooks
    from voxcast.runs.series import MEASURED

    if count := session.generated_to_replace():  # before it is done
        volumes = "volume" if count == 1 else f"{count} volumes"
        _say("images", f"the {volumes} generated in {IMAGES} will be removed and replaced by "
             "the list of your images")  # fmt: skip
        _say("", "runs on them are kept; copy those that you still want to ask about")
    configured, catalogue = session.look() if args.dry_run else session.prepare()
    devices = device_outlooks(configured, catalogue, MEASURED)
    budget_s = configured.campaign.budget_s
    _show_images(configured, catalogue)
    _show_recorded(configured)
    try:
        if devices:
            _show_runs(devices, budget_s)
            check_measurable(devices, budget_s)
    except VoxcastError:
        session.restore()
        raise
    if args.dry_run:
        return 0
    if not _agreed(args.yes):
        session.restore()
        return 0
    if any(not entry.outlook.trusted for entry in devices):
        session.measure_first(devices)
        devices = device_outlooks(configured, catalogue, MEASURED)
        _show_runs(devices, budget_s)
    session.run(devices)
    update_after_runs(Path())
    show_end(device_outlooks(configured, catalogue, MEASURED), session.again, as_json=args.json)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="voxcast learn", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "images", nargs="*", type=Path, metavar="IMAGES",
        help="a BIDS dataset, a folder of NIfTI files, or files of one",
    )  # fmt: skip
    parser.add_argument("--app", help="an application of conf/app; see `voxcast app`")
    parser.add_argument(
        "--cpus", type=cpu_counts, default=(), metavar="N,N",
        help="numbers of CPUs to try (default: those of conf/device)",
    )  # fmt: skip
    add_time_budget_argument(
        parser, "time for measuring (default 1h); learning takes minutes more"
    )
    parser.add_argument(
        "--participant-label", dest="participants", nargs="+", default=[], metavar="LABEL",
        help="participants to use, with or without sub- (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "-S", dest="changes", action="append", default=[], metavar="KEY=VALUE",
        help="change a key of params.yaml, such as tune.trials=30 or\n"
        "evaluation.test_fraction=0.3; may be repeated",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only say what would be measured")
    parser.add_argument("--yes", action="store_true", help="do not ask before measuring")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    add_project_argument(parser)
    return parser


def _request(args: argparse.Namespace, paths: list[Path]) -> LearningRequest:
    from voxcast.config.learning import LearningRequest
    from voxcast.features.training_runs import batches_to_learn_from
    from voxcast.images.sources import select

    if args.participants and not paths:
        raise ConfigError("needs the dataset of the participants", "--participant-label")
    batches = batches_to_learn_from(HISTORY, args.app)
    return LearningRequest(
        app=args.app,
        images=select(paths, args.participants) if paths else None,
        budget_s=3600.0 if args.time_budget is None else args.time_budget,
        cpus=args.cpus,
        history=tuple(batches),
        changes=tuple(args.changes),
    )


def _show_images(configured: Config, catalogue: pd.DataFrame) -> None:
    usable = catalogue[catalogue["problem"].isna()]
    subjects = usable["subject"].nunique()
    where = "" if configured.images.path is None else f" in {configured.images.path}"
    _say("images", f"{len(usable)} of {len(catalogue)} usable, {subjects} subjects{where}")
    problems = catalogue["problem"].dropna()
    for problem in problems.iloc[:MAX_PROBLEMS_SHOWN]:
        _say("", problem)
    if len(problems) > MAX_PROBLEMS_SHOWN:
        _say("", f"and {len(problems) - MAX_PROBLEMS_SHOWN} more, in {CATALOGUE}")
    if subjects < BOUND_SUBJECTS:
        _say("", f"a bound for 95 % of subjects takes {BOUND_SUBJECTS}; the answers will say so")


def _show_recorded(configured: Config) -> None:
    from voxcast.features.training_runs import batches_to_learn_from

    for app in configured.apps:
        for name, count in batches_to_learn_from(HISTORY, app).items():
            if name in configured.features.history:
                _say("", f"also learns from {count} runs of {app} on record in {HISTORY / name}")


def _show_runs(devices: Sequence[DeviceOutlook], budget_s: float | None) -> None:
    for entry in devices:
        ahead, labels = entry.outlook, [c.label for c in entry.settings.configurations]
        for note in entry.plan.notes:
            _say("", note)
        if not ahead.total:
            continue
        names = ", ".join(entry.settings.apps)
        recorded = f", {ahead.total - ahead.left} on record" if ahead.left < ahead.total else ""
        _say("runs", f"{ahead.left} to measure{recorded}: {names} on {' and '.join(labels)}")
        if not ahead.left:
            continue
        if ahead.failed:
            after = "" if ahead.failed == ahead.left else ", after the others"
            _say("", f"{ahead.failed} of them failed before and are tried once more{after}")
        _say("", "runs that other work on this machine disturbs are measured once more")
        if not ahead.trusted:
            _say("time", "not known: the smallest image is measured first")
        elif budget_s is not None and ahead.left_s > budget_s:
            share = max(1, int(ahead.left * budget_s / ahead.left_s))
            _say("time", f"about {format_seconds(ahead.left_s)} for all; stops after "
                 f"{format_seconds(budget_s)} (--time-budget) with about {share}")  # fmt: skip
        else:
            most_s = min(2 * ahead.left_s, budget_s or math.inf)
            _say("time", f"about {format_seconds(ahead.left_s)}, {format_seconds(most_s)} if all "
                 "are measured again, then minutes for learning")  # fmt: skip


def _agreed(yes: bool) -> bool:
    """Ask before measuring, where somebody can answer."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print("start? [Y/n] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _say(name: str, text: str) -> None:
    """Print a line of the announcement; the result alone goes to standard output."""
    print(f"{name:12} {text}", file=sys.stderr)
