"""The loop of a process that follows a submission, with its progress on stderr."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from voxcast.hpc.submission_status import task_rows

if TYPE_CHECKING:
    from voxcast.hpc.follower import Follower
    from voxcast.hpc.follower_lock import Claim

POLL_S = 30.0
LONGEST_NAP_S = 60.0  # a claim is touched at least so often


def follow(follower: Follower, claim: Claim, poll_s: float = POLL_S) -> None:
    """Follow a submission until no task has an attempt left.

    Parameters
    ----------
    poll_s : float
        Seconds between two questions to the scheduler.
    """
    from tqdm import tqdm

    with tqdm(total=len(follower.state.tasks), unit="task", disable=None, leave=False) as bar:
        while True:
            claim.touch()
            goes_on = follower.step()
            rows = task_rows(follower.submission, follower.state, follower.current)
            counts = Counter(row["status"] for row in rows)
            bar.n = sum(counts[status] for status in ("completed", "given up", "refused"))
            bar.set_postfix({status: n for status, n in counts.items() if status != "completed"})
            if not goes_on:
                return
            nap(poll_s, claim)


def nap(seconds: float, claim: Claim) -> None:
    """Sleep, and touch the claim meanwhile."""
    deadline = time.monotonic() + seconds
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(left_s, LONGEST_NAP_S))
        claim.touch()
