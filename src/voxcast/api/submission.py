"""A submission from Python: its state, its end and its runs."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.errors import ConfigError, RunError, VoxcastError, is_disk_full, one_line
from voxcast.jobs.claim import claimed, holder_here, is_followed
from voxcast.jobs.follow import Follower, follow
from voxcast.jobs.local import LocalExecutor
from voxcast.jobs.slurm import SlurmExecutor, check_installed, submit_follow_up
from voxcast.jobs.state import FINAL, SubmissionState, TaskState, counts, states_seen, task_rows
from voxcast.jobs.submission import Submission as JobSubmission

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from voxcast.jobs.collect import ProjectVolumes
    from voxcast.jobs.submission import Plan as JobPlan

LOCAL_POLL_S = 0.5
POLL_S = 30.0
FOLLOWER_LOG = "follower.log"
ON_RECORD = Path("data/catalogue/on_record.parquet")

logger = logging.getLogger(__name__)


class Submission:
    """A submission in a folder of results; what another process does with it is seen here.

    Parameters
    ----------
    out : path
        Folder of the results, whose newest submission it is, or of the submission itself.

    Raises
    ------
    ConfigError
        If the folder holds none.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self._submission = JobSubmission.open(Path(out))

    @property
    def folder(self) -> Path:
        """The folder with plan, scripts, logs and events."""
        return self._submission.folder

    def status(self) -> pd.DataFrame:
        """Return one row for each image: ``status``, ``reason``, ``job``, predictions, output."""
        import pandas as pd

        state, current = self._states()
        table = pd.DataFrame(task_rows(self._submission, state, current))
        return table.assign(attempts=table["attempts"].map(len))

    def runs(self) -> pd.DataFrame:
        """Return one row for each attempt that ended, with its request and its use."""
        import pandas as pd

        attempts = [
            {"task": task["task"], **attempt}
            for task in task_rows(self._submission, *self._states())
            for attempt in task["attempts"]
        ]
        requests = pd.DataFrame([attempt.pop("request") for attempt in attempts])
        return pd.DataFrame(attempts).join(requests.add_prefix("requested_"))

    def wait(self, poll_s: float = POLL_S) -> Submission:
        """Wait until no image has an attempt left; follow the jobs if no other process does."""
        pause_s = pause_of(self._submission, poll_s)
        while not self._is_done():
            if is_followed(self.folder):
                time.sleep(pause_s)
                continue
            with following(self._submission) as follower:
                follow(follower, pause_s)
        return self

    def cancel(self) -> None:
        """Stop what runs and waits; results stay, and `wait` makes the remaining runs again.

        Raises
        ------
        RunError
            If a process on another machine runs them.
        """
        process = holder_here(self.folder)
        if process is not None and process != os.getpid():
            os.kill(process, signal.SIGINT)
        if self._submission.executor == "slurm":
            state, _ = self._states()
            tasks = [(state.arrays[n].job, number) for n, number in state.live.values()]
            if tasks:
                SlurmExecutor(self._submission).cancel(tasks)

    def _is_done(self) -> bool:
        return set(counts(*self._states())) <= FINAL

    def _states(self) -> tuple[SubmissionState, dict[str, TaskState]]:
        state = SubmissionState.of(self._submission.plan, self._submission.events())
        return state, states_seen(self._submission, state)


def start(plan: JobPlan, out: Path, *, is_local: bool) -> Submission:
    """Submit a plan, and leave it to a process or a job of its own that follows.

    Raises
    ------
    VoxcastError
        If results are there already, or Slurm refuses the jobs.
    """
    if not plan.tasks:
        raise ConfigError("has no image with a request", "submit", "see `Plan.table`")
    if not is_local:
        check_installed()
    submission = JobSubmission.create(plan, out, "local" if is_local else "slurm")
    if is_local:
        command = [sys.executable, "-m", "voxcast.cli", "submit", "--out", str(submission.folder)]
        with (submission.folder / FOLLOWER_LOG).open("wb") as log:
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
    else:
        with following(submission) as follower:
            hand_over(follower)
    return Submission(submission.folder)


@contextlib.contextmanager
def following(submission: JobSubmission, patience_s: float = 0.0) -> Iterator[Follower]:
    """Claim a submission, and give what follows it; say how to go on when the disk is full.

    Parameters
    ----------
    patience_s : float
        Time that another process may take to give it up.
    """
    try:
        with contextlib.ExitStack() as stack:
            claim = stack.enter_context(claimed(submission.folder, patience_s))
            if submission.executor == "slurm":
                yield Follower(submission, SlurmExecutor(submission), claim)
            else:
                local = stack.enter_context(contextlib.closing(LocalExecutor(submission)))
                yield Follower(submission, local, claim)
    except (OSError, VoxcastError) as error:
        if not is_disk_full(error):
            raise
        raise RunError(
            f"no space left on the device; {left_of(submission)}",
            submission.folder, f"free some, then `{again(submission)}` continues",
        ) from None  # fmt: skip


def hand_over(follower: Follower) -> str:
    """Do one step, and submit a small job that follows; return its number, if one is needed."""
    return submit_follow_up(follower.submission, follower.state) if follower.step() else ""


def pause_of(submission: JobSubmission, poll_s: float) -> float:
    """Return the time between two looks at the jobs."""
    return min(poll_s, LOCAL_POLL_S) if submission.executor == "local" else poll_s


def again(submission: JobSubmission) -> str:
    """Return the command that goes on with a submission."""
    return f"voxcast submit --out {shlex.quote(str(submission.folder))}"


def left_of(submission: JobSubmission) -> str:
    """Return what became of the runs of a submission that nobody follows."""
    return "jobs go on" if submission.executor == "slurm" else "its runs were stopped"


def collected(submission: JobSubmission, folder: Path) -> dict[str, Any]:
    """Record the ended jobs of a submission in the history of a project.

    Raises
    ------
    VoxcastError
        If the project or its history cannot be read.
    """
    from voxcast.jobs.collect import BATCH, collect_jobs

    result = collect_jobs(submission, folder / projects.HISTORY / BATCH, _volumes(folder))
    for reason, count in result["without_image"].items():
        logger.warning("%d jobs cannot train: %s", count, reason)
    return result


def collect_at_end(submission: JobSubmission, folder: Path | None) -> None:
    """Do the same at the end of a submission that was made in a project with its application.

    A failure is logged: `voxcast status --collect` does it later.
    """
    try:
        root = projects.find(folder)
        file = f"{submission.plan.app.name}.yaml"
        if root is None or not (root / projects.CONF_APP / file).is_file():
            return
        from voxcast.jobs.collect import collected_text

        logger.info("%s", collected_text(collected(submission, root)))
    except VoxcastError as error:
        then = f"voxcast status {submission.folder} --collect"
        logger.warning("not in the history: %s; `%s` tries again", one_line(error), then)


def _volumes(folder: Path) -> ProjectVolumes:
    from voxcast import config
    from voxcast.jobs.collect import ProjectVolumes

    features = config.load(folder / config.PARAMS_FILE).features
    by_voxels = {}
    if (folder / ON_RECORD).is_file():
        import pandas as pd

        table = pd.read_parquet(
            folder / ON_RECORD, columns=["voxel_sha256", "volume_id", "subject"]
        )
        rows = table.dropna().itertuples(index=False)
        by_voxels = {str(voxels): (str(name), str(subject)) for voxels, name, subject in rows}
    return ProjectVolumes(by_voxels, features.coarse_points)
