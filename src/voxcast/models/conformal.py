"""Bounds at a given quantile: ranks of out-of-fold residuals, one score per subject.

Runs of one subject are not exchangeable with each other, so a subject gives one score: its worst
residual. With n subjects the bound at quantile q is the score of rank ⌈(n + 1) q⌉, as in split
conformal prediction (Vovk, Gammerman and Shafer 2005; Lei et al., JASA 2018). Beyond the range of
the runs bounds widen with distance, see `voxcast.models.out_of_range`.

When that rank exceeds n, the history is too small to calibrate q. The bound is then a fixed
multiple of the largest residual of either sign, and no less than `MINIMUM_MARGIN`, or with one
subject `ONE_SUBJECT_MARGIN`. Nor is it less than the highest bound that is calibrated, so that
bounds never cross. The prediction is marked as not calibrated.

No bound is farther than `REACH` from both the prediction and everything measured. Where a residual
of a poor fit, or the uncertainty of a machine's speed would take it there, it stops and is not
calibrated.

The residuals come from cross-validation and the model is refitted on all subjects. This is cross-
conformal, not split conformal: coverage is close to q where the models of the folds resemble the
refitted one, but not guaranteed. The parameters were tuned on the same folds, which makes the
residuals slightly optimistic. `voxcast.models.selection.promotion_rule.risks` therefore evaluates
the bounds by nested folds, and the stage `evaluate` on unseen subjects. The quantile holds for
each target separately, not jointly.

The evidence behind the upper bound of a table's model, and in words why it does not hold.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


REACH = 10.0  # times the largest, or one part in so many of the smallest
FACTOR = 1.5  # of the largest residual, where the subjects are too few
MINIMUM_MARGIN = math.log(1.1)  # 10 %: of a few residuals near zero some are so by chance
ONE_SUBJECT_MARGIN = math.log(2.0)  # its runs tell nothing about other subjects


@dataclass(frozen=True)
class Calibrator:
    """Residuals of one target on the logarithmic scale, reduced to one score per subject.

    Attributes
    ----------
    worst, best : tuple of float
        Each subject's largest and smallest residual, measured minus predicted; sorted.
    censored : int
        Number of subjects with a run that was stopped before it completed. Its residual is
        unknown, so they count as above every bound.
    residuals : tuple of float
        Smallest and largest residual.
    measured : tuple of float
        Smallest and largest measured value.
    factor : float
        Multiplies the largest residual where the subjects are too few.
    """

    worst: tuple[float, ...] = ()
    best: tuple[float, ...] = ()
    censored: int = 0
    residuals: tuple[float, float] = (0.0, 0.0)
    measured: tuple[float, float] = (-math.inf, math.inf)
    factor: float = FACTOR

    @classmethod
    def fit(
        cls,
        logs: np.ndarray,
        predictions: np.ndarray,
        subjects: Sequence[str],
        factor: float = FACTOR,
        censored: Collection[str] = (),
    ) -> Calibrator:
        """Reduce runs to one score per subject.

        Parameters
        ----------
        logs, predictions : ndarray, shape (n_runs,)
            Measured and out-of-fold predicted logarithms.
        subjects : sequence of str
            Subject of each run.
        factor : float
            Multiplies the largest residual where the subjects are too few.
        censored : collection of str
            Subjects with a run that was stopped.
        """
        residuals = logs - predictions
        by_subject: dict[str, list[float]] = {}
        for value, subject in zip(residuals.tolist(), subjects, strict=True):
            by_subject.setdefault(subject, []).append(value)
        return cls(
            tuple(sorted(max(r) for s, r in by_subject.items() if s not in censored)),
            tuple(sorted(min(r) for r in by_subject.values())),
            len(set(censored)),
            (float(residuals.min()), float(residuals.max())),
            (float(logs.min()), float(logs.max())),
            factor,
        )

    def bounds(
        self, predictions: np.ndarray, lower_quantile: float, upper_quantile: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the bounds of predicted logarithms.

        Returns
        -------
        lower, upper : ndarray, shape (n,)
            Logarithms.
        calibrated : ndarray of bool, shape (n,)
            Whether the upper bound holds as stated.
        """
        lower = predictions + self.lower(lower_quantile)
        upper = predictions + self.upper(upper_quantile)
        floor, ceiling = self.limits(predictions)
        calibrated = (upper <= ceiling) & (not self.missing(upper_quantile))
        return np.maximum(lower, floor), np.minimum(upper, ceiling), calibrated

    def limits(self, predictions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the logarithms beyond which no bound goes, see `REACH`, each of shape (n,)."""
        floor = np.minimum(predictions, self.measured[0]) - math.log(REACH)
        return floor, np.maximum(predictions, self.measured[1]) + math.log(REACH)

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
        >>> [Calibrator(zeros[:n], zeros[:n]).missing(0.95) for n in (19, 18, 3)]
        [0, 1, 16]
        """
        odds = quantile / (1 - quantile)
        needed = math.ceil((self.censored + 1) * odds * (1 - 1e-12))
        return max(0, needed - len(self.worst))

    def upper(self, quantile: float) -> float:
        """Return the offset below which a new subject's residuals stay, at ``quantile``.

        A logarithm, not negative; it never decreases with ``quantile``.
        """
        rank = min(_rank(len(self.worst) + self.censored, quantile), len(self.worst))
        score = self.worst[rank - 1] if self.worst else 0.0
        return max(score, self._margin() if self.missing(quantile) else 0.0, 0.0)

    def lower(self, quantile: float) -> float:
        """Return the offset above which a new subject's residuals stay, at 1 − ``quantile``.

        ``quantile`` is the lower quantile, such as 0.05; a logarithm, not positive.
        """
        rank = _rank(self.subjects, 1 - quantile)
        score = self.best[-min(rank, self.subjects)] if self.best else 0.0
        return min(score, -self._margin() if rank > self.subjects else 0.0, 0.0)

    def _margin(self) -> float:
        """Return the offset, above and below, of bounds that are not calibrated."""
        least = MINIMUM_MARGIN if self.subjects > 1 else ONE_SUBJECT_MARGIN
        return max(self.factor * max(map(abs, self.residuals)), least)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form, without unknown values."""
        content = asdict(self)
        if not all(map(math.isfinite, self.measured)):
            del content["measured"]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Calibrator:
        """Read what `to_json` returned."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in content.items()
        }
        return cls(**fields)


