"""Small tables of runs for the screening of columns: honest ones, and ones with leaks."""

import numpy as np
import pandas as pd

ROWS = 400
UNNOTICED = (
    "whole minutes", "rounded up to ten minutes", "buckets, as numbers", "buckets, as texts",
    "more than a minute", "times CPUs", "times CPUs, with noise",
    "times CPUs, of the name of an input", "over CPUs", "end minus start",
    "noisy end minus start", "end minus start as counts", "three parts",
    "three parts with noise",
)  # fmt: skip
Tables = dict[str, dict[str, object]]


def drawn(seed: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """Return a generator, a size over two and a half decades, and a tool of two."""
    rng = np.random.default_rng(seed)
    return rng, np.exp(rng.uniform(0, 6, ROWS)), rng.choice(["a", "b"], ROWS)


def honest_tables(seed: int = 0) -> Tables:
    """Return tables whose columns are all known before the run; the target is ``seconds``."""
    rng, size, tool = drawn(seed)
    noise = rng.lognormal(0, 0.02, ROWS)
    heavy = rng.pareto(1.1, ROWS) + 1
    cpus, degree = rng.choice([1, 2, 4], ROWS), rng.integers(1, 9, ROWS)
    iterations = rng.integers(1, 50, ROWS)
    count = rng.permutation(np.arange(1000, 1000 + ROWS))
    tool_factor = np.where(tool == "a", 1, 3)
    slow = {"tool": tool, "seconds": (3 * size * tool_factor + 2) * rng.lognormal(0, 0.1, ROWS)}
    return {
        "exact law of one size": {"size": size, "seconds": 3 * size + 2},
        "the same, of a name that tells nothing": {"x": size, "seconds": 3 * size + 2},
        "the target is the size": {"x": size, "tool": tool, "seconds": size},
        "exact law of mesh and degree": {"mesh": size, "degree": degree, "seconds": size * degree},
        "mesh, and a correlated second input": {
            "mesh": size, "memory_pages": size * rng.lognormal(0, 0.1, ROWS),
            "seconds": 0.2 * size},
        "exact law of size and iterations": {"size": size, "iterations": iterations,
                                             "seconds": 0.01 * size * iterations},
        "size over CPUs": {"size": size, "cpus": cpus, "seconds": 2 * size / cpus},
        "in proportion to a size": {"voxels": size, "file_mb": size * rng.lognormal(0, 0.3, ROWS),
                                    "seconds": 3 * size * noise},
        "bytes, each once": {"bytes": (1e7 * size).astype(int), "tool": tool,
                             "seconds": 3 * size * noise},
        "heavy tails": {"size": heavy, "tool": tool, "seconds": 5 * heavy * noise**9},
        "unrelated": {"size": heavy, "tool": tool, "seconds": size},
        "length of an audio": {"duration": 10 * size, "model": tool,
                               "seconds": size * tool_factor * noise},
        "size of a system": {"system": size, "tool": tool, "seconds": size * noise},
        "release of two dates": {"release": np.where(tool == "a", "2023-01-01", "2024-06-30"),
                                 "size": size, "seconds": size * tool_factor * noise},
        "regular sweep, in order": {"n": np.arange(1, ROWS + 1), "tool": tool,
                                    "seconds": slow["seconds"]},
        "sorted, exact": {"n": np.arange(1, ROWS + 1), "seconds": np.arange(7.0, ROWS + 7)},
        "voxels that are created": {"created_voxels": (1e9 + 1e6 * size).astype(int), **slow},
        "size of a key": {"key_size": count, **slow},
        "entries of a hash": {"hash_entries": count, **slow},
        "rows of an index": {"index_rows": count, **slow},
        "first and last slice": {"first": count, "last": count + iterations,
                                 "seconds": 0.5 * iterations},
        "start and end of a region": {"start": count, "end": count + iterations,
                                      "tool": tool, "seconds": iterations * tool_factor * noise},
        "few values": {"n": 2 ** (np.arange(ROWS) % 6), "tool": tool, "seconds": size},
        "an earlier run": {"previous_runtime": size, "tool": tool, "seconds": size * noise},
        "usual noise of 10 %": {"size": size, "cpus": cpus, **slow},
    }  # fmt: skip


def leaking_tables(seed: int = 0) -> dict[str, tuple[str, dict[str, object]]]:
    """Return tables with a column that is known only after the run, and its name.

    Those of `UNNOTICED` need two columns, or are no ranking of the rows.
    """
    rng, size, tool = drawn(seed)
    seconds = (3 * size * np.where(tool == "b", 2, 1) + 2) * rng.lognormal(0, 0.1, ROWS)
    began, noise = 1e5 * rng.uniform(size=ROWS), rng.lognormal(0, 0.01, ROWS)
    cpus = rng.choice([1, 2, 4, 8], ROWS)
    shares = rng.dirichlet((2, 2, 2), ROWS).T
    jobs = {"size": size, "tool": tool, "seconds": seconds}
    parts = dict(zip(("load", "compute", "write"), shares * seconds, strict=True))
    moments = pd.to_datetime(1.7e9 + began + seconds, unit="s")
    leaks: dict[str, tuple[str, dict[str, object]]] = {
        "a copy, rounded": ("q", {"q": seconds.round(2)}),
        "a copy in hours": ("h", {"h": seconds / 3600}),
        "a copy of the name of an input": ("bytes", {"bytes": (1e6 * seconds).astype(int)}),
        "a copy of the name of a size": ("size_mb", {"size_mb": seconds * noise}),
        "whole minutes": ("units", {"units": (seconds // 60).astype(int)}),
        "rounded up to ten minutes": ("slots", {"slots": np.ceil(seconds / 600)}),
        "buckets, as numbers": ("class", {"class": np.digitize(seconds, [10, 100, 500])}),
        "buckets, as texts": ("queue", {"queue": np.where(seconds < 60, "short", "long")}),
        "more than a minute": ("slow", {"slow": seconds > 60}),
        "with noise": ("duration", {"duration": 1000 * seconds * rng.lognormal(0, 0.1, ROWS)}),
        "in proportion": ("after", {"after": 7.3 * seconds * noise}),
        "a rate": ("rate", {"rate": 100 / seconds * noise}),
        "its logarithm": ("z", {"z": np.log(seconds)}),
        "its square": ("energy", {"energy": seconds**2}),
        "times CPUs": ("su", {"cpus": cpus, "su": cpus * seconds / 3600}),
        "times CPUs, with noise": ("su", {"cpus": cpus, "su": cpus * seconds * noise}),
        "times CPUs, of the name of an input": ("tokens", {"cpus": cpus,
                                                           "tokens": cpus * seconds}),
        "over CPUs": ("share", {"cpus": cpus, "share": seconds / cpus}),
        "end minus start": ("t1", {"t0": began, "t1": began + seconds}),
        "noisy end minus start": ("t1", {"t0": began, "t1": began + seconds * noise**5}),
        "end minus start as counts": ("last_bytes", {"first_bytes": began,
                                                     "last_bytes": began + seconds}),
        "two parts": ("a", {"a": 0.3 * seconds * noise, "b": seconds - 0.3 * seconds * noise}),
        "three parts": ("load", parts),
        "three parts with noise": ("load", {n: v * noise**3 for n, v in parts.items()}),
        "peak memory by name": ("MaxRSS", {"MaxRSS": rng.choice(["4K", "8K"], ROWS)}),
        "CPU time by name": ("cpu_s", {"cpu_s": seconds * rng.lognormal(0, 0.3, ROWS)}),
        "exit code by name": ("ExitCode", {"ExitCode": rng.choice(["0:0", "1:0"], ROWS)}),
        "its end as a date": ("End", {"End": moments.strftime("%Y-%m-%dT%H:%M:%S")}),
        "its end as a number": ("end_time", {"end_time": 1.7e9 + began + seconds}),
        "a name for each row": ("path", {"path": [f"/x/{n}" for n in range(ROWS)]}),
        "a number for each row": ("job_id", {"job_id": np.arange(ROWS)}),
        "its outcome": ("status", {"status": rng.choice(["ok", "failed"], ROWS)}),
    }  # fmt: skip
    return {title: (name, jobs | columns) for title, (name, columns) in leaks.items()}
