"""How long a job waits in the queue: an affine function of the time that it asks for.

Fitted as in Aupy, Gainaru, Honoré, Raghavan, Robert and Sun, "Reservation Strategies for
Stochastic Jobs" (IPDPS 2019), from jobs of like size: they are put into twenty groups by the time
they asked for, and a line goes through the groups' means. Ours is Theil's and Sen's line, which a
week of maintenance in one group does not bend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from voxcast.errors import TableError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

GROUPS = 20
LEAST_IN_GROUP = 5


@dataclass(frozen=True)
class Waiting:
    """Waiting time ``alpha`` × requested time + ``gamma_s``, never below 0; seconds."""

    alpha: float = 0.0
    gamma_s: float = 0.0

    def of(self, requested_s: ArrayLike) -> NDArray[np.float64]:
        """Return the expected waiting time of a request.

        Examples
        --------
        On Intrepid, 409 processors for an hour (the paper's figures):

        >>> round(Waiting(0.95, 3771.84).of(3600.0).item() / 3600, 2)
        2.0
        """
        return np.maximum(self.alpha * np.asarray(requested_s, dtype=float) + self.gamma_s, 0.0)


@dataclass(frozen=True)
class WaitingFit:
    """A fitted law of waiting.

    Attributes
    ----------
    waiting : Waiting
        The law; ``alpha`` is 0 where longer requests did not wait longer.
    jobs, groups : int
        What it rests on.
    typical_error_s : float
        Median distance of the groups' means from the line.
    """

    waiting: Waiting
    jobs: int
    groups: int
    typical_error_s: float


def fit_waiting(requested_s: ArrayLike, waited_s: ArrayLike, groups: int = GROUPS) -> WaitingFit:
    """Fit waiting time from jobs of like size that have started.

    Parameters
    ----------
    requested_s, waited_s : array_like, shape (jobs,)
        Time asked for and time queued; jobs where one is no number are left out.
    groups : int
        How many groups, of as many jobs each.

    Raises
    ------
    TableError
        If there are too few jobs, or all asked for about the same time.
    """
    asked, waited = np.asarray(requested_s, dtype=float), np.asarray(waited_s, dtype=float)
    known = np.isfinite(asked) & np.isfinite(waited) & (asked > 0) & (waited >= 0)
    asked, waited = asked[known], waited[known]
    least = groups * LEAST_IN_GROUP
    if len(asked) < least:
        raise TableError(f"{len(asked)} jobs are too few", "waiting", f"{least} are needed")
    order = np.argsort(asked, kind="stable")
    parts = np.array_split(order, groups)
    means = np.array([[asked[part].mean(), waited[part].mean()] for part in parts])
    if len(np.unique(means[:, 0])) < 3:
        raise TableError("nearly all jobs asked for the same time", "waiting", "no line fits that")
    slope = float(stats.theilslopes(means[:, 1], means[:, 0])[0])
    alpha = max(slope, 0.0)
    gamma_s = float(np.median(means[:, 1] - alpha * means[:, 0]))
    fitted = Waiting(alpha, gamma_s)
    error = np.abs(fitted.of(means[:, 0]) - means[:, 1])
    return WaitingFit(fitted, len(asked), groups, float(np.median(error)))
