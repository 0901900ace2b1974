"""Plans of small shell commands, for tests of what runs them."""

import math
from collections.abc import Sequence
from pathlib import Path

from voxcast.jobs.submission import Plan, SlurmOptions
from voxcast.jobs.task import Limits, RequestSequence, Task, task_names
from voxcast.records import App, Prediction

MB = 10**6
PLANTED = Prediction(30.0, math.nan, 5e7, math.nan, risk=0.1)
# Copies the image, and says how it was started.
COPY = 'cp -- "$1" "$2/copy"; printf "%s\\n" "$3" "$OMP_NUM_THREADS" > "$2/threads"'
# Holds as many MB as its image says, for a second.
HOLD = 'exec perl -e \'my $x = "x" x ($ARGV[0] * 1e6); sleep 2\' "$(cat -- "$1")"'


def shell_app(script: str, name: str = "planted", **fields: object) -> App:
    """Return an application: a shell script with image, folder of results and CPUs as $1 to $3."""
    return App(name, "1", argv=("bash", "-c", script, "bash", "{image}", "{out}", "{threads}"),
               **fields)  # fmt: skip


def plan_of(
    app: App,
    images: Sequence[Path],
    *,
    walltimes_s: Sequence[float] = (120.0, 240.0),
    memories_bytes: Sequence[int] = (100 * MB, 400 * MB),
    cpus: int = 1,
    gpus: int = 0,
    partition: str = "debug",
    slurm: SlurmOptions | None = None,
    limits: Limits | None = None,
    container_engine: str = "none",
    prediction: Prediction | None = PLANTED,
) -> Plan:
    """Return a plan with a task for each image."""
    paths = [str(image) for image in images]
    requests = RequestSequence(
        tuple(walltimes_s), tuple(memories_bytes), cpus, gpus, partition,
        "gpu" if gpus else "cpu",
    )  # fmt: skip
    tasks = [
        Task(name, path, requests, usd_per_hour=1.0, prediction=prediction)
        for name, path in zip(task_names(paths), paths, strict=True)
    ]
    return Plan(
        app, tuple(tasks), {}, container_engine, "lab", limits or Limits(),
        slurm or SlurmOptions(),
    )  # fmt: skip


def write_images(folder: Path, names: Sequence[str], content: str = "voxels") -> list[Path]:
    """Write files that stand for images."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(content)
    return [folder / name for name in names]
