"""Tables of runs in the shapes of public histories, generated: the same seed, the same rows.

Each kind has a world, which is its jobs, users, machines and their effects, and draws rows of it.
The rows for training, unseen rows and rows of larger scales are of one world.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

Draw = Callable[[np.random.Generator, np.random.Generator, int, float], pd.DataFrame]
SLANT = "VOXCAST_SLANT_ARTIFACT"  # a folder with `slant_runs.csv`; its kind is left out without
UNSEEN_ROWS, LARGER_ROWS = 900, 400
LARGER = 8.0  # times the scale of the rows for training


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes
    ----------
    draw : callable
        ``(world, rng, rows, scale)`` to rows. Two generators of one seed give the same world;
        ``scale`` multiplies what is large about a row.
    rows : int
        Number of rows for training.
    """

    name: str
    draw: Draw
    rows: int
    target: str = "seconds"
    group: str | None = None


@dataclass(frozen=True)
class Tables:
    """Rows for training, unseen rows, and rows of larger scales; the last two may be few."""

    train: pd.DataFrame
    unseen: pd.DataFrame
    larger: pd.DataFrame


def tables_of(kind: Kind, seed: int = 0) -> Tables:
    """Return the tables of a kind."""
    sizes = ((kind.rows, 1.0), (UNSEEN_ROWS, 1.0), (LARGER_ROWS, LARGER))
    return Tables(
        *(
            kind.draw(
                np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1 + n]), rows, scale
            )
            for n, (rows, scale) in enumerate(sizes)
        )
    )


def _over(
    rng: np.random.Generator, low: float, high: float, rows: int, scale: float
) -> np.ndarray:
    """Return sizes over decades; at a larger scale all are above ``high``."""
    if scale > 1:
        return np.asarray(high * np.exp(rng.uniform(np.log(1.05), np.log(scale), rows)))
    return np.asarray(np.exp(rng.uniform(np.log(low), np.log(high), rows)))


def _effects(world: np.random.Generator, names: list[str], sigma: float) -> pd.Series:
    return pd.Series(np.exp(world.normal(0, sigma, len(names))), index=names)


