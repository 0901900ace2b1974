"""Online sizing: every run of a recurring task improves the requests of its next run.

`OnlineSizer` needs no training. From the runs of a task it makes four laws of the need of the
next run, given its features: the needs of all runs (``constant``) or of the newest ones
(``recent``), a line in the features with the leave-one-out errors of the runs (``line``), and the
runs with the most similar features (``neighbours``). Each law has a tail beyond the largest run,
as long as the largest runs lie apart. A first request and all that follow a failure are chosen
together, as the sequence of least expected waste under the law. The law is the one whose
sequences would have wasted least on past runs, each judged before it was learned from.

Waste is what Bader et al. count: memory requested and not used, times runtime, where a failed
attempt counts in full.

References
----------
Bader et al., Sizey, IEEE CLUSTER 2024; Dawid, JRSS A 147, 1984 (prequential choice); Efron, 1967
(redistribution of censored runs to the right).
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.programme import RequestGrid, without_checkpoints
from voxcast.errors import ConfigError, TableError
from voxcast.files import write_text
from voxcast.quantities import counted
from voxcast.records import Request

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from voxcast.records import Outcome

    Floats = NDArray[np.float64]
    Rung = tuple[float, float]  # memory in bytes, time in s

Objective = Literal["memory", "time", "both"]
OBJECTIVES = ("memory", "time", "both")
LAWS = ("constant", "recent", "line", "neighbours")

FORMAT = 1
MOST_RUNS = 1000  # of a task, the newest
MOST_POINTS = 200  # of a law
GRID_POINTS = 10  # of memory and of time, where both are chosen together
FORGETTING = 0.99  # weight of the waste of a run, relative to the waste of the next run
NEIGHBOURS = 100
FAR_WEIGHT = 0.002  # of a run far away, relative to one with the same features
FEW_RUNS = 5  # below this, a line or neighbours are not tried
RECENT_RUNS = 20  # of which ``recent`` learns: a task that has changed is known anew after some
# The tail: the weight of half a run; steps in multiples of the distance of the largest runs.
TAIL_RUNS = 0.5
TAIL_STEPS = (0.5, 1.0, 2.0, 4.0)
FAR_SHARE, FAR_FACTOR = 0.1, 1.5
LEAST_STEP = 0.0005  # relative to the largest run
UNUSED_TIME_PRICE = 0.1  # of time requested and not used, where both are chosen together
FIRST_MEMORY_BYTES, FIRST_TIME_S = 4e9, 3600.0  # where nothing at all is known


logger = logging.getLogger(__name__)


class _Run(NamedTuple):
    """A run; ``bound`` names the amount that was too little, memory or time, or is empty."""

    features: dict[str, float]
    memory: float
    time_s: float
    bound: str


@dataclass
class _Task:
    """The newest runs of a task, and what each law would have wasted on its runs."""

    runs: list[_Run] = field(default_factory=list)
    waste: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LAWS, 0.0))

    @property
    def has_completed(self) -> bool:
        """Whether a run has completed."""
        return any(not run.bound for run in self.runs)

    def add(self, run: _Run) -> None:
        """Add a run; a completed one replaces the failed attempts with the same features."""
        if not run.bound:
            self.runs = [r for r in self.runs if not r.bound or r.features != run.features]
        self.runs = [*self.runs[-MOST_RUNS + 1 :], run]


@dataclass(frozen=True)
class _Law:
    """Scenarios of the next run.

    Attributes
    ----------
    memory, time_s : ndarray, shape (n,)
    weight : ndarray, shape (n,)
        Probabilities, up to a factor.
    """

    memory: Floats
    time_s: Floats
    weight: Floats


class OnlineSizer:
    """Requests for the next run of a task, from all of its runs so far.

    Parameters
    ----------
    path : path, optional
        File in which runs are kept, one line each; made if missing. Without it they are kept in
        memory.
    objective : str
        The resource: ``memory``, ``time``, or ``both`` together, since a failure by either
        loses both.

    Raises
    ------
    ConfigError
        If the objective is unknown, or the file has another.
    TableError
        If the file is not one of these.

    Examples
    --------
    >>> sizer = OnlineSizer()
    >>> for input_bytes in (1e9, 2e9, 3e9):
    ...     sizer.update("align", {"input_bytes": input_bytes},
    ...                  peak_rss_bytes=4e9, runtime_s=600.0)
    >>> [round(request.memory_bytes / 1e9, 1) for request in sizer.requests("align", {})]
    [4.0, 6.0]
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, objective: Objective = "memory"
    ) -> None:
        if objective not in OBJECTIVES:
            raise ConfigError("unknown objective", objective, f"choose {', '.join(OBJECTIVES)}")
        self.objective = objective
        self._path = None if path is None else Path(path)
        self._tasks: defaultdict[str, _Task] = defaultdict(_Task)
        if self._path is not None and self._path.exists():
            self._read(self._path)
        elif self._path is not None:
            write_text(self._path, json.dumps({"format": FORMAT, "objective": objective}))

    @property
    def tasks(self) -> frozenset[str]:
        """The names of the tasks with runs."""
        return frozenset(self._tasks)

    def requests(
        self, task: str, features: Mapping[str, float], preset: Request | float | None = None
    ) -> list[Request]:
        """Return the requests of a run: the first one, and the next after each failure.

        Parameters
        ----------
        task : str
            Name of the task; runs of the same task are alike.
        features : mapping
            Numbers that are known before the run, such as ``input_bytes``.
        preset : Request or float, optional
            What would be requested otherwise, or its memory in bytes: the request of a task
            without any runs.

        Returns
        -------
        list of Request
            Increasing; beyond the last one, double it.
        """
        usual = Request(math.inf, int(preset)) if isinstance(preset, int | float) else preset
        task_runs = self._tasks.get(task)
        if task_runs is None or not task_runs.has_completed:
            rungs = self._first(task, usual)
        else:
            rungs = self._chosen(task_runs, _numbers(features), usual)
        time_s, memory = (math.inf, 0) if usual is None else (usual.walltime_s, usual.memory_bytes)
        return [
            Request(
                time_s if self.objective == "memory" else float(math.ceil(rung[1])),
                memory if self.objective == "time" else math.ceil(rung[0]),
            )
            for rung in rungs
        ]

    def update(
        self,
        task: str,
        features: Mapping[str, float],
        *,
        peak_rss_bytes: float,
        runtime_s: float,
        outcome: Outcome = "completed",
    ) -> None:
        """Learn from a run that has ended.

        Parameters
        ----------
        task, features
            As in `requests`.
        peak_rss_bytes, runtime_s : float
            Its use. After ``out_of_memory`` or ``timeout`` they are lower bounds of what it
            needs, until a run with the same features completes.
        outcome : str
            How it ended. From other failures nothing is learned.

        Raises
        ------
        ConfigError
            If an amount is not a finite number of at least 0.
        """
        amounts = {"peak_rss_bytes": peak_rss_bytes, "runtime_s": runtime_s}
        for name, amount in amounts.items():
            if not (math.isfinite(amount) and amount >= 0):
                raise ConfigError(f"must be a finite number of at least 0, not {amount}", name)
        bound = {"completed": "", "out_of_memory": "memory", "timeout": "time"}.get(outcome)
        if bound is None:
            return
        numbers, task_runs = _numbers(features), self._tasks[task]
        waste: dict[str, float] = {}
        if not bound and task_runs.has_completed:
            waste = {
                name: self._wasted(rungs, peak_rss_bytes, runtime_s)
                for name in LAWS
                if (rungs := self._sequence(name, task_runs, numbers, None))
            }
        line = {"task": task, "features": numbers, **amounts, "bound": bound, "waste": waste}
        if self._path is not None:
            _append(self._path, line)  # first: what could not be kept is not learned
        self._learn(line)

    def _learn(self, line: dict[str, Any]) -> None:
        amounts = float(line["peak_rss_bytes"]), float(line["runtime_s"])
        if not all(map(math.isfinite, amounts)):
            raise ValueError("an amount that is not finite")
        task_runs = self._tasks[line["task"]]
        if waste := line["waste"]:
            for law in LAWS:  # one that was not tried yet is as good as the constant
                task_runs.waste[law] *= FORGETTING
                task_runs.waste[law] += waste.get(law, waste["constant"])
        task_runs.add(_Run(line["features"], *amounts, line["bound"]))

    def _read(self, path: Path) -> None:
        """Learn from a file; lines that its writers could not end are left out."""
        head, *runs = path.read_text(encoding="utf-8", errors="replace").split("\n")
        try:
            objective = json.loads(head)["objective"]
        except (ValueError, KeyError, TypeError):
            raise TableError("is not a file of an OnlineSizer", path, "name another") from None
        if objective != self.objective:
            raise ConfigError(f"is of the objective {objective}", path, "name another file")
        damaged = 0
        for run in runs:
            try:
                self._learn(json.loads(run))
            except (ValueError, KeyError, TypeError):
                damaged += 1
        if damaged:
            logger.warning("%s: ignored %s that could not be read", path, counted(damaged, "line"))

    def _first(self, task: str, preset: Request | None) -> list[Rung]:
        """Return the requests of a task without runs, from its preset or from similar tasks."""
        if preset is not None:
            return [(float(preset.memory_bytes), preset.walltime_s)]
        named = [
            task_runs for name, task_runs in self._tasks.items() if _last(name) == _last(task)
        ]
        runs = [
            run for task_runs in named or self._tasks.values() for run in task_runs.runs
            if not run.bound
        ]  # fmt: skip
        if not runs:
            return [(FIRST_MEMORY_BYTES, FIRST_TIME_S)]
        return self._sequence("constant", _Task(runs[-MOST_RUNS:]), {}, None)

    def _chosen(
        self, task_runs: _Task, features: dict[str, float], preset: Request | None
    ) -> list[Rung]:
        """Return the requests under the law that has wasted least and has enough runs."""
        by_waste = sorted(LAWS, key=task_runs.waste.__getitem__)
        sequences = (self._sequence(name, task_runs, features, preset) for name in by_waste)
        return next(filter(None, sequences))

    def _sequence(
        self, name: str, task_runs: _Task, features: dict[str, float], preset: Request | None
    ) -> list[Rung]:
        """Return the cheapest requests under a law; empty if there are too few runs for it."""
        tails = ("memory", "time") if self.objective == "both" else (self.objective,)
        law = _law(name, task_runs, features, preset, tails)
        if law is None:
            return []
        if self.objective == "memory":
            # A failure costs the memory that was requested, for as long as the run takes.
            amounts = _cheapest_amounts(law.memory, law.weight * law.time_s)
            return [(amount, math.inf) for amount in amounts]
        if self.objective == "time":
            amounts = _cheapest_amounts(law.time_s, law.weight)
            return [(math.inf, amount) for amount in amounts]
        return _cheapest_rungs(law)

    def _wasted(self, rungs: Sequence[Rung], memory: float, time_s: float) -> float:
        """Return the waste of a sequence of requests on a run."""
        wasted = 0.0
        for requested, limit_s in and_doubled(rungs):
            if self.objective == "time":
                if limit_s >= time_s:
                    return wasted + limit_s - time_s
                wasted += limit_s
            elif requested >= memory and limit_s >= time_s:
                unused_s = 0.0 if limit_s == math.inf else UNUSED_TIME_PRICE * (limit_s - time_s)
                return wasted + (requested - memory) * time_s + requested * unused_s
            else:
                wasted += requested * min(time_s, limit_s)
        raise AssertionError  # the last request is doubled without end


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps(line))  # the newline first: a line cut short spoils no other


