"""The expected cost of a sequence of requests, in closed form.

A request of length W that is used for u costs alpha W + beta u + gamma. Requests are made one
after the other until one suffices. A checkpoint at the end of a request lets the next one continue
from there, at the cost of the time to write and to read it.

References
----------
Aupy, Gainaru, Honoré, Raghavan, Robert and Sun, "Reservation strategies for stochastic jobs",
IPDPS 2019 (theorem 1); Gainaru, Goglin, Honoré, Pallez, Raghavan, Robert and Sun, "Reservation and
checkpointing strategies for stochastic jobs", IPDPS 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from voxcast.laws.families import Law

# A remaining cost below this share of the omniscient cost is negligible.
NEGLIGIBLE = 1e-10
# Below the largest double, so that sums of costs do not overflow.
_LONGEST = 1e200
# If a larger share of the cost is above the longest request, the mean cannot be computed.
_NO_MEAN = 1e-6


@dataclass(frozen=True)
class CostModel:
    """Prices of a request, and the length of a checkpoint; lengths are in the unit of the law.

    Attributes
    ----------
    alpha : float
        Price of a requested unit, above 0.
    beta : float
        Price of a used unit.
    gamma : float
        Price of each request.
    checkpoint, restart : float
        Length of writing a checkpoint, and of restarting from it.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 0.0
    checkpoint: float = 0.0
    restart: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            minimum = "above 0" if name == "alpha" else "at least 0"
            if not (math.isfinite(value) and value >= 0 and (value > 0 or name != "alpha")):
                raise ConfigError(f"must be {minimum} and finite, not {value:g}", name)

    def omniscient(self, law: Law) -> float:
        """Return the mean cost of requesting exactly the length of each job."""
        return (self.alpha + self.beta) * law.mean + self.gamma

    def lengths(
        self, milestones: ArrayLike, checkpoints: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Return the length of each request: restart, work and checkpoint.

        Parameters
        ----------
        milestones : array_like, shape (n,)
            Work completed at the end of each request, increasing.
        checkpoints : array_like of bool, shape (n,), optional
            Whether it ends with a checkpoint.

        Examples
        --------
        >>> CostModel(checkpoint=7, restart=7).lengths([20, 40, 80], [True, False, False])
        array([27., 27., 67.])
        """
        restart, work, checkpoint = self._parts(milestones, checkpoints)
        return restart + work + checkpoint

    def expected(
        self, law: Law, milestones: ArrayLike, checkpoints: ArrayLike | None = None
    ) -> float:
        """Return the mean cost of a sequence; after its end requests double until one suffices.

        NaN where a significant share of the tail is out of the range of a double.

        Parameters
        ----------
        milestones, checkpoints : see `lengths`
        """
        t, flags = extended(law, milestones, checkpoints)
        survival = law.sf(t)
        remaining_cost = (self.alpha + self.beta) * t[-1] * survival[-1]
        if remaining_cost > _NO_MEAN * self.omniscient(law):
            return math.nan
        request_probability = np.concatenate([[1.0], survival[:-1]])
        restart, work, checkpoint = self._parts(t, flags)
        lost = np.where(flags, 0.0, work) + checkpoint
        price = self.alpha * (restart + work + checkpoint) + self.beta * restart + self.gamma
        with np.errstate(over="ignore"):
            return float(
                self.beta * law.mean + price @ request_probability + self.beta * (lost @ survival)
            )

    def _parts(
        self, milestones: ArrayLike, checkpoints: ArrayLike | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the lengths of restart, work and checkpoint in each request."""
        t = np.asarray(milestones, dtype=np.float64)
        flags = np.zeros(len(t), bool) if checkpoints is None else np.asarray(checkpoints, bool)
        saved = np.concatenate([[0.0], np.maximum.accumulate(np.where(flags, t, 0.0))[:-1]])
        restart = np.where(saved > 0, self.restart, 0.0)
        return restart, t - saved, np.where(flags, self.checkpoint, 0.0)


def extended(
    law: Law, milestones: ArrayLike, checkpoints: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the sequence continued by doubling to the end of the law, without checkpoints."""
    t = np.asarray(milestones, dtype=np.float64)
    flags = np.zeros(len(t), bool) if checkpoints is None else np.asarray(checkpoints, bool)
    high = law.support[1]
    # A difference of logarithms, as the quotient overflows for tiny lengths.
    doublings = math.floor(math.log2(_LONGEST) - math.log2(t[-1]))
    if t[-1] >= high or not law.sf(t[-1]) > 0 or doublings < 1:
        return t, flags
    tail = np.ldexp(t[-1], np.arange(1, doublings + 1))
    if tail[-1] > high:
        tail = np.append(tail[tail < high], high)
    tail = tail[: 1 + int(np.argmin(law.sf(tail)))]  # up to the first with survival 0
    return np.concatenate([t, tail]), np.concatenate([flags, np.zeros(len(tail), bool)])