def spark(w: np.random.Generator, r: np.random.Generator, rows: int, scale: float) -> pd.DataFrame:
    """Spark jobs: configurations repeated four times, inputs over four decades."""
    jobs = ["sort", "words", "kmeans", "pagerank"]
    work, power = _effects(w, jobs, 0.8), pd.Series(w.uniform(0.7, 1.2, 4), index=jobs)
    n = -(-rows // 4)
    table = pd.DataFrame(
        {
            "job": r.choice(jobs, n), "input_gb": _over(r, 0.05, 500, n, scale),
            "executors": r.choice([1, 2, 4, 8, 16, 32], n), "cores": r.choice([1, 2, 4, 8], n),
            "memory_gb": r.choice([2, 4, 8, 16, 64], n),
        }
    )  # fmt: skip
    slots = table["executors"] * table["cores"]
    spill = 1 + 0.8 * (table["input_gb"] > 0.5 * table["executors"] * table["memory_gb"])
    size = table["input_gb"] ** table["job"].map(power)
    table["seconds"] = 12 + 30 * table["job"].map(work) * size * spill / slots**0.8
    table = table.loc[np.repeat(np.arange(n), 4)[:rows]].reset_index(drop=True)
    return table.assign(seconds=table["seconds"] * r.lognormal(0, 0.08, rows))


def workflow_memory(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Memory of workflow tasks: 32 columns, sizes zero in most rows, a few far outside."""
    tasks = [f"task_{n}" for n in range(12)]
    base, power = _effects(w, tasks, 1.2), pd.Series(w.uniform(0, 0.3, 12), index=tasks)
    table = pd.DataFrame({"task": r.choice(tasks, rows), "cpus": r.choice([1, 2, 4, 8], rows)})
    for n in range(15):  # inputs of which most tasks have none
        share = (0.03, 0.1, 0.3)[n % 3]
        size = np.where(r.uniform(size=rows) < share, r.lognormal(15, 2.2, rows), 0.0)
        table[f"input_{n}_bytes"] = np.round(size * scale)
    for n in range(12):
        table[f"option_{n}"] = r.integers(0, 3, rows)
    table["reference_bytes"] = r.choice([3e7, 3e9], rows)
    table["samples"] = r.integers(1, 40, rows)
    table["read_length"] = r.choice([75, 100, 150], rows)
    if scale == 1 and rows == UNSEEN_ROWS:
        table.loc[:4, "input_0_bytes"] = np.geomspace(2e9, 3e11, 5).round()
    total = table.filter(like="_bytes").drop(columns="reference_bytes").sum(axis=1)
    growth = (1 + total / 1e6) ** table["task"].map(power)
    memory = 150 * table["task"].map(base) * growth + table["reference_bytes"] / 2e7
    return table.assign(mb=memory * r.lognormal(0, 0.07, rows))


def genome_tool(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """A tool on files of ten decades, some of them empty."""
    steps = ["index", "map", "sort", "call"]
    rate = _effects(w, steps, 1.0)
    size = np.round(_over(r, 1, 1e10, rows, scale))
    second = np.where(r.uniform(size=rows) < 0.6, 0, np.round(size * r.uniform(0.2, 1, rows)))
    table = pd.DataFrame(
        {
            "step": r.choice(steps, rows), "file_bytes": size, "second_file_bytes": second,
            "threads": r.choice([1, 4, 8], rows),
        }
    )  # fmt: skip
    work = 3e-7 * (size + second) ** 0.95 * table["step"].map(rate)
    seconds = 0.4 + work / table["threads"] ** 0.6
    return table.assign(seconds=seconds * r.lognormal(0, 0.2, rows))


def accounting(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Accounting of a cluster: users and job names of high cardinality, and what was requested."""
    users, names = [f"user{n}" for n in range(120)], [f"job_{n}" for n in range(400)]
    speed, length = _effects(w, users, 0.5), _effects(w, names, 1.4)
    owner = pd.Series(w.choice(users, 400), index=names)
    popularity = w.pareto(1.2, 400) + 0.1
    name = r.choice(names, rows, p=popularity / popularity.sum())
    cpus = r.choice([1, 2, 4, 8, 16, 32], rows)
    seconds = 600 * length[name].to_numpy() * speed[owner[name]].to_numpy() / cpus**0.5
    seconds = seconds * r.lognormal(0, 0.5, rows)
    requested = 2.0 ** np.ceil(np.log2(seconds / 3600 * r.lognormal(1.5, 1.0, rows))).clip(-1, 7)
    return pd.DataFrame(
        {
            "user": owner[name].to_numpy(), "job_name": name, "cpus": cpus,
            "partition": np.where(requested > 24, "long", "normal"),
            "requested_hours": requested, "requested_gb": r.choice([4, 8, 16, 64], len(name)),
            "qos": r.choice(["low", "high"], len(name)), "seconds": seconds,
        }
    ).head(rows if scale == 1 else 0)  # fmt: skip  # no column tells of a larger scale


def constants(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Columns that are constant, or all but constant, beside two that tell."""
    table = pd.DataFrame({f"constant_{n}": np.full(rows, n) for n in range(6)})
    table["version"] = "1.2"
    table["debug"] = (r.uniform(size=rows) < 0.01).astype(int)
    table["rare"] = np.where(r.uniform(size=rows) < 0.02, r.uniform(1, 5, rows), 0.0)
    table["mesh"], table["degree"] = _over(r, 1e3, 1e6, rows, scale), r.integers(1, 6, rows)
    seconds = 2 + 1e-4 * table["mesh"] * table["degree"] ** 1.5 * (1 + 3 * table["debug"])
    return table.assign(seconds=seconds * r.lognormal(0, 0.06, rows))


def missing(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Missing values, a third of them where the value is large."""
    size, depth = _over(r, 1, 300, rows, scale), r.uniform(5, 60, rows)
    reads = size * depth * r.lognormal(0, 0.1, rows)
    kind = r.choice(["wgs", "wes", "rna"], rows)
    factor = pd.Series(kind).map({"wgs": 1.0, "wes": 0.4, "rna": 0.7}).to_numpy()
    seconds = (20 + 0.8 * size * depth * factor) * r.lognormal(0, 0.1, rows)
    hidden = r.uniform(size=(4, rows))
    return pd.DataFrame(
        {
            "size_gb": np.where(hidden[0] < 0.15, np.nan, size),
            "depth": np.where(hidden[1] < 0.1 + 0.2 * (depth > 40), np.nan, depth),
            "reads": np.where(hidden[2] < 0.4, np.nan, reads),
            "kind": pd.Series(kind).mask(hidden[3] < 0.1), "lanes": r.integers(1, 9, rows),
            "seconds": seconds,
        }
    )  # fmt: skip


def drift(w: np.random.Generator, r: np.random.Generator, rows: int, scale: float) -> pd.DataFrame:
    """Machines of different speed that slow down over time; larger rows are of later days."""
    machines = [f"node{n}" for n in range(8)]
    speed, slowing = _effects(w, machines, 0.25), pd.Series(w.uniform(0, 0.004, 8), index=machines)
    machine = r.choice(machines, rows)
    day = r.uniform(0, 120, rows) if scale == 1 else r.uniform(121, 200, rows)
    size = _over(r, 1, 200, rows, 1)
    seconds = (5 + 3 * size) * speed[machine].to_numpy() * np.exp(slowing[machine] * day)
    return pd.DataFrame({"machine": machine, "day": day.round(2), "size": size,
                         "seconds": seconds * r.lognormal(0, 0.05, rows)})  # fmt: skip


def counter(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """A growing database: a counter of entries drives part of the time, and grows on."""
    entries = np.sort(r.choice(np.arange(1000, 60000), rows, replace=False))
    entries = entries if scale == 1 else entries + 60000
    query = r.integers(1, 50, rows)
    seconds = (0.5 + 2e-5 * entries * query**0.7) * r.lognormal(0, 0.1, rows)
    cache = r.choice(["hot", "cold"], rows)
    table = pd.DataFrame({"entries": entries, "query_terms": query, "cache": cache})
    return table.assign(seconds=seconds)


def additive(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """A sum of a constant and three terms."""
    a, b = _over(r, 1, 1000, rows, scale), r.uniform(0, 100, rows)
    c = r.uniform(0, 10, rows)
    seconds = (30 + 0.6 * a + 1.5 * b + 4 * c) * r.lognormal(0, 0.04, rows)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": r.uniform(size=rows), "seconds": seconds})


def multiplicative(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """A product of powers."""
    x, y = _over(r, 1, 1e4, rows, scale), _over(r, 1, 50, rows, 1)
    cpus = r.choice([1, 2, 4, 8, 16], rows)
    seconds = 0.2 * x**0.8 * y**1.4 / cpus**0.7 * r.lognormal(0, 0.05, rows)
    return pd.DataFrame({"x": x, "y": y, "cpus": cpus, "seed_used": r.integers(0, 9, rows),
                         "seconds": seconds})  # fmt: skip


def interactions(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Methods with powers of their own, and two switches that matter only together."""
    methods = [f"m{n}" for n in range(6)]
    power, base = pd.Series(w.uniform(0.3, 1.8, 6), index=methods), _effects(w, methods, 1.0)
    method, size = r.choice(methods, rows), _over(r, 1, 300, rows, scale)
    fast, exact = r.integers(0, 2, rows), r.integers(0, 2, rows)
    seconds = 5 * base[method].to_numpy() * size ** power[method].to_numpy()
    seconds = seconds * np.where(fast == exact, 4.0, 1.0) * r.lognormal(0, 0.08, rows)
    return pd.DataFrame({"method": method, "size": size, "fast": fast, "exact": exact,
                         "seconds": seconds})  # fmt: skip


def tiny(w: np.random.Generator, r: np.random.Generator, rows: int, scale: float) -> pd.DataFrame:
    """Thirty rows."""
    size, tool = _over(r, 1, 100, rows, scale), r.choice(["a", "b"], rows)
    seconds = (3 + 2 * size) * np.where(tool == "a", 1, 2.5) * r.lognormal(0, 0.1, rows)
    return pd.DataFrame({"size": size, "tool": tool, "cpus": r.choice([1, 2, 4], rows),
                         "seconds": seconds})  # fmt: skip


def wide(w: np.random.Generator, r: np.random.Generator, rows: int, scale: float) -> pd.DataFrame:
    """Thirty columns, of which eight tell."""
    numbers = r.normal(size=(rows, 20))
    table = pd.DataFrame({f"x{n}": numbers[:, n] for n in range(20)})
    for n in range(6):
        table[f"size_{n}"] = _over(r, 1, 1e4, rows, scale if n == 0 else 1)
    for n in range(4):
        table[f"code_{n}"] = r.choice([f"c{k}" for k in range(5 + 5 * n)], rows)
    effect = _effects(w, [f"c{k}" for k in range(20)], 0.5)
    seconds = (
        (table["size_0"] + 0.3 * table["size_1"]) ** 0.8
        * np.exp(0.3 * table["x0"] + 0.3 * table["x1"] * table["x2"])
        * table["code_1"].map(effect) * (1 + (table["x3"] > 1))
    )  # fmt: skip
    return table.assign(seconds=seconds * r.lognormal(0, 0.2, rows))


def codes(w: np.random.Generator, r: np.random.Generator, rows: int, scale: float) -> pd.DataFrame:
    """Categories as integers, without an order, and negative numbers."""
    algorithm, node = r.integers(0, 14, rows), r.integers(100, 140, rows)
    by_algorithm, by_node = w.lognormal(0, 1.0, 14), w.lognormal(0, 0.2, 40)
    level, size = r.integers(-5, 6, rows), _over(r, 10, 5000, rows, scale)
    seconds = 0.05 * size * by_algorithm[algorithm] * by_node[node - 100] * 1.3**level
    return pd.DataFrame({"algorithm": algorithm, "node": node, "level": level, "size": size,
                         "seconds": seconds * r.lognormal(0, 0.1, rows)})  # fmt: skip


def noisy(w: np.random.Generator, r: np.random.Generator, rows: int, scale: float) -> pd.DataFrame:
    """Log-normal noise of 70 %."""
    size, queue = _over(r, 1, 1000, rows, scale), r.choice(["q1", "q2", "q3"], rows)
    seconds = 4 * size**0.7 * r.lognormal(0, 0.7, rows)
    return pd.DataFrame({"size": size, "queue": queue, "nodes": r.integers(1, 9, rows),
                         "seconds": seconds})  # fmt: skip


def heteroscedastic(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Noise that grows with the size, and with one of the tools."""
    size, tool = _over(r, 1, 1000, rows, scale), r.choice(["steady", "wild"], rows)
    sigma = 0.03 + 0.05 * np.log(size) * np.where(tool == "wild", 2, 0.5)
    seconds = (10 + 0.5 * size) * np.exp(r.normal(0, 1, rows) * sigma)
    return pd.DataFrame({"size": size, "tool": tool, "seconds": seconds})


def timeouts(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Runs that a limit stopped: they have a state, and no label."""
    size, ranks = _over(r, 1, 500, rows, scale), r.choice([1, 2, 4, 8], rows)
    seconds = 20 * size / ranks**0.9 * r.lognormal(0, 0.15, rows)
    limit = 4000 if scale == 1 else np.inf
    state = np.where(seconds > limit, "TIMEOUT", "COMPLETED")
    return pd.DataFrame({"size": size, "ranks": ranks, "state": state,
                         "seconds": np.minimum(seconds, limit)})  # fmt: skip


def subjects(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Six runs of each subject, whose difficulty no column tells."""
    n = -(-rows // 6)
    subject = np.repeat(np.arange(n), 6)[:rows]
    voxels, difficulty = _over(r, 1e5, 1e7, n, scale)[subject], r.lognormal(0, 0.12, n)[subject]
    cpus = r.choice([1, 2, 4], rows)
    seconds = (15 + 6e-5 * voxels / cpus**0.7) * difficulty * r.lognormal(0, 0.04, rows)
    return pd.DataFrame({"subject": [f"sub-{s}" for s in subject],
                         "voxels": voxels, "cpus": cpus, "seconds": seconds})  # fmt: skip


def levels60(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Sixty programs, of which some are rarely run, with a rate and a power each."""
    programs = [f"program-{n}" for n in range(60)]
    rate, power = _effects(w, programs, 1.1), pd.Series(w.uniform(0.7, 1, 60), index=programs)
    share = w.gamma(1.5, size=60) + 0.2
    program = r.choice(programs, rows, p=share / share.sum())
    size, cpus = _over(r, 1, 200, rows, scale), r.choice([1, 2, 4, 8], rows)
    work = 4 * rate[program].to_numpy() * size ** power[program].to_numpy()
    seconds = work / cpus**0.6 * r.lognormal(0, 0.1, rows)
    return pd.DataFrame({"program": program, "size": size, "cpus": cpus, "seconds": seconds})


def hosts32(
    w: np.random.Generator, r: np.random.Generator, rows: int, scale: float
) -> pd.DataFrame:
    """Machines of two steps, 32 on record; rows of larger scales are of eight bought later."""
    hosts = [f"host-{n:02d}" for n in range(40)]
    slowness = _effects(w, hosts, 0.6)
    host = r.choice(hosts[:32] if scale == 1 else hosts[32:], rows)
    step, size = r.choice(["prepare", "solve"], rows), _over(r, 1, 150, rows, scale)
    work = np.where(step == "solve", 2 + 1.5 * size, 5 + 0.2 * size)
    seconds = work * slowness[host].to_numpy() * r.lognormal(0, 0.06, rows)
    return pd.DataFrame({"host": host, "step": step, "size": size, "seconds": seconds})


def slant(w: np.random.Generator, r: np.random.Generator, rows: int, scale: float) -> pd.DataFrame:
    """Return 312 real runs of SLANT; a third of the subjects is unseen, and none is larger."""
    runs = pd.read_csv(Path(os.environ[SLANT]) / "slant_runs.csv")
    names = runs["subject"].fillna(runs["run"].astype(str))
    table = pd.DataFrame(
        {
            "subject": names, "modality": runs["modality"], "volumes": runs["n_volumes"],
            "file_bytes": runs["file_size_bytes"], "seconds": runs["makespan_s"],
        }
    )  # fmt: skip
    order = w.permutation(names.unique())
    is_unseen = names.isin(set(order[: len(order) // 3]))
    if scale > 1:
        return table.head(0)
    return table[is_unseen if rows == UNSEEN_ROWS else ~is_unseen].reset_index(drop=True)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("spark", spark, 600),
        Kind("workflow_memory", workflow_memory, 800, target="mb"),
        Kind("genome_tool", genome_tool, 800),
        Kind("accounting", accounting, 3000),
        Kind("constants", constants, 300),
        Kind("missing", missing, 500),
        Kind("drift", drift, 600),
        Kind("counter", counter, 400),
        Kind("additive", additive, 300),
        Kind("multiplicative", multiplicative, 300),
        Kind("interactions", interactions, 600),
        Kind("tiny", tiny, 30),
        Kind("codes", codes, 800),
        Kind("noisy", noisy, 500),
        Kind("heteroscedastic", heteroscedastic, 500),
        Kind("timeouts", timeouts, 400),
        Kind("subjects", subjects, 300, group="subject"),
        Kind("wide", wide, 20_000),
        Kind("levels60", levels60, 900),
        Kind("hosts32", hosts32, 800),
        Kind("slant", slant, 201, group="subject"),
    )
}


def available() -> list[str]:
    """Return the kinds that can be drawn here: without `SLANT`, all but the real one."""
    return [name for name in KINDS if name != "slant" or os.environ.get(SLANT)]