def _numbers(features: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in features.items() if math.isfinite(value)}


def _last(task: str) -> str:
    """Return the last part of a name such as ``NFCORE_RNASEQ:RNASEQ:SAMTOOLS_SORT``."""
    return re.split(r"[:/]", task)[-1]


def and_doubled(rungs: Sequence[Rung]) -> Iterator[Rung]:
    """Yield the memory and time of each request, and then the last one, doubled without end."""
    yield from rungs
    memory, time_s = rungs[-1]
    while True:
        memory, time_s = 2 * max(memory, 1e6), 2 * max(time_s, 1.0)
        yield memory, time_s


def _law(
    name: str,
    task_runs: _Task,
    features: dict[str, float],
    preset: Request | None,
    tails: Sequence[str],
) -> _Law | None:
    """Return one of `LAWS` for the next run; None if there are too few runs for it.

    ``tails`` names the amounts, ``memory`` and ``time``, that may be larger than any so far.
    """
    runs = task_runs.runs[-RECENT_RUNS:] if name == "recent" else task_runs.runs
    if all(run.bound for run in runs):
        return None
    of_runs, *columns = zip(*runs, strict=True)
    memory, time_s, bound = map(np.array, columns)
    weight, near = np.ones(len(memory)), np.ones(len(memory), bool)
    if name in ("line", "neighbours"):
        names = sorted(features)
        rows = np.array([[run.get(n, math.nan) for n in names] for run in of_runs])
        usable = np.isfinite(rows).all(axis=1)
        completed = usable & (bound == "")
        if not names or completed.sum() < FEW_RUNS + len(names):
            return None
        features_now = np.array([features[n] for n in names])
        rows, memory, time_s, bound = rows[usable], memory[usable], time_s[usable], bound[usable]
        weight, near = np.ones(len(memory)), np.ones(len(memory), bool)
        if name == "line":
            memory = _along_line(rows, features_now, memory, bound == "")
            time_s = _along_line(rows, features_now, time_s, bound == "")
        else:
            weight, near = _nearness(rows, features_now)
    is_run = bound == ""
    weights = weight[is_run]
    near = near[is_run] if near[is_run].any() else np.ones(len(weights), bool)
    amounts = {"memory": memory[is_run], "time": time_s[is_run]}
    presets = {} if preset is None else {"memory": preset.memory_bytes, "time": preset.walltime_s}
    means = {kind: np.average(values, weights=weights) for kind, values in amounts.items()}
    scenarios = [(*amounts.values(), weights)]
    for kind in tails:
        values = memory if kind == "memory" else time_s
        most_failed = values[bound == kind].max(initial=0.0)
        points, shares = _tail(amounts[kind], near, most_failed, presets.get(kind))
        pair = {other: np.full(len(points), mean) for other, mean in means.items()}
        tail_weight = TAIL_RUNS * weights.sum() / (weights.sum() + 1)
        scenarios.append((*(pair | {kind: points}).values(), shares * tail_weight))
    law = _Law(*(np.concatenate(part) for part in zip(*scenarios, strict=True)))
    for kind, values, of_law in (("memory", memory, law.memory), ("time", time_s, law.time_s)):
        for i in np.flatnonzero(bound == kind):
            longer = of_law > values[i]
            if longer.any():
                law.weight[longer] *= 1 + weight[i] / law.weight[longer].sum()
    return law


