"""What the metronome tells of the speed of a machine during a run, and what it costs; prints JSON.

``--add results/bench/metronome.json`` adds the figures to the sittings in that file.

One small volume is segmented again and again on one core, and kernels are timed beside it, on the
same core and on another. A neighbour on the other core takes caches and memory in between, since
on a quiet machine there is nothing to explain. The CPU time of the runs is then explained by the
kernels, each run by coefficients from the others. The cost is measured apart and without the
neighbour, by constant work with and without the metronome in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from voxcast.files import write_json
from voxcast.measure.metronome import make_kernels, run_once

PROJECT = Path(__file__).parents[1]
APP = "ants_segment"
VOXELS = (1_200_000, 1_300_000, 1_400_000)
PERIODS_S = {"same core": 0.35, "other core": 0.7}
EVERY = (1, 2, 4, 8)  # ticks of the same core: one in so many counts
SHARE_BOUND = 0.02  # of a core
BLOCK_S, BLOCKS = 3.0, 20
STINTS_S = (10.0, 40.0)  # of work and of rest of the neighbour: about as long as runs
NEIGHBOUR_DOUBLES = 8_000_000  # 64 MB, more than the caches
SMOOTHED = (96, 96, 96)  # doubles, 7 MB: depends on caches and memory as the applications do

Tick = dict[str, float]


@dataclass(frozen=True)
class Run:
    """One run: when it began and ended, its CPU seconds, those of its start."""

    begun_s: float
    ended_s: float
    cpu_s: float
    start_cpu_s: float
    steal: float | None
    noisy: bool


def write_ticks(core: int, period_s: float) -> None:
    """Time the kernels on a core until killed; one line of JSON for each time."""
    os.sched_setaffinity(0, {core})
    kernels = make_kernels()
    while True:
        time.sleep(period_s)
        print(json.dumps({"at_s": time.monotonic(), **run_once(kernels)}), flush=True)


def disturb(core: int) -> None:
    """Take caches and memory in stints of random length until killed."""
    os.sched_setaffinity(0, {core})
    rng = np.random.default_rng(1)
    source = rng.standard_normal(NEIGHBOUR_DOUBLES)
    target = np.zeros_like(source)
    indices = rng.integers(0, NEIGHBOUR_DOUBLES, NEIGHBOUR_DOUBLES // 16)
    while True:
        end_s = time.monotonic() + rng.uniform(*STINTS_S)
        while time.monotonic() < end_s:
            np.copyto(target, source)
            source.take(indices)
        time.sleep(rng.uniform(*STINTS_S))


@contextlib.contextmanager
def companion(log: Path, *arguments: str) -> Iterator[None]:
    """Run another process of this benchmark during the block; its lines go into a file."""
    command = [sys.executable, __file__, *arguments]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream)
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def segmentations(folder: Path, core: int, repeats: int) -> list[Run]:
    """Segment one generated volume on ``core``; the first time does not count."""
    from voxcast.apps.app import command, environment
    from voxcast.config import load_app
    from voxcast.images.cohort import write_cohort
    from voxcast.measure.runner import measure
    from voxcast.records import Configuration
    from voxcast.records import Run as Measured
    from voxcast_apps.heads.grids import Sizes

    sizes = Sizes(voxels=VOXELS, axis_voxels=(48, 256), fixed_grids=())
    [image] = write_cohort(folder / "images", seed=1, subjects=1, sizes=sizes, root="/")
    app = load_app(PROJECT / "conf/app", APP, {})
    configuration = Configuration("cpu", 1)
    out = folder / "out"
    out.mkdir()
    argv = command(app, Path("/") / image.path, out, configuration, app.parameters)
    runs = []
    for _ in range(repeats + 1):
        begun_s = time.monotonic()
        run, phases = measure(
            argv, environment(configuration), folder / "run", base=Measured("", APP, cpus=1),
            cpus=[core],
        )  # fmt: skip
        cpu_s = run.cpu_s or 0.0
        start_s = sum(phase.cpu_s or 0.0 for phase in phases if phase.name == "start")
        runs.append(Run(begun_s, time.monotonic(), cpu_s, start_s, run.steal, run.noisy))
        print(f"{cpu_s:.2f} s", file=sys.stderr)
    return runs[1:]


def during(ticks: Sequence[Tick], run: Run, every: int = 1) -> list[Tick]:
    """Return one in ``every`` of the ticks during a run."""
    return [tick for tick in ticks if run.begun_s <= tick["at_s"] <= run.ended_s][::every]


def log_means(ticks: Sequence[Tick], runs: Sequence[Run], names: Sequence[str]) -> np.ndarray:
    """Return the logarithm of the mean time of each kernel during each run."""
    means = [
        [statistics.mean(tick[name] for tick in during(ticks, run)) for name in names]
        for run in runs
    ]
    logs: np.ndarray = np.log(np.array(means).reshape(len(runs), len(names)))
    return logs


def left_over(logs: np.ndarray, gauges: np.ndarray) -> dict[str, float]:
    """Return the scatter of runs that is left by gauges, in percent, with its 95 % interval.

    Each run is predicted by least squares from the others. The interval is that of chi-squared
    with one degree of freedom for each run less the coefficients.
    """
    from scipy.stats import chi2

    design = np.column_stack([np.ones(len(logs)), gauges])
    errors = []
    for n in range(len(logs)):
        rest = np.arange(len(logs)) != n
        coefficients = np.linalg.lstsq(design[rest], logs[rest], rcond=None)[0]
        errors.append(logs[n] - design[n] @ coefficients)
    mean_square, free = float(np.mean(np.square(errors))), len(logs) - design.shape[1]
    low, high = (math.sqrt(free * mean_square / chi2.ppf(p, free)) for p in (0.975, 0.025))
    percent = 100 * math.sqrt(mean_square)
    return {"percent": percent, "low": 100 * low, "high": 100 * high}


def explained(runs: Sequence[Run], ticks: dict[str, list[Tick]]) -> dict[str, Any]:
    """Return what each kernel and set of kernels leaves of the scatter of the runs."""
    logs = np.log([run.cpu_s for run in runs])
    starts = np.log([[run.start_cpu_s] for run in runs])
    names = [name for name in ticks["same core"][0] if name != "at_s"]
    rows: dict[str, Any] = {
        "nothing": left_over(logs, np.empty((len(runs), 0))),
        "own start": left_over(logs, starts),
    }
    kernels: dict[str, Any] = {}
    log_means_by_place: dict[str, list[list[float]]] = {}
    for place, place_ticks in ticks.items():
        gauges = log_means(place_ticks, runs, names)
        log_means_by_place[place] = gauges.tolist()
        for n, name in enumerate(names):
            kernels[f"{name}, {place}"] = {
                "cv_percent": 100 * float(np.std(gauges[:, n], ddof=1)),
                "correlation": float(np.corrcoef(gauges[:, n], logs)[0, 1]),
            }
            rows[f"{name}, {place}"] = left_over(logs, gauges[:, [n]])
        memory = [names.index("gather"), names.index("interpreter")]
        rows[f"gather and interpreter, {place}"] = left_over(logs, gauges[:, memory])
        rows[f"mean of all four, {place}"] = left_over(logs, gauges.mean(axis=1, keepdims=True))
        rows[f"all four, {place}"] = left_over(logs, gauges)
    for every in EVERY[1:]:
        thinned = [tick for run in runs for tick in during(ticks["same core"], run, every)]
        gauges = log_means(thinned, runs, names).mean(axis=1, keepdims=True)
        name = f"mean of all four, same core, every {every * PERIODS_S['same core']:.1f} s"
        rows[name] = left_over(logs, gauges)
    return {"kernels": kernels, "left_over": rows, "log_means": log_means_by_place}


def cost(core: int) -> dict[str, Any]:
    """Return the share of a core that the metronome uses, and by how much it slows other work."""
    from scipy.ndimage import gaussian_filter
    from scipy.stats import t

    from voxcast.measure.metronome import Metronome

    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    block = np.random.default_rng(0).standard_normal(SMOOTHED)
    means: dict[bool, list[float]] = {False: [], True: []}
    shares, ticks = [], 0
    with Metronome() as metronome, Metronome(enabled=False) as silent:
        for n in range(2 * BLOCKS):
            beside = n % 4 in (1, 2)  # off, on, on, off: a trend cancels out
            begun_s, cpu_s, passes = time.monotonic(), time.thread_time(), 0
            with (metronome if beside else silent).beside([core]) as ticking:
                while time.monotonic() - begun_s < BLOCK_S:
                    gaussian_filter(block, 1.0, output=block)
                    passes += 1
                wall_s = time.monotonic() - begun_s
            means[beside].append((time.thread_time() - cpu_s) / passes)
            if beside:
                shares.append(ticking.stop().cpu_s / wall_s)
                ticks += ticking.stop().columns.get("metronome_ticks", 0)
    os.sched_setaffinity(0, allowed)
    differences = np.log(means[True]) - np.log(means[False])
    half = float(t.ppf(0.975, BLOCKS - 1) * differences.std(ddof=1) / math.sqrt(BLOCKS))
    slower = float(differences.mean())
    return {
        "share_of_a_core": statistics.mean(shares),
        "bound": SHARE_BOUND,
        "ticks": ticks,
        "work_slower_percent": 100 * slower,
        "low": 100 * (slower - half),
        "high": 100 * (slower + half),
    }


def main() -> int:
    """Print the figures; the exit status is 1 if the metronome costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--conditions", default="", help="a note of what else the machine did")
    parser.add_argument("--add", type=Path, metavar="FILE", help="a file of sittings")
    parser.add_argument("--undisturbed", action="store_true", help="without the neighbour")
    parser.add_argument("--ticks", nargs=2, type=float, help=argparse.SUPPRESS)
    parser.add_argument("--neighbour", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ticks:
        write_ticks(int(args.ticks[0]), args.ticks[1])
    if args.neighbour is not None:
        disturb(args.neighbour)
    cores = sorted(os.sched_getaffinity(0))
    places = dict(zip(PERIODS_S, cores, strict=False))  # without a second core only the first
    figures: dict[str, Any] = {"conditions": args.conditions, "neighbour": not args.undisturbed}
    figures["load1"] = [os.getloadavg()[0]]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="voxcast-bench-")))
        logs = {place: folder / f"{place}.jsonl" for place in places}
        for place, core in places.items():
            ticking = ("--ticks", str(core), str(PERIODS_S[place]))
            stack.enter_context(companion(logs[place], *ticking))
        if len(places) > 1 and not args.undisturbed:
            neighbour = ("--neighbour", str(places["other core"]))
            stack.enter_context(companion(folder / "neighbour.log", *neighbour))
        runs = segmentations(folder, cores[0], args.repeats)
        ticks = {
            place: [json.loads(line) for line in log.read_text().split("\n")[:-1]]
            for place, log in logs.items()
        }
    figures["load1"].append(os.getloadavg()[0])
    figures["runs"] = [asdict(run) for run in runs]
    figures |= explained(runs, ticks)
    figures["cost"] = cost(cores[0])
    figures["load1"].append(os.getloadavg()[0])
    print(json.dumps(figures, indent=2))
    if args.add is not None:
        sittings = json.loads(args.add.read_text())["sittings"] if args.add.exists() else []
        write_json(args.add, {"sittings": [*sittings, figures]})
    return 0 if figures["cost"]["share_of_a_core"] <= SHARE_BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
