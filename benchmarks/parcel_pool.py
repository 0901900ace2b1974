"""The pool of `parcel_slurm`: its campaign, run by workers of Slurm, and what their passes did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from parcel_cells import CAMPAIGN, CLUSTER, IMAGES
from voxcast.files import read_json

VOXCAST = (sys.executable, "-m", "voxcast.cli")
SOME_LEFT = (0, 1)  # exit codes: all done, or some given up or left


def voxcast(project: Path, cache: Path, *arguments: str) -> dict[str, Any]:
    """Run a command in the project and return the object that it prints."""
    ended = subprocess.run(
        [*VOXCAST, *arguments, "--json"], cwd=project, stdout=subprocess.PIPE, text=True,
        check=False, env={**os.environ, "VOXCAST_CACHE": str(cache)},
    )  # fmt: skip
    if ended.returncode not in SOME_LEFT:
        raise SystemExit(f"voxcast {arguments[0]} failed, with exit code {ended.returncode}")
    content: dict[str, Any] = json.loads(ended.stdout)
    return content


def run_campaign(project: Path, cache: Path, partition: str) -> None:
    """Have workers of Slurm run the campaign in a partition, pass after pass."""
    images = ["-S", f"images.path={IMAGES}", "-S", f"images.participants=[{_label()}]"]
    state = voxcast(
        project, cache, "measure", "--campaign", CAMPAIGN, "--cluster", f"{CLUSTER}:{partition}",
        "--submit", "--poll", "2s", *images,
    )  # fmt: skip
    if state["left"] or state["given_up"]:
        raise SystemExit(f"{state['left']} cells left, {state['given_up']} given up: {project}")


def _label() -> str:
    """Return one of the participants: the campaign wants images, and its cells use none."""
    return min(path.name for path in IMAGES.glob("sub-*"))


def pilot_rows(project: Path) -> list[dict[str, Any]]:
    """Return time and memory of the pilot's runs."""
    from voxcast.runs.series import read_record

    rows = []
    for path in (project / "data/campaigns" / CAMPAIGN / "pool/runs").glob("*/run.json"):
        record = read_record(path.parent)
        cell = record.cell
        names = ("pipeline", "parcels", "target")
        rows.append({
            **{name: cell.parameters[name] for name in names}, "cpus": cell.configuration.cpus,
            **{n: getattr(record.run, n) for n in ("runtime_s", "cpu_s", "peak_rss_bytes")},
        })  # fmt: skip
    return sorted(rows, key=lambda row: (row["pipeline"], row["parcels"], row["target"]))


def pool_record(project: Path) -> dict[str, Any]:
    """Return what the passes of workers did: cells by pass, failures, parts, joined runs."""
    from voxcast.jobs.state import SubmissionState
    from voxcast.jobs.submission import Submission

    pool = project / "data/campaigns" / CAMPAIGN / "pool"
    submission = Submission.open(pool)
    events = list(submission.events())
    ends = [event for event in events if event["event"] == "ended" and "run" in event]
    job_of = {event["task"]: event["run"].split("~")[2].partition("_")[0] for event in ends}
    did = Counter(
        (event["run"].split("~")[2].partition("_")[0], "recorded" if event["record"] else "failed")
        for event in ends
    )
    did.update((job_of[event["task"]], "split") for event in events if event["event"] == "split")
    passes = [
        {
            "workers": len(array.names), "cpus": array.request.cpus,
            "memory_bytes": array.request.memory_bytes, "walltime_s": array.request.walltime_s,
            **{fate: did[array.job, fate] for fate in ("recorded", "failed", "split")},
        }
        for array in SubmissionState.of(submission.plan, events).arrays.values()
    ]  # fmt: skip
    records = [read_json(path) for path in (pool / "runs").glob("*/run.json")]
    errors = [event["attempt"]["outcome"] for event in ends if not event["record"]]
    joined = [record for record in records if "parts" in record]
    return {
        "passes": passes, "runs": len(records), "failed_attempts": dict(Counter(errors)),
        "part_runs": len(list((pool / "part_runs").glob("*/run.json"))),
        "joined": [
            {"parts": len(record["parts"]), "runtime_s": record["run"]["runtime_s"]}
            for record in joined
        ],
    }  # fmt: skip