def _rank(subjects: int, quantile: float) -> int:
    # The subtraction keeps 20 × 0.95 = 19.000000000000004 from being rounded up.
    return math.ceil((subjects + 1) * quantile - 1e-9)


STEP = 0.01  # of a quantile that is offered


@dataclass(frozen=True)
class BoundEvidence:
    """The groups, or without a group column the rows, that calibrate a bound.

    Attributes
    ----------
    quantile : float
        Probability of the bound.
    unit : {"groups", "rows"}
        What gives one score, see `voxcast.models.conformal`.
    complete, stopped : int
        Number of units whose runs all completed, and of units with a run that was stopped,
        which count as above every bound.
    missing : int
        Number of complete units that the bound lacks to be calibrated; 0 if it is.
    highest_quantile : float
        The highest quantile, in hundredths, that these units calibrate.
    """

    quantile: float
    unit: str
    complete: int
    stopped: int
    missing: int
    highest_quantile: float

    @classmethod
    def of(cls, scores: Calibrator, quantile: float, unit: str) -> BoundEvidence:
        """Return the evidence in the scores of a calibrator.

        Examples
        --------
        >>> from voxcast.models.conformal import Calibrator
        >>> zeros = (0.0,) * 34
        >>> evidence = BoundEvidence.of(Calibrator(zeros, zeros, censored=21), 0.9, "groups")
        >>> evidence.missing, evidence.highest_quantile
        (164, 0.6)
        """
        complete, stopped = len(scores.worst), scores.censored
        highest = math.floor(complete / (complete + stopped + 1) / STEP + 1e-9) * STEP
        missing = scores.missing(quantile)
        return cls(quantile, unit, complete, stopped, missing, round(highest, 2))

    @property
    def reason(self) -> str:
        """In a few words why no bound of this quantile is calibrated; empty if it may be."""
        if not self.missing:
            return ""
        return "too many stopped runs" if self._stopped_matter else f"too few {self.unit}"

    @property
    def _stopped_matter(self) -> bool:
        """Whether the units would suffice if no run had been stopped."""
        odds = self.quantile / (1 - self.quantile)
        return self.complete + self.stopped >= math.ceil(odds * (1 - 1e-12))

    def text(self) -> str:
        """Return the runs missing for a calibrated bound, as one clause."""
        name = f"a {100 * self.quantile:g} % bound"
        total = self.complete + self.stopped
        if not self.missing:
            return f"{total} {self.unit} calibrate {name}"
        if self._stopped_matter and self.unit == "rows":
            stopped = (
                "was stopped before it completed and counts"
                if self.stopped == 1
                else "were stopped before they completed and count"
            )
            return (
                f"{self.stopped} of {total} runs {stopped} as above every bound, too many for "
                f"{name}"
            )
        if self._stopped_matter:
            return (
                f"of {total} {self.unit}, {self.stopped} with a run that was stopped before it "
                f"completed count as above every bound, too many for {name}"
            )
        stopped = f", {self.stopped} of them with a stopped run" if self.stopped else ""
        return f"{total} {self.unit}{stopped} are too few for {name}"

    def advice(self) -> str:
        """Return the user's next step to a calibrated bound, as one clause."""
        options = []
        if self.stopped:
            options.append("run the stopped jobs again with a higher limit and replace their rows")
        with_runs = " in which all runs completed" if self.unit == "groups" else " that completed"
        options.append(f"add {self.missing} {self.unit}{with_runs}")
        if self.highest_quantile > 0.5:
            options.append(f"take --quantile {self.highest_quantile:g}, the highest that holds")
        return ", or ".join(options)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return {"calibrated": not self.missing, **vars(self), "reason": self.reason}
