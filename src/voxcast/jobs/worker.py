"""``python -m voxcast.jobs.worker --pool DIR``: take cells of a pool that fit here, and run them.

Start as many as you like, on any machine that sees the folder, in jobs of any size. Each takes
random cells that its own job is large enough for, until none is left or its time is up.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from voxcast.errors import ConfigError, RunError, exits_cleanly, one_line
from voxcast.jobs.draw import work, worker_allocation
from voxcast.jobs.submission import Submission
from voxcast.measure.host import host_facts
from voxcast.quantities import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxcast.records import Cell

logger = logging.getLogger(__name__)

CHOICES = ("app", "device", "scale", "subject")


class _Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, self.prog, "see --help")


def _amount(parse: Callable[[str], float], text: str | None, option: str) -> float | None:
    """Return an amount that is above zero; None stays None."""
    if text is None:
        return None
    try:
        amount = parse(text)
    except ConfigError as error:
        raise ConfigError(one_line(error), option) from None
    if amount <= 0:
        raise ConfigError("must be above zero", option)
    return amount


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Work until nothing that fits is left."""
    parser = _Parser(
        prog="python -m voxcast.jobs.worker", description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--pool", type=Path, required=True, metavar="DIR", help="folder of a pool")
    parser.add_argument(
        "--only", action="append", default=[], metavar="KEY=VALUE",
        help=f"take only such cells: {', '.join(CHOICES)}; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--time-budget", metavar="2h",
        help="no longer than this (default: the time that the job has left)",
    )  # fmt: skip
    parser.add_argument("--cpus", type=int, metavar="N", help="default: those of the job")
    parser.add_argument("--memory", metavar="SIZE", help="e.g. 8GB (default: that of the job)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args(argv)
    budget_s = _amount(parse_seconds, args.time_budget, "--time-budget")
    wanted = _wanted(args.only)
    memory_bytes = _amount(parse_bytes, args.memory, "--memory")
    facts = host_facts()
    if args.cpus is not None and not 1 <= args.cpus <= facts.cores:
        raise ConfigError(f"must be 1 to {facts.cores} here, not {args.cpus}", "--cpus")
    if memory_bytes is not None and memory_bytes > facts.memory_bytes:
        raise ConfigError("must be at most the memory of the machine", "--memory")
    allocation = worker_allocation(
        facts,
        os.environ,
        cpus=args.cpus,
        memory_bytes=None if memory_bytes is None else int(memory_bytes),
        time_budget_s=budget_s,
    )
    submission = Submission.open(args.pool.resolve(), with_tasks=False)
    _enter_project(submission)
    received = _noted_signals()
    logger.info("%s, for %s", submission.plan.app.name, allocation)
    summary = work(submission, allocation, facts, wanted=wanted, stopped=lambda: bool(received))
    if summary.stopped:
        logger.warning("asked to stop; the cell at hand was returned")
    if args.json:
        print(json.dumps(dataclasses.asdict(summary)))
    else:
        _show(summary.recorded, summary.failed, summary.left, summary.lacking)
    return 0


def _show(recorded: int, failed: int, left: int, lacking: dict[str, int]) -> None:
    print(f"{recorded} runs recorded, {failed} attempts failed, {left} cells wait")
    for lack, count in sorted(lacking.items()):
        print(f"  {count} need more here: {lack}")


def _wanted(choices: list[str]) -> Callable[[Cell], bool]:
    wanted: dict[str, set[str]] = {}
    for text in choices:
        key, sign, value = text.partition("=")
        if not sign or key not in CHOICES:
            raise ConfigError(
                f"needs KEY=VALUE, not {text!r}", "--only", f"choose from {', '.join(CHOICES)}"
            )
        wanted.setdefault(key, set()).add(
            value.removeprefix("sub-") if key == "subject" else value
        )

    def is_wanted(cell: Cell) -> bool:
        values = vars(cell) | {"device": cell.configuration.device}
        return all(values[key] in chosen for key, chosen in wanted.items())

    return is_wanted


def _enter_project(submission: Submission) -> None:
    """Change to the folder that relative paths of the cells begin at."""
    draw = submission.plan.draw
    try:
        os.chdir(submission.folder if draw is None else draw.project)
    except OSError as error:
        reason = f"the project of the pool cannot be entered ({error.strerror})"
        then = "is its file system mounted here?"
        raise RunError(reason, error.filename, then) from None


def _noted_signals() -> list[int]:
    """Return a list that gets the signals by which a system asks this process to end.

    Batch systems send SIGTERM some time before they kill a job, terminals SIGHUP when they
    close. They raise no exception: Python loses one that comes while it starts a process.
    """
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda received_number, _: received.append(received_number))
    return received


if __name__ == "__main__":
    sys.exit(main())
