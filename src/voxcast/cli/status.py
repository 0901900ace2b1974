"""``voxcast status DIR``: where a submission stands, or the content of a cache.

DIR is the folder of a submission (of a pool of work: its cells), of the outputs of one, or of a
cache (entries and hit rate).
Nothing is changed: attempts that ended since a process last followed the submission count as
waiting until one does.

With ``--collect`` the jobs that have ended become runs in the history of the project, each once:
``voxcast retrain`` learns from them, ``voxcast drift`` watches them.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

from voxcast import project
from voxcast.cli.job_collection import collected
from voxcast.cli.shared_options import add_project_argument
from voxcast.cli.verb_parser import VerbParser
from voxcast.content_cache import is_cache
from voxcast.errors import ConfigError, VoxcastError, one_line

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print how many tasks are done and what failed; or the use of a cache."""
    parser = VerbParser(
        prog="voxcast status", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument(
        "--collect", action="store_true", help="add jobs that have ended to data/history/jobs"
    )
    add_project_argument(parser)
    args = parser.parse_args(argv)
    if is_cache(args.folder):
        _show_cache(args.folder, args.json)
        return 0
    folder = project.require(args.project) if args.collect else None

    from voxcast.jobs.collect import collected_text
    from voxcast.jobs.draw import running_cells
    from voxcast.jobs.slurm import SlurmExecutor
    from voxcast.jobs.state import SubmissionState
    from voxcast.jobs.status import (
        current_states,
        states_here,
        status_record,
        task_rows,
        text_lines,
    )
    from voxcast.jobs.submission import Submission

    submission = Submission.open(args.folder)
    is_drawn = submission.plan.draw is not None
    if is_drawn and args.collect:
        then = "`voxcast campaign run NAME --cluster C` collects the runs of workers"
        raise ConfigError("adds the jobs of a submission", "--collect", then)
    state = SubmissionState.of(submission.plan, submission.events())
    current = running_cells(submission) if is_drawn else {}
    if state.live and not is_drawn:
        try:
            current = (
                states_here(submission, state)
                if submission.executor == "local"
                else current_states(state, SlurmExecutor(submission), with_steps=False)
            )
        except (VoxcastError, OSError) as error:
            logger.warning("what runs now is not known: %s", one_line(error))
    rows = task_rows(submission, state, current)
    jobs = None if folder is None else collected(submission, folder)
    if args.json:
        content = status_record(submission, rows)
        content |= {} if jobs is None else {"collected": jobs}
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        for line in text_lines(submission, rows):
            print(line)
        if jobs is not None:
            print(f"  {collected_text(jobs)}")
    return 0


def _show_cache(folder: Path, as_json: bool) -> None:
    from voxcast.content_cache import cache_status

    status = cache_status(folder)
    if as_json:
        print(json.dumps(status.summary(), indent=2, allow_nan=False))
    else:
        print("\n".join(status.text_lines()))
