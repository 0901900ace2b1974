"""``voxcast status DIR``: where a submission stands.

DIR is the folder of a submission, or of the outputs of one. Nothing is changed: attempts that
ended since a process last followed the submission count as waiting until one does.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import VoxcastError, one_line

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print how many tasks are done, what they used, and what failed."""
    parser = VerbParser(
        prog="voxcast status", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)

    from voxcast.hpc.slurm_executor import SlurmExecutor
    from voxcast.hpc.submission import Submission
    from voxcast.hpc.submission_state import SubmissionState
    from voxcast.hpc.submission_status import current_states, status_record, task_rows, text_lines

    submission = Submission.open(args.folder)
    state = SubmissionState.of(submission.plan, submission.events())
    current = {}
    if state.live and submission.executor == "slurm":
        try:
            current = current_states(state, SlurmExecutor(submission))
        except VoxcastError as error:
            logger.warning("what runs now is not known: %s", one_line(error))
    rows = task_rows(submission, state, current)
    if args.json:
        content = status_record(submission, rows)
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        for line in text_lines(submission, rows):
            print(line)
    return 0
