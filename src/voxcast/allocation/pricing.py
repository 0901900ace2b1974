"""Prices of an hour of cores, GPUs and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SECONDS_PER_HOUR = 3600.0
BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class Prices:
    """Prices of an hour in US dollars; the defaults are those of HARP's publication.

    References
    ----------
    Vallabhajosyula and Ramnath, "Establishing a generalizable framework for generating
    cost-aware training data and building unique context-aware walltime prediction regression
    models", PEARC 2023, doi 10.1145/3569951.3597607.
    """

    usd_per_core_hour: float = 0.003
    usd_per_gpu_hour: float = 0.09
    usd_per_gb_hour: float = 0.0  # of memory, GB = 10**9 bytes

    def of(self, runtime_s: float, cpus: int, gpus: int, memory_bytes: float = 0.0) -> float:
        """Return the cost in US dollars of CPUs and GPUs for some seconds.

        Examples
        --------
        >>> round(Prices().of(36_000, cpus=28, gpus=1), 2)
        1.74
        """
        return float(runtime_s / SECONDS_PER_HOUR * self.hourly(cpus, gpus, memory_bytes))

    def hourly(self, cpus: Any, gpus: Any, memory_bytes: Any = 0.0) -> Any:
        """Return the price of an hour of an allocation, for numbers or arrays."""
        return (
            cpus * self.usd_per_core_hour
            + gpus * self.usd_per_gpu_hour
            + memory_bytes / BYTES_PER_GB * self.usd_per_gb_hour
        )