def _along_line(
    rows: Floats, features_now: Floats, needs: Floats, is_run: NDArray[np.bool_]
) -> Floats:
    """Return what earlier runs would have needed with the features that are asked about.

    Each is off by the same factor from the least-squares line of the other runs.

    Parameters
    ----------
    rows : ndarray, shape (n, p)
    features_now : ndarray, shape (p,)
    needs : ndarray, shape (n,)
    is_run : ndarray of bool, shape (n,)
        Runs that completed; the line is fitted to these.
    """
    scale = np.maximum(np.abs(rows).max(axis=0), 1.0)
    design = np.column_stack([np.ones(len(rows)), rows / scale])
    fitted, labels = design[is_run], needs[is_run]
    inverse = np.linalg.inv(fitted.T @ fitted + 1e-9 * len(labels) * np.eye(design.shape[1]))
    coefficients = inverse @ (fitted.T @ labels)
    expected = design @ coefficients
    leverage = np.einsum("ij,jk,ik->i", fitted, inverse, fitted)
    expected[is_run] = labels - (labels - expected[is_run]) / np.maximum(1 - leverage, 1e-3)
    least = max(labels.min() / 2, 1e-9)
    need_now = max(float(np.concatenate([[1.0], features_now / scale]) @ coefficients), least)
    return np.asarray(needs * (need_now / np.maximum(expected, least)))


