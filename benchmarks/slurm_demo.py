"""Forty images through a private Slurm on this machine: what is asked for, used, and lost.

Generates small head volumes, starts a Slurm of virtual nodes with as many CPUs as there are cores
here, submits them as `voxcast submit` predicts, exports the accounting and audits it. Everything
is in ``build/slurm-demo``; all daemons are stopped at the end, also if interrupted. Predictions
are those of the project's registered model, or of the reference model of the package.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from private_slurm import PACKAGES, PrivateSlurm, PrivateSlurmError, missing_programs

REPOSITORY = Path(__file__).parents[1]
APP, NODES = "ants_segment", 2
SEED = 515  # of heads that no recorded campaign has
VOXELS, AXIS_VOXELS = (350_000, 400_000, 600_000), (48, 256)
DEFAULT_S, DEFAULT_BYTES = 3600.0, 4 * 10**9  # what a user may write for all of them
VOXCAST = (sys.executable, "-m", "voxcast.cli")
COLUMNS = (
    "JobID,JobName,User,Account,Partition,State,ExitCode,Submit,Start,End,ElapsedRaw,TotalCPU,"
    "MaxRSS,ReqMem,ReqCPUS,AllocCPUS,AllocTRES,AllocNodes,TimelimitRaw,NTasks,TRESUsageInTot,"
    "SubmitLine"
)


class DemoError(Exception):
    """A step of the demonstration failed; the message says which."""


def project_with_model(folder: Path) -> Path:
    """Return this project, or a new one with the reference model if it has no model."""
    from voxcast.serving.model_store import MODELS
    from voxcast.serving.prediction_service import REFERENCE

    if (REPOSITORY / MODELS / "champion.json").is_file():
        return REPOSITORY
    project = folder / "project"
    if not (project / MODELS).is_dir():
        print("no model is registered: taking the reference model", file=sys.stderr)
        _run([*VOXCAST, "init", str(project)], REPOSITORY, "the project")
        shutil.copytree(REFERENCE, project / MODELS)
    return project


def generated_images(folder: Path, count: int) -> list[str]:
    """Write small head volumes; those that are there are kept."""
    from voxcast.images.image_set import write_cohort
    from voxcast_apps.heads.grids import Sizes

    files = write_cohort(
        folder, seed=SEED, subjects=count, sizes=Sizes(VOXELS, AXIS_VOXELS), label_prefix="l"
    )
    return [str(Path(file.path).resolve()) for file in files]


def summary_lines(
    submitted: dict[str, Any], makespan_s: float, cores: int, default: tuple[float, float]
) -> list[str]:
    """Return what was asked for, used and lost, and what one request for all would have been.

    Parameters
    ----------
    submitted : dict
        What ``voxcast submit --json`` printed.
    default : (float, float)
        Seconds and bytes that a user may request for each of the images.
    """
    attempts = [attempt for row in submitted["rows"] for attempt in row["attempts"]]
    requests = [attempt["request"] for attempt in attempts]
    minutes = [-(-r["walltime_s"] // 60) for r in requests]  # as Slurm counts time limits
    asked_h = sum(m * r["cpus"] for m, r in zip(minutes, requests, strict=True)) / 60
    used_h = sum(a["runtime_s"] * a["request"]["cpus"] for a in attempts) / 3600
    ran = [(a["request"]["memory_bytes"], a.get("peak_bytes"), a["runtime_s"]) for a in attempts]
    sampled = [(limit, peak, s) for limit, peak, s in ran if peak]
    asked_gb = sum(limit * s for limit, _, s in sampled) / 3.6e12
    used_gb = sum(peak * s for _, peak, s in sampled) / 3.6e12
    default_s, default_bytes = default
    default_h = len(submitted["rows"]) * default_s / 3600
    default_gb = sum(default_bytes * s for _, _, s in sampled) / 3.6e12
    outcomes = Counter(attempt["outcome"].replace("_", " ") for attempt in attempts)
    failed = ", ".join(f"{n} {o}" for o, n in sorted(outcomes.items()) if o != "completed")
    completed = submitted["by_status"].get("completed", 0)
    return [
        f"{completed} of {len(submitted['rows'])} images done in {makespan_s / 60:.1f} min on "
        f"{cores} CPUs of {NODES} virtual nodes",
        f"  attempts  {len(attempts)}; failed: {failed or 'none'}",
        f"  time      asked {asked_h:.2f} core-hours, used {used_h:.2f}; a default of "
        f"{default_s / 3600:g} h each asks {default_h:.0f}",
        f"  memory    asked {asked_gb:.3f} GB-hours, used {used_gb:.3f}; a default of "
        f"{default_bytes / 1e9:g} GB each holds {default_gb:.3f}",
    ]


def demonstrate(folder: Path, images: int) -> None:
    """Run it; results are in ``folder``."""
    project = project_with_model(folder)
    paths = generated_images(folder / "images", images)
    shutil.rmtree(folder / "results", ignore_errors=True)
    cores = len(os.sched_getaffinity(0))
    each = max(1, cores // NODES)
    # Sockets of daemons have short names only, so they are not below the folder of results.
    daemons = Path(tempfile.mkdtemp(prefix="voxcast-slurm-"))
    try:
        with PrivateSlurm(daemons, nodes=NODES, node_cpus=each) as slurm:
            print(f"Slurm is up: {NODES} virtual nodes of {each} CPUs", file=sys.stderr)
            environment = {**os.environ, **slurm.environment, "VOXCAST_PROJECT": str(project)}
            start = time.monotonic()
            submit = [
                *VOXCAST, "submit", *paths, "--app", APP, "--cpus", "1", "--cluster", "private",
                "--out", str(folder / "results"), "--poll", "2s", "--json",
            ]  # fmt: skip
            printed = _run(submit, project, "voxcast submit", environment, codes=(0, 1))
            makespan_s = time.monotonic() - start
            submitted = json.loads(printed)
            accounting = slurm.command("sacct", "-a", "-D", "-P", f"--format={COLUMNS}").stdout
            (folder / "jobs.txt").write_text(accounting)
    finally:
        shutil.rmtree(daemons, ignore_errors=True)
    predictions = [
        {"job_id": job, "predicted_runtime_s": row["predicted_runtime_s"],
         "predicted_peak_rss_bytes": row["predicted_memory_bytes"]}
        for row in submitted["rows"] for job in _completed_jobs(row)
    ]  # fmt: skip
    (folder / "predicted.jsonl").write_text("".join(f"{json.dumps(p)}\n" for p in predictions))
    picture = folder / "asked_used.svg"
    audit = [
        *VOXCAST, "audit", str(folder / "jobs.txt"), "--by", "app", "--shortest", "1s",
        "--predicted", str(folder / "predicted.jsonl"), "--picture", str(picture),
    ]  # fmt: skip
    print(_run(audit, project, "voxcast audit"))
    default = DEFAULT_S, DEFAULT_BYTES
    lines = summary_lines(submitted, makespan_s, each * NODES, default)
    (folder / "summary.txt").write_text("".join(f"{line}\n" for line in lines))
    print("\n".join(lines))
    print(f"picture: {picture}")


def _completed_jobs(row: dict[str, Any]) -> list[str]:
    """Return the job of the attempt that completed, as ``12_3``."""
    number = int(Path(row["log"]).stem.rpartition("-")[2]) if row["log"] else 0
    return [f"{a['job']}_{number}" for a in row["attempts"] if a["outcome"] == "completed"]


def _run(
    command: list[str], folder: Path, step: str, environment: dict[str, str] | None = None,
    codes: tuple[int, ...] = (0,),
) -> str:  # fmt: skip
    """Run a command, whose messages go to the terminal, and return what it prints."""
    ended = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode not in codes:
        raise DemoError(f"{step} failed, with exit code {ended.returncode}")
    return ended.stdout


def main() -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "slurm-demo")
    args = parser.parse_args()
    if missing := missing_programs():
        print(f"Slurm is not installed (no {', '.join(missing)}): apt-get install -y "
              f"--no-install-recommends {PACKAGES}", file=sys.stderr)  # fmt: skip
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        demonstrate(args.out.resolve(), args.images)
    except KeyboardInterrupt:
        print("interrupted; Slurm is stopped", file=sys.stderr)
        return 130
    except (DemoError, PrivateSlurmError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
