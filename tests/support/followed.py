"""A submission in tests: followed to its end or to a condition, and what became of its tasks."""

import time
from collections.abc import Callable

from voxcast.jobs.follow import Follower

PATIENCE_S = 180.0


def followed(
    follower: Follower,
    each: Callable[[Follower], None] = lambda _: None,
    until: Callable[[Follower], bool] = lambda _: False,
) -> Follower:
    """Take steps until no attempt is left, or a condition holds; ``each`` acts between them."""
    deadline = time.monotonic() + PATIENCE_S
    while follower.step() and not until(follower):
        assert time.monotonic() < deadline, follower.current
        each(follower)
        time.sleep(0.5)
    return follower


def outcomes(follower: Follower, name: str) -> list[str]:
    """Return how the attempts of a task ended."""
    return [attempt.outcome for attempt in follower.state.attempts(name)]


def running(follower: Follower, name: str) -> str:
    """Return the task of Slurm that runs a task, such as ``12_1``; empty if none does."""
    task_state = follower.current.get(name)
    if task_state is None or not task_state.is_running:
        return ""
    array, number = follower.state.live[name]
    return f"{follower.state.arrays[array].job}_{number}"
