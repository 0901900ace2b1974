"""Wall time from CPU time: a ratio by number of CPUs and host.

CPU time depends on the image; the ratio of wall time to CPU time depends on the threads and the
machine. The ratio is therefore estimated separately, as a median over runs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# With fewer runs than this, the next coarser group is used.
MINIMUM_RUNS = 3


@dataclass(frozen=True)
class SlowdownLaw:
    """Median ratio of runtime to CPU time, by increasingly coarse groups of runs.

    Attributes
    ----------
    ratios : mapping of str to float
        Keys are ``cpus|host_class``, ``cpus`` and the empty string for all.
    """

    ratios: Mapping[str, float]

    @classmethod
    def fit(
        cls,
        cpus: Sequence[int],
        host_classes: Sequence[str],
        runtime_s: Sequence[float],
        cpu_s: Sequence[float],
    ) -> SlowdownLaw:
        """Estimate the ratios from completed runs; all columns have one length."""
        groups: dict[str, list[float]] = {}
        for n, host, wall, cpu in zip(cpus, host_classes, runtime_s, cpu_s, strict=True):
            for key in _keys(n, host):
                groups.setdefault(key, []).append(float(wall) / float(cpu))
        return cls(
            {
                key: float(np.median(ratios))
                for key, ratios in sorted(groups.items())
                if key == "" or len(ratios) >= MINIMUM_RUNS
            }
        )

    def ratio(self, cpus: int, host_class: str | None = None) -> float:
        """Return runtime over CPU time.

        An unknown host uses the coarser group. A number of CPUs that was not measured lies on the
        line through its neighbours, both in logarithms, of this host if two numbers were measured
        on it; beyond the largest, the line through the last two goes on, but more CPUs never take
        longer, and never less CPU time.
        """
        for key in _keys(cpus, host_class)[:-1]:
            if key in self.ratios:
                return self.ratios[key]
        for host in (f"|{host_class}", ""):
            measured = self._by_cpus(host)
            if len(measured) > 1:
                return _between(measured, cpus)
        return self.ratios[""]

    def _by_cpus(self, host: str) -> list[tuple[int, float]]:
        """Return the measured ratios by number of CPUs, ascending."""
        pattern = re.compile(rf"(\d+){re.escape(host)}")
        matches = ((pattern.fullmatch(key), ratio) for key, ratio in self.ratios.items())
        return sorted((int(match[1]), ratio) for match, ratio in matches if match)


def _between(measured: list[tuple[int, float]], cpus: int) -> float:
    logs = np.log(np.array(measured, dtype=float))
    at = math.log(cpus)
    if logs[0, 0] <= at <= logs[-1, 0]:
        return math.exp(np.interp(at, logs[:, 0], logs[:, 1]))
    edge, inner = (0, 1) if at < logs[0, 0] else (-1, -2)
    power = (logs[edge, 1] - logs[inner, 1]) / (logs[edge, 0] - logs[inner, 0])
    return math.exp(logs[edge, 1] + min(max(power, -1.0), 0.0) * (at - logs[edge, 0]))


def _keys(cpus: int, host_class: str | None) -> tuple[str, ...]:
    exact = () if host_class is None else (f"{int(cpus)}|{host_class}",)
    return (*exact, f"{int(cpus)}", "")
