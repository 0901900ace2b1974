"""Jobs of a submission in the history: each attempt that has ended is a run, once.

A completed attempt is a label. One that was killed is a lower bound, with its use so far. One
that failed by itself, or was never started, measures neither time nor memory and is left out. The
prediction that its request rested on is kept beside it, as labels, with memory as Slurm counts it.

These runs are less exact than runs of a campaign. Slurm samples memory at intervals
(`JobAcctGatherFrequency`), so a short peak is missed, and a job that is shorter than the interval
has no memory that can be trusted. Nothing was timed beside them, so it is not known whether
other work disturbed them.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.errors import ImageError, TableError, is_disk_full, one_line
from voxcast.files import canonical_json, locked
from voxcast.images.sources import subject_of
from voxcast.images.summary import Grids, summarise
from voxcast.images.volume import Volume
from voxcast.jobs.state import EndedAttempt, SubmissionState
from voxcast.records import as_fields
from voxcast.runs.imported import ImportedRun, positive, row_of
from voxcast.runs.importer import add_images
from voxcast.runs.store import (
    add_part,
    free_part,
    recorded_cell_keys,
    sweep_partial,
)
from voxcast.runs.table import frame_of

if TYPE_CHECKING:
    from voxcast.jobs.submission import Submission
    from voxcast.jobs.task import Task

SOURCE = "submit"
BATCH = "jobs"  # of data/history
WITHOUT_VALUES = "failed"
SLURM_MEMORY, SLURM_CPU = "slurm_maxrss", "slurm_totalcpu"


@dataclass(frozen=True)
class ProjectVolumes:
    """How a project names volumes, and computes their characteristics.

    Attributes
    ----------
    by_voxels : mapping of str to (str, str)
        Volume id and subject on record, by the hash of the voxels.
    coarse_points : int
        Grid of the characteristics.
    """

    by_voxels: Mapping[str, tuple[str, str]]
    coarse_points: int

    def facts(self, task: Task, started_at: str) -> dict[str, Any]:
        """Return the facts of a task's image: of the plan, or read from the file.

        Raises
        ------
        ImageError
            If the plan has none and the file cannot tell them.
        """
        facts = task.volume
        if facts is None or facts["coarse_points"] != self.coarse_points:
            facts = self._read(Path(task.image), started_at)
        volume_id, subject = self.by_voxels.get(
            facts["voxel_sha256"], (facts["volume_id"], facts["subject"])
        )
        return {**facts, "volume_id": volume_id, "subject": subject}

    def _read(self, path: Path, started_at: str) -> dict[str, Any]:
        """Read the facts of an image after a run on it."""
        try:
            changed_at = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
        except OSError as error:
            raise ImageError(f"cannot be read: {error.strerror}", path) from None
        # Slurm states whole seconds.
        margin = datetime.timedelta(seconds=1)
        if changed_at >= datetime.datetime.fromisoformat(started_at) + margin:
            raise ImageError("was changed after a run on it had started", path)
        summary = summarise(Volume.open(path), Grids(self.coarse_points))
        return summary.facts(subject_of(path), self.coarse_points)


def collected_text(collected: Mapping[str, Any]) -> str:
    """Return what `collect_jobs` did, in one line."""
    new = {"completed": collected["completed"], "killed": collected["censored"]}
    jobs = " and ".join(f"{count} {ended}" for ended, count in new.items() if count)
    rest = {
        "on record before": collected["on_record"],
        "failed or never started": collected["left_out"],
        "completed within a second, too short for Slurm's clock": collected["too_short"],
        "not ended": collected["running"],
        "without memory, too short for Slurm's sampling": collected["without_memory"],
        "without their image": sum(collected["without_image"].values()),
    }
    counts = (f"{count} {name}" for name, count in rest.items() if count)
    return "; ".join([f"new in the history: {jobs or 'no job'}", *counts])


def collect_jobs(submission: Submission, batch: Path, volumes: ProjectVolumes) -> dict[str, Any]:
    """Record the attempts of a submission that have ended and are not on record, as a new part.

    Returns
    -------
    dict
        The name of the new `part` of the batch, None if there was nothing new, and numbers of
        attempts: new ones that `completed` or are `censored`, and of the former `without_memory`;
        `on_record` before; `left_out`, which failed or were never started; `too_short`, which
        completed within a second that Slurm does not time; tasks still `running`; and by reason
        the new ones that cannot train `without_image`.

    Raises
    ------
    TableError
        If the history cannot be read or written.
    """
    state = SubmissionState.of(submission.plan, submission.events())
    counts: Counter[str] = Counter()
    without_image: Counter[str] = Counter()
    rows, images = [], {}
    try:
        with locked(batch):
            sweep_partial(batch)
            recorded_keys = recorded_cell_keys(batch)
            for name, ended in [(n, e) for n, attempts in state.ended.items() for e in attempts]:
                task, outcome = state.tasks[name], ended.attempt.outcome
                if outcome == WITHOUT_VALUES or not ended.attempt.runtime_s > 0:
                    counts["too_short" if outcome == "completed" else "left_out"] += 1
                    continue
                job = f"{state.arrays[ended.array].job}_{ended.number}"
                row = row_of(SOURCE, _run(submission, task, ended, job))[0]
                if row["cell_key"] in recorded_keys:
                    counts["on_record"] += 1
                    continue
                if task.image:
                    try:
                        facts = volumes.facts(task, row["started_at"])
                        row |= {key: facts[key] for key in ("volume_id", "subject")}
                        images[facts["volume_id"]] = facts
                    except ImageError as error:
                        without_image[one_line(error)] += 1
                rows.append(row)
            part = _write(batch, submission, rows, list(images.values())) if rows else None
    except OSError as error:
        if is_disk_full(error):  # Arrow's words for it name no file
            then = "free some and collect again, nothing is recorded twice"
            raise TableError("no space left on the device", batch, then) from error
        raise TableError(f"cannot be written to: {error.strerror}", batch) from error
    completed = [row for row in rows if row["outcome"] == "completed"]
    return {
        "part": part,
        "completed": len(completed),
        "censored": len(rows) - len(completed),
        **{name: counts[name] for name in ("on_record", "left_out", "too_short")},
        "running": len(state.live),
        "without_memory": sum(row["peak_rss_bytes"] is None for row in completed),
        "without_image": dict(without_image),
    }


def _run(submission: Submission, task: Task, ended: EndedAttempt, job: str) -> ImportedRun:
    attempt, facts, plan = ended.attempt, ended.facts, submission.plan
    machine = facts.get("machine") or {}
    peak_bytes = ended.peak_bytes
    started_at = _utc(facts.get("started_at", ""))
    predicted = submission.predicted(task)
    prediction = {} if predicted is None else as_fields(predicted)
    return ImportedRun(
        identity=[submission.label, ended.array, ended.number],
        values={
            "app": plan.app.name,
            "app_version": submission.app_versions.get(attempt.request.device, plan.app.version),
            "parameters_json": canonical_json(plan.parameters),
            "subject": subject_of(Path(task.image)) if task.image else "",
            "host_id": machine.get("host_id") or facts.get("node", ""),
            "host_class": machine.get("host_class", ""),
            "cpu_model": machine.get("cpu_model", ""),
            "node_type": attempt.request.partition,
            "device": attempt.request.device,
            "cpus": attempt.request.cpus,
            "gpus": attempt.request.gpus,
            "mem_limit_bytes": attempt.request.memory_bytes,
            # Runs of a day on a machine share its speed of that day.
            "sitting": started_at[:10],
            "outcome": attempt.outcome,
            "limit_s": attempt.request.walltime_s,
            "runtime_s": attempt.runtime_s,
            "cpu_s": positive(facts.get("cpu_s")),
            "cpu_method": (facts.get("cpu_method") or SLURM_CPU) if facts.get("cpu_s") else "",
            "peak_rss_bytes": peak_bytes,
            "memory_method": (facts.get("memory_method") or SLURM_MEMORY) if peak_bytes else "",
            "started_at": started_at,
        },
        labels={
            "job_id": job,
            "state": facts.get("state", ""),
            "nodes": facts.get("node", ""),
            "partition": attempt.request.partition,
            "cluster": plan.cluster,
            "submission": submission.label,
            "task": task.name,
            "submitted_at": _utc(facts.get("submitted_at", "")),
            "peak_rss_at_least_bytes": None if peak_bytes else positive(facts.get("peak_bytes")),
            **{
                _LABELS.get(name, name): value
                for name, value in prediction.items()
                if value not in (None, "") and (name != "out_of_range" or value)
            },
        },
    )


# Names of the figures as in files of predictions, see `voxcast.audit.predicted`.
_LABELS = {
    "runtime_s": "predicted_runtime_s",
    "peak_rss_bytes": "predicted_peak_rss_bytes",
    "runtime_s_upper": "upper_runtime_s",
    "peak_rss_bytes_upper": "upper_peak_rss_bytes",
}


def _utc(text: str) -> str:
    """Return a time of Slurm, which is local without a zone, as the history has it."""
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        return ""
    return time.astimezone(datetime.UTC).isoformat(timespec="seconds")


def _write(
    batch: Path,
    submission: Submission,
    rows: list[dict[str, Any]],
    images: Sequence[Mapping[str, Any]],
) -> str:
    """Write images, which the runs need, and then the runs."""
    if images:
        add_images(batch, images)
    rows = sorted(rows, key=lambda row: (row["started_at"], row["cell_key"]))
    provenance = {
        "runs": len(rows),
        "first_started_at": rows[0]["started_at"],
        "last_started_at": rows[-1]["started_at"],
        "submission": submission.label,
        "executor": submission.executor,
        "cluster": submission.plan.cluster,
        "versions": {"voxcast": voxcast.__version__},
    }
    part = free_part(batch, SOURCE)
    add_part(part, frame_of(rows), provenance)
    return part.name
