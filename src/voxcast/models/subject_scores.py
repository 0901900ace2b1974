"""Residuals of one target and application, reduced to one score per subject.

The offsets of bounds are ranks of these scores; see `voxcast.models.conformal`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


MINIMUM_MARGIN = math.log(1.1)  # 10 %: of a few residuals near zero some are so by chance
ONE_SUBJECT_MARGIN = math.log(2.0)  # its runs tell nothing about other subjects


@dataclass(frozen=True)
class Scores:
    """Residuals of one target and application, on the logarithmic scale.

    Attributes
    ----------
    worst, best : tuple of float
        Each subject's largest and smallest residual, measured minus predicted, divided by the
        width of its run; sorted.
    censored : int
        Number of subjects with a run that was stopped before it completed. Its residual is
        unknown, so they count as above every bound.
    residuals : tuple of float
        Smallest and largest residual, not divided by a width.
    measured : tuple of float
        Smallest and largest measured value.
    """

    worst: tuple[float, ...]
    best: tuple[float, ...]
    censored: int = 0
    residuals: tuple[float, float] = (0.0, 0.0)
    measured: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def of(
        cls,
        logs: np.ndarray,
        predictions: np.ndarray,
        subjects: Sequence[str],
        censored: Collection[str] = (),
        *,
        widths: np.ndarray | float = 1.0,
        either_sign: bool = False,
    ) -> Scores:
        """Reduce runs to one score per subject.

        Parameters
        ----------
        logs, predictions : ndarray, shape (n_runs,)
            Measured and out-of-fold predicted logarithms.
        subjects : sequence of str
            Subject of each run.
        censored : collection of str
            Subjects with a run that was stopped.
        widths : ndarray, shape (n_runs,), or float
            Multiplier of the offset of each run's bound.
        either_sign : bool
            Whether an error may have the other sign the next time, and counts with both.
        """
        residuals = logs - predictions
        by_subject: dict[str, list[float]] = {}
        for value, subject in zip((residuals / widths).tolist(), subjects, strict=True):
            by_subject.setdefault(subject, []).extend((value, -value) if either_sign else (value,))
        return cls(
            tuple(sorted(max(r) for s, r in by_subject.items() if s not in censored)),
            tuple(sorted(min(r) for r in by_subject.values())),
            len(set(censored)),
            (float(residuals.min()), float(residuals.max())),
            (float(logs.min()), float(logs.max())),
        )

    @property
    def subjects(self) -> int:
        """Number of subjects with a residual."""
        return len(self.best)

    def missing(self, quantile: float) -> int:
        """Return how many more subjects it takes to calibrate ``quantile``; 0 if it is.

        Without censored subjects ⌈1/α⌉ − 1 are enough, for α = 1 − ``quantile``.

        Examples
        --------
        >>> zeros = (0.0,) * 19
        >>> [Scores(zeros[:n], zeros[:n]).missing(0.95) for n in (19, 18, 3)]
        [0, 1, 16]
        """
        odds = quantile / (1 - quantile)
        needed = math.ceil((self.censored + 1) * odds * (1 - 1e-12))
        return max(0, needed - len(self.worst))

    def upper(
        self, quantile: float, factor: float, widths: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """Return the offset below which a new subject's residuals stay, at ``quantile``.

        It never decreases with ``quantile``.

        Parameters
        ----------
        factor : float
            Multiplies the largest residual where `missing` is not 0.
        widths : ndarray, shape (n,), or float
            Multiplier of the score.

        Returns
        -------
        ndarray, of the shape of ``widths``
            Logarithms, not negative.
        """
        rank = min(_rank(len(self.worst) + self.censored, quantile), len(self.worst))
        score = max(self.worst[rank - 1], 0.0) if self.worst else 0.0
        least = self._margin(factor) if self.missing(quantile) else 0.0
        return np.maximum(score * np.asarray(widths), least)

    def lower(
        self, quantile: float, factor: float, widths: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """Return the offset above which a new subject's residuals stay, at 1 − ``quantile``.

        ``quantile`` is the lower quantile, such as 0.05. Parameters as for `upper`; logarithms,
        not positive.
        """
        rank = _rank(self.subjects, 1 - quantile)
        score = min(self.best[-min(rank, self.subjects)], 0.0) if self.best else 0.0
        least = self._margin(factor) if rank > self.subjects else 0.0
        return np.minimum(score * np.asarray(widths), -least)

    def _margin(self, factor: float) -> float:
        """Return the offset, above and below, of bounds that are not calibrated."""
        least = MINIMUM_MARGIN if self.subjects > 1 else ONE_SUBJECT_MARGIN
        return max(factor * max(map(abs, self.residuals)), least)


def _rank(subjects: int, quantile: float) -> int:
    # The subtraction keeps 20 × 0.95 = 19.000000000000004 from being rounded up.
    return math.ceil((subjects + 1) * quantile - 1e-9)
