"""Wall time from CPU time: a ratio by application, number of CPUs and host.

CPU time depends on the image; the ratio of wall time to CPU time depends on the threads and the
machine. The ratio is therefore estimated separately, as a median over runs.
"""

from __future__ import annotations

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
        Keys are ``app|cpus|host_class``, ``app|cpus``, ``app`` and the empty string for all.
    """

    ratios: Mapping[str, float]

    @classmethod
    def fit(
        cls,
        apps: Sequence[str],
        cpus: Sequence[int],
        host_classes: Sequence[str],
        runtime_s: Sequence[float],
        cpu_s: Sequence[float],
    ) -> SlowdownLaw:
        """Estimate the ratios from completed runs; all columns have one length."""
        groups: dict[str, list[float]] = {}
        for app, n, host, wall, cpu in zip(
            apps, cpus, host_classes, runtime_s, cpu_s, strict=True
        ):
            for key in _keys(app, n, host):
                groups.setdefault(key, []).append(float(wall) / float(cpu))
        return cls(
            {
                key: float(np.median(ratios))
                for key, ratios in sorted(groups.items())
                if key == "" or len(ratios) >= MINIMUM_RUNS
            }
        )

    def ratio(self, app: str, cpus: int, host_class: str | None = None) -> float:
        """Return runtime over CPU time.

        An unknown host uses the coarser group, and a number of CPUs that was not measured a power
        of it through those that were.
        """
        *exact, of_app, of_all = _keys(app, cpus, host_class)
        for key in exact:
            if key in self.ratios:
                return self.ratios[key]
        return self._by_power(app, cpus) or self.ratios.get(of_app, self.ratios[of_all])

    def _by_power(self, app: str, cpus: int) -> float | None:
        """Return the ratio by a power of the CPUs; None if only one number was measured."""
        measured = {
            int(count): ratio
            for key, ratio in self.ratios.items()
            for name, _, count in [key.rpartition("|")]
            if name == app and count.isdecimal()
        }
        if len(measured) < 2:
            return None
        counts = np.array(sorted(measured))
        logs = np.log([measured[count] for count in counts])
        slope = np.polyfit(np.log(counts), logs, 1)[0]
        nearest = int(np.abs(np.log(counts / cpus)).argmin())
        # More CPUs never take longer, and never less CPU time.
        power = np.clip(slope, -1.0, 0.0)
        return float(np.exp(logs[nearest]) * (cpus / counts[nearest]) ** power)


def _keys(app: str, cpus: int, host_class: str | None) -> tuple[str, ...]:
    exact = () if host_class is None else (f"{app}|{int(cpus)}|{host_class}",)
    return (*exact, f"{app}|{int(cpus)}", app, "")
