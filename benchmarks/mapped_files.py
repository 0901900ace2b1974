"""Measure how much more a sum of resident pages is than what the processes of a run hold.

Slurm's sampling (JobAcctGatherType=jobacct_gather/linux) adds up VmRSS of all processes of a job.
That counts pages mapped from files, mostly shared libraries, which are no part of recorded memory
and which control groups charge to whoever read them first. Each application runs in a shell, as in
a job, on small generated heads; twenty times a second its processes are read. Writes
``results/memory/mapped_files.json``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from voxcast import config
from voxcast.apps.app import command, environment
from voxcast.files import write_json
from voxcast.images.image_set import write_cohort
from voxcast.measure.processes import read
from voxcast.records import Configuration
from voxcast_apps.heads.grids import Sizes

OUT, APPS = Path("results/memory/mapped_files.json"), Path("conf/app")
NAMES = ("ants_segment", "ants_register", "tile_segment", "dnn_train")
SIZES, SEED = Sizes((350_000, 400_000, 600_000), (48, 256)), 515
HEADS, HZ = 2, 20.0
FIELDS = ("VmRSS", "RssAnon", "RssFile", "RssShmem")


def resident(pid: int) -> dict[str, int]:
    """Return the resident bytes of a process and its descendants, by kind."""
    total = dict.fromkeys(FIELDS, 0)
    try:
        process = psutil.Process(pid)
        pids = [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return total
    for member in pids:
        for line in (read(member, "status") or b"").decode().splitlines():
            name, _, value = line.partition(":")
            if name in total:
                total[name] += 1024 * int(value.split()[0])
    return total


def measured(app_name: str, image: Path | None, cpus: int) -> dict[str, float | str | int]:
    """Run an application once, and return the peaks of its resident memory in bytes."""
    app, configuration = config.load_app(APPS, app_name), Configuration("cpu", cpus, 0)
    with tempfile.TemporaryDirectory() as folder:
        words = command(app, image, Path(folder), configuration, dict(app.parameters))
        shell = ["bash", "-c", '"$@"; exit $?', "bash", *words]
        variables = {**os.environ, **environment(configuration)}
        with subprocess.Popen(shell, cwd=folder, env=variables, stdout=subprocess.DEVNULL) as run:
            samples = []
            while run.poll() is None:
                samples.append(resident(run.pid))
                time.sleep(1 / HZ)
    if run.returncode:
        raise SystemExit(f"{app_name} failed with exit code {run.returncode}")
    peak_rss = max(sample["VmRSS"] for sample in samples)
    peak_held = max(sample["RssAnon"] + sample["RssShmem"] for sample in samples)
    return {
        "app": app_name, "cpus": cpus, "peak_resident_bytes": peak_rss,
        "peak_held_bytes": peak_held, "difference_bytes": peak_rss - peak_held,
    }  # fmt: skip


def main() -> int:
    """Run every application on every head."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        heads = write_cohort(Path(folder), seed=SEED, subjects=HEADS, sizes=SIZES)
        for name in NAMES:
            has_image = config.load_app(APPS, name).input != "none"
            for image in [Path(head.path).resolve() for head in heads] if has_image else [None]:
                for cpus in (1, 2):
                    rows.append(measured(name, image, cpus))
                    print(rows[-1], file=sys.stderr, flush=True)
    write_json(OUT, {"runs": rows, "samples_per_s": HZ})
    return 0


if __name__ == "__main__":
    sys.exit(main())
