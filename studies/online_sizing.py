"""Study: memory wasted by requests that are learned online, on published workflow traces.

The protocol is that of Bader et al. (Sizey, IEEE CLUSTER 2024): tasks with at least 34 runs, none
of length zero; 30 % of the runs of a task are known, the others come one by one in a shuffled
order, and each is learned from once it has ended. A failed attempt wastes its request for the
whole runtime. The same is run in the order of submission, without runs that are known beforehand.

    python studies/online_sizing.py TRACES --out results/online/online.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from voxcast.allocation.requests.online import OnlineSizer
from voxcast.errors import exits_cleanly
from voxcast.files import write_text

MINIMUM_RUNS, KNOWN_SHARE, SEEDS = 34, 0.3, (0, 1, 2)
GB, MS_PER_H = 1e9, 3.6e6


class Sizer(Protocol):
    """A way of requesting memory for the runs of one task; amounts in GB, times in h."""

    def requests(self, size: float) -> Sequence[float]:
        """Return the requests of a run; beyond the last one it is doubled."""

    def update(self, size: float, memory: float, hours: float) -> None:
        """Learn from a run that has ended."""


@dataclass
class _Rule:
    """What all rules keep: runs of the task, and the preset of its pipeline."""

    preset: float
    sizes: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    hours: list[float] = field(default_factory=list)

    def update(self, size: float, memory: float, hours: float) -> None:
        self.sizes.append(size)
        self.memory.append(memory)
        self.hours.append(hours)

    def requests(self, size: float) -> Sequence[float]:
        return self._requests(size) if self.memory else [self.preset]

    def _requests(self, size: float) -> Sequence[float]:
        return [self.preset]


class Percentile(_Rule):
    """The 95th percentile of earlier peaks (Witt et al., HPCS 2019)."""

    def _requests(self, size: float) -> Sequence[float]:
        return [float(np.quantile(self.memory, 0.95))]


class LinePlusDeviation(_Rule):
    """A line in the size of inputs, plus a standard deviation of its errors (Witt et al.)."""

    def _requests(self, size: float) -> Sequence[float]:
        memory, sizes = np.array(self.memory), np.array(self.sizes)
        if len(set(self.sizes)) < 2:
            return [float(memory.max())]
        slope, start = np.polyfit(sizes, memory, 1)
        deviation = (memory - start - slope * sizes).std()
        return [max(float(start + slope * size + deviation), float(memory.min()))]


class FirstAllocation(_Rule):
    """The peak so far that would have wasted least, then the highest (Tovar et al., TPDS 2018)."""

    def _requests(self, size: float) -> Sequence[float]:
        memory, hours = np.array(self.memory), np.array(self.hours)
        firsts = np.unique(memory)
        fits = firsts[:, None] >= memory
        retried = firsts[:, None] + memory.max() - memory
        waste = (np.where(fits, firsts[:, None] - memory, retried) * hours).sum(axis=1)
        return [float(firsts[waste.argmin()]), float(memory.max())]


class PlainRule(_Rule):
    """A constant or a line, times the factor that would have wasted least; then the highest peak.

    Both are judged by leave-one-out predictions of earlier runs.
    """

    FACTORS = np.linspace(0.9, 2.0, 45)

    def _requests(self, size: float) -> Sequence[float]:
        memory, hours = np.array(self.memory), np.array(self.hours)
        sizes, count = np.array(self.sizes), len(self.memory)
        if count < 3:
            return [float(memory.max()) * 1.1]
        design = np.column_stack([np.ones(count), sizes / max(sizes.max(), 1.0)])
        options = [((memory.sum() - memory) / (count - 1), float(memory.mean()))]
        if len(set(self.sizes)) > 2:
            pseudo = np.linalg.pinv(design)
            leverage = np.einsum("ij,ji->i", design, pseudo)
            fitted = design @ (pseudo @ memory)
            left_out = memory - (memory - fitted) / np.maximum(1 - leverage, 1e-3)
            now = float(np.array([1.0, size / max(sizes.max(), 1.0)]) @ pseudo @ memory)
            options.append((np.maximum(left_out, memory.min()), max(now, float(memory.min()))))
        best = (np.inf, 0.0)
        for left_out, now in options:
            first = self.FACTORS[:, None] * left_out
            then = np.maximum(memory.max(), 1.1 * first)
            waste = np.where(first >= memory, first - memory, first + then - memory) * hours
            factor = int(waste.sum(axis=1).argmin())
            best = min(best, (waste.sum(axis=1)[factor], now * float(self.FACTORS[factor])))
        return [best[1], max(float(memory.max()), 1.1 * best[1])]


class Online:
    """`OnlineSizer`, as a workflow would use it."""

    def __init__(self, preset: float) -> None:
        self.sizer, self.preset = OnlineSizer(), preset * GB

    def requests(self, size: float) -> Sequence[float]:
        requests = self.sizer.requests("task", {"input_bytes": size}, self.preset)
        return [request.memory_bytes / GB for request in requests]

    def update(self, size: float, memory: float, hours: float) -> None:
        self.sizer.update(
            "task", {"input_bytes": size}, peak_rss_bytes=memory * GB, runtime_s=hours * 3600
        )


METHODS: dict[str, type[Sizer]] = {
    "preset": _Rule, "percentile": Percentile, "line_plus_deviation": LinePlusDeviation,
    "first_allocation": FirstAllocation, "plain_rule": PlainRule, "online": Online,
}  # fmt: skip


def tasks_of(path: Path) -> dict[str, pd.DataFrame]:
    """Return the runs of each task of a trace that the protocol admits, by its name."""
    columns = ["rchar", "rss", "realtime", "submit", "memory"]
    runs = pd.read_csv(path, low_memory=False)
    runs[columns] = runs[columns].apply(pd.to_numeric, errors="coerce")
    return {
        str(name): group.reset_index(drop=True)
        for name, group in runs.groupby("process", sort=True)
        if len(group) >= MINIMUM_RUNS and not (group["realtime"] == 0).any()
    }


def wasted(requests: Sequence[float], memory: float, hours: float) -> tuple[float, int]:
    """Return what the attempts of a run waste, in GB h, and how many fail."""
    waste, failures, request = 0.0, 0, requests[0]
    while request < memory:
        waste += request * hours
        failures += 1
        request = requests[failures] if failures < len(requests) else max(2 * request, 1e-3)
    return waste + (request - memory) * hours, failures


def replayed(method: type[Sizer], runs: pd.DataFrame, seed: int | None) -> dict[str, float]:
    """Return waste, failures and CPU time of a method on a task; in submit order without seed."""
    sizes, memory = runs["rchar"].to_numpy(float), runs["rss"].to_numpy(float) / GB
    hours = runs["realtime"].to_numpy(float) / MS_PER_H
    sizer = method(float(runs["memory"].median()) / GB)  # type: ignore[call-arg]
    first: list[int] = []
    rest: list[int] = runs["submit"].argsort(kind="stable").tolist()
    if seed is not None:
        first, rest = train_test_split(
            list(range(len(runs))), train_size=KNOWN_SHARE, random_state=seed
        )
    for i in first:
        sizer.update(sizes[i], memory[i], hours[i])
    start, waste, failures = time.process_time(), 0.0, 0
    for i in rest:
        gigabyte_hours, failed = wasted(sizer.requests(sizes[i]), memory[i], hours[i])
        waste, failures = waste + gigabyte_hours, failures + failed
        sizer.update(sizes[i], memory[i], hours[i])
    return {
        "wasted_gb_h": waste, "failures": failures, "runs": len(rest),
        "used_gb_h": float((memory * hours)[rest].sum()),
        "s": time.process_time() - start,
    }  # fmt: skip


def study(traces: Path) -> list[dict[str, Any]]:
    """Return a row for each workflow, method and order."""
    rows = []
    for path in sorted(traces.glob("*.csv.gz")):
        tasks = tasks_of(path)
        for name, method in METHODS.items():
            for seed in (*SEEDS, None):
                parts = [replayed(method, runs, seed) for runs in tasks.values()]
                row = {key: sum(part[key] for part in parts) for key in parts[0]}
                milliseconds = 1e3 * row.pop("s") / row["runs"]
                order = "submit" if seed is None else f"seed {seed}"
                rows.append({
                    "workflow": path.name.split(".")[0], "method": name, "order": order,
                    **row, "ms_per_run": milliseconds,
                })  # fmt: skip
                print(json.dumps(rows[-1]), flush=True)
    return rows


@exits_cleanly
def main() -> int:
    """Write the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, help="folder of traces of Nextflow, *.csv.gz")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = study(args.traces)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(args.out, json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