def _nearness(rows: Floats, features_now: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return a weight of each run by the similarity of its features, and which are neighbours."""
    logs, log_now = (np.sign(v) * np.log1p(np.abs(v)) for v in (rows, features_now))
    spread = np.maximum(logs.std(axis=0), 1e-9)
    distance = np.sqrt((((logs - log_now) / spread) ** 2).sum(axis=1))
    width = np.sort(distance)[min(NEIGHBOURS, len(distance)) - 1] + 1e-9
    return np.exp(-0.5 * (1.5 * distance / width) ** 2) + FAR_WEIGHT, distance <= width


def _tail(
    needs: Floats, near: NDArray[np.bool_], most_failed: float, preset: float | None
) -> tuple[Floats, Floats]:
    """Return amounts beyond the largest run and the largest one that failed, and their shares."""
    values = np.sort(needs[near])
    largest, count = values[-1], max(2, math.isqrt(len(values)))
    apart = values[-count:].mean() - values[-count - 1] if len(values) > count else largest / 10
    start = max(largest, most_failed)
    step = max(apart, LEAST_STEP * start, 1e-9)
    far = FAR_FACTOR * max(start, needs.max()) + TAIL_STEPS[-1] * step
    amounts = [*(start + step * np.array(TAIL_STEPS)), far]
    shares = [(1 - FAR_SHARE) / len(TAIL_STEPS)] * len(TAIL_STEPS) + [FAR_SHARE]
    if preset is not None and far < preset < math.inf:
        amounts, shares = [*amounts, preset], [*shares[:-1], FAR_SHARE / 2, FAR_SHARE / 2]
    return np.array(amounts), np.array(shares)


def _cheapest_amounts(amounts: Floats, weights: Floats) -> list[float]:
    """Return the sequence of least expected waste of one resource."""
    order = np.argsort(amounts)
    amounts, up_to = amounts[order], np.cumsum(np.maximum(weights[order], 1e-12))
    last = np.linspace(0, len(amounts), min(MOST_POINTS, len(amounts)) + 1).astype(int)[1:] - 1
    points = np.unique(amounts[last])
    survival = 1 - up_to[np.searchsorted(amounts, points, side="right") - 1] / up_to[-1]
    survival[-1] = 0.0
    optimum = without_checkpoints(RequestGrid(points, survival), CostModel(1.0, 0.0, 0.0))
    return [float(amount) for amount in optimum.milestones]


def _cheapest_rungs(law: _Law) -> list[Rung]:
    """Return the sequence of least expected waste of memory and time together.

    Rungs are of a grid of quantiles. A state is the last rung that failed: the runs that are left
    need more than it has of memory, or of time. Each rung has no less of both than the last one.
    """
    levels = np.linspace(0, 1, GRID_POINTS) ** 0.5
    memory = np.unique(np.quantile(law.memory, levels))
    time_s = np.unique(np.quantile(law.time_s, levels))
    requested, limit_s = (grid.ravel() for grid in np.meshgrid(memory, time_s, indexing="ij"))
    # All scenarios between the same lines of the grid fit the same rungs: their sums are enough.
    cells = np.searchsorted(memory, law.memory) * len(time_s) + np.searchsorted(time_s, law.time_s)
    terms = (law.weight, law.weight * law.time_s, law.weight * law.time_s * law.memory)
    weight, run_s, used = (np.bincount(cells, term, len(requested)) for term in terms)
    fits = (requested[:, None] >= requested) & (limit_s[:, None] >= limit_s)
    unused_s = UNUSED_TIME_PRICE * (limit_s[:, None] * weight - run_s)
    unused = requested[:, None] * (run_s + unused_s) - used
    is_over = limit_s[:, None] < limit_s  # stopped by its limit
    lost = requested[:, None] * np.where(is_over, limit_s[:, None] * weight, run_s)
    waste = np.where(fits, unused, lost)
    is_next = (requested >= requested[:, None]) & (limit_s >= limit_s[:, None])
    np.fill_diagonal(is_next, val=False)
    # By last rung and next rung: the waste of the next rung on the runs that are left. The first
    # row is before any request.
    left = np.vstack([np.ones(len(requested)), ~fits])
    of_next = np.where(np.vstack([np.ones(len(requested), bool), is_next]), left @ waste.T, np.inf)
    count = len(requested)
    best, following = np.zeros(count + 1), np.full(count + 1, -1)
    for state in [*range(count - 1, 0, -1), 0]:  # nothing follows the largest rung
        costs = of_next[state] + best[1:]
        following[state] = costs.argmin() + 1
        best[state] = costs.min()
    rungs, state = [], int(following[0])
    while state > 0:
        rungs.append((float(requested[state - 1]), float(limit_s[state - 1])))
        state = int(following[state])
    return rungs
