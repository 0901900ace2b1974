"""What an allocation costs."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Prices:
    """Prices of an hour in US dollars; the defaults are those HARP was published with.

    References
    ----------
    Vallabhajosyula and Ramnath, "Establishing a generalizable framework for generating
    cost-aware training data and building unique context-aware walltime prediction regression
    models", PEARC 2023, doi 10.1145/3569951.3597607.
    """

    usd_per_core_hour: float = 0.003
    usd_per_gpu_hour: float = 0.09

    def of(self, runtime_s: float, cpus: int, gpus: int) -> float:
        """Return what so many seconds of so many CPUs and GPUs cost, in US dollars.

        Examples
        --------
        >>> round(Prices().of(36_000, cpus=28, gpus=1), 2)
        1.74
        """
        hourly = cpus * self.usd_per_core_hour + gpus * self.usd_per_gpu_hour
        return runtime_s / SECONDS_PER_HOUR * hourly
