"""Replay of a history run by run: what requests that are learned online would have cost.

Runs come in the order of their starts. Each is requested from the runs of the same application and
CPUs that have ended by then, so that nothing is fitted beforehand and nothing is known of later
runs. A failed attempt holds its memory until its limit, or for the whole runtime.

Beside `OnlineSizer` stand the largest run so far and the 95th percentile of the runs so far, both
doubled after a failure: rules that a laboratory could follow by hand.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.requests.online import (
    FIRST_MEMORY_BYTES,
    FIRST_TIME_S,
    OnlineSizer,
    and_doubled,
)
from voxcast.allocation.site import BYTES_PER_GB, SECONDS_PER_HOUR
from voxcast.models.families.regressors import SIZES
from voxcast.records import Request

if TYPE_CHECKING:
    import pandas as pd

RULES = {"largest": 1.0, "percentile": 0.95}  # quantile of the runs so far
ONLINE = "online"


@dataclass
class Held:
    """What the attempts of some runs held.

    Attributes
    ----------
    runs, failures : int
        Runs, and attempts that were too small.
    unused_gb_h, unused_core_h : float
        Memory and time that were requested and not used; of a failed attempt, all that it held.
    """

    runs: int = 0
    failures: int = 0
    unused_gb_h: float = 0.0
    unused_core_h: float = 0.0

    def add(
        self, requests: Sequence[Request], runtime_s: float, peak_bytes: float, cpus: int
    ) -> None:
        """Add a run; beyond the last request both amounts are doubled."""
        self.runs += 1
        rungs = [(float(request.memory_bytes), request.walltime_s) for request in requests]
        for memory_bytes, limit_s in and_doubled(rungs):
            if limit_s >= runtime_s and memory_bytes >= peak_bytes:
                unused_s = limit_s - runtime_s
                self._hold((memory_bytes - peak_bytes) * runtime_s, unused_s * cpus)
                return
            self.failures += 1
            self._hold(memory_bytes * min(limit_s, runtime_s), limit_s * cpus)

    def _hold(self, byte_s: float, core_s: float) -> None:
        self.unused_gb_h += byte_s / BYTES_PER_GB / SECONDS_PER_HOUR
        self.unused_core_h += core_s / SECONDS_PER_HOUR


def replay_online(
    table: pd.DataFrame, on_run: Callable[[], object] = lambda: None
) -> dict[str, dict[str, dict[str, float]]]:
    """Return a `Held` as a dict by application and way of requesting.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.evaluation.recorded_table.history_table`.
    on_run : callable
        Called after each run.
    """
    import pandas as pd

    starts = pd.to_datetime(table["started_at"], utc=True, errors="coerce", format="ISO8601")
    table = table.assign(start_s=(starts - pd.Timestamp(0, tz="UTC")).dt.total_seconds())
    sizer = OnlineSizer(objective="both")
    earlier: dict[str, list[tuple[float, float]]] = defaultdict(list)
    held: dict[str, dict[str, Held]] = defaultdict(lambda: defaultdict(Held))
    running: list[tuple[float, int, str, dict[str, float], tuple[float, float]]] = []
    end_s = 0.0
    runs = table.sort_values("start_s", kind="stable").to_dict("records")
    for number, run in enumerate(runs):
        app, cpus = str(run["app"]), int(run["cpus"])
        task = f"{cpus} CPUs/{app}"  # alike is the same application with other CPUs
        used = float(run["runtime_s"]), float(run["peak_rss_bytes"])
        features = _sizes(run)
        # Runs that do not state their start come one after the other.
        start_s = float(run["start_s"]) if np.isfinite(run["start_s"]) else end_s
        end_s = start_s + used[0]
        while running and running[0][0] <= start_s:
            _, _, task_ended, features_ended, used_then = heapq.heappop(running)
            sizer.update(
                task_ended, features_ended, runtime_s=used_then[0], peak_rss_bytes=used_then[1]
            )
            earlier[task_ended].append(used_then)
        sequences = {
            rule: _at_quantile(earlier[task], quantile) for rule, quantile in RULES.items()
        }
        sequences[ONLINE] = sizer.requests(task, features)
        for rule, requests in sequences.items():
            held[app][rule].add(requests, *used, cpus)
        heapq.heappush(running, (end_s, number, task, features, used))
        on_run()
    return {app: {rule: asdict(h) for rule, h in by_rule.items()} for app, by_rule in held.items()}


def _at_quantile(earlier: Sequence[tuple[float, float]], quantile: float) -> list[Request]:
    if not earlier:
        return [Request(FIRST_TIME_S, int(FIRST_MEMORY_BYTES))]
    time_s, memory = np.quantile(earlier, quantile, axis=0)
    return [Request(float(time_s), int(np.ceil(memory)))]


def _sizes(run: dict[Any, Any]) -> dict[str, float]:
    """Return the numbers of a run that state sizes: voxels, and labels such as an input's."""
    return {
        name: float(value)
        for name, value in run.items()
        if name in SIZES or str(name).startswith("parameter.")
        if isinstance(value, int | float)
    }
