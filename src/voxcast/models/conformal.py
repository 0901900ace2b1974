"""Bounds at a given quantile: ranks of out-of-fold residuals, one score per subject.

Runs of one subject are not exchangeable with each other, so a subject gives one score per
application: its worst residual. With n subjects the bound at quantile q is the score of rank
⌈(n + 1) q⌉, as in split conformal prediction (Vovk, Gammerman and Shafer 2005; Lei et al., JASA
2018). Scores are residuals divided by the spread of their predictions, so that a bound is wider
where the model is less certain.

When that rank exceeds n, the history is too small to calibrate q. The bound is then a fixed
multiple of the largest residual of either sign, and no less than `MINIMUM_MARGIN`, or with one
subject `ONE_SUBJECT_MARGIN`. Nor is it less than the highest bound that is calibrated, so that
bounds never cross. The prediction is marked as not calibrated. The spread is not used for it, nor
for any bound from fewer than `SPREAD_SUBJECTS`: few subjects do not tell it.

No bound is farther than `REACH` from both the prediction and everything measured. Where a
spread, or a residual of a poor fit, would take it there, it stops and is not calibrated.

The residuals come from cross-validation and the model is refitted on all subjects. This is cross-
conformal, not split conformal: coverage is close to q where the models of the folds resemble the
refitted one, but not guaranteed. The parameters were tuned on the same folds, which makes the
residuals slightly optimistic. `voxcast.models.selection.risk.risks` therefore evaluates
the bounds by nested folds, and the stage `evaluate` on unseen subjects. The quantile holds for
each target separately, not jointly.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


REACH = 10.0  # times the largest, or one part in so many of the smallest
MINIMUM_MARGIN = math.log(1.1)  # 10 %: of a few residuals near zero some are so by chance
ONE_SUBJECT_MARGIN = math.log(2.0)  # its runs tell nothing about other subjects
SPREAD_SUBJECTS = 10
SMALLEST_SPREAD = 1e-9  # in place of a spread of zero, by which no residual can be divided


@dataclass(frozen=True)
class Scores:
    """Residuals of one target and application, on the logarithmic scale.

    Attributes
    ----------
    worst, best : tuple of float
        Each subject's largest and smallest residual, measured minus predicted; divided by the
        spread if `is_scaled`; sorted.
    censored : int
        Number of subjects with a run that was stopped before it completed. Its residual is
        unknown, so they count as above every bound.
    residuals : tuple of float, optional
        Smallest and largest residual, not divided by the spread.
    measured : tuple of float
        Smallest and largest measured value. Models of earlier releases do not tell it.
    is_scaled : bool
        Whether bounds are in proportion to the spread.
    """

    worst: tuple[float, ...]
    best: tuple[float, ...]
    censored: int = 0
    residuals: tuple[float, float] | None = None
    measured: tuple[float, float] = (-math.inf, math.inf)
    is_scaled: bool = True

    @classmethod
    def of(
        cls,
        logs: np.ndarray,
        predictions: np.ndarray,
        spread: np.ndarray,
        subjects: Sequence[str],
        censored: Collection[str] = (),
    ) -> Scores:
        """Reduce runs to one score per subject.

        Parameters
        ----------
        logs, predictions : ndarray, shape (n_runs,)
            Measured and out-of-fold predicted logarithms.
        spread : ndarray, shape (n_runs, 2)
            Uncertainty below and above.
        subjects : sequence of str
            Subject of each run.
        censored : collection of str
            Subjects with a run that was stopped.
        """
        residuals = logs - predictions
        is_scaled = len(set(subjects)) >= SPREAD_SUBJECTS
        values = scaled(residuals, spread) if is_scaled else residuals
        by_subject: dict[str, list[float]] = {}
        for value, subject in zip(values.tolist(), subjects, strict=True):
            by_subject.setdefault(subject, []).append(value)
        return cls(
            tuple(sorted(max(r) for s, r in by_subject.items() if s not in censored)),
            tuple(sorted(min(r) for r in by_subject.values())),
            len(set(censored)),
            (float(residuals.min()), float(residuals.max())),
            (float(logs.min()), float(logs.max())),
            is_scaled,
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

    def upper(self, quantile: float, factor: float, spread: np.ndarray) -> np.ndarray:
        """Return the offsets below which a new subject's residuals stay, at ``quantile``.

        They never decrease with ``quantile``.

        Parameters
        ----------
        factor : float
            Multiplies the largest residual where `missing` is not 0.
        spread : ndarray, shape (n,)
            Uncertainty above each prediction.

        Returns
        -------
        ndarray, shape (n,)
            Logarithms, not negative.
        """
        rank = min(_rank(len(self.worst) + self.censored, quantile), len(self.worst))
        score = max(self.worst[rank - 1], 0.0) if self.worst else 0.0
        calibrated = score * self._widths(spread)
        if not self.missing(quantile):
            return calibrated
        upper: np.ndarray = np.maximum(calibrated, self._margins(factor, spread))
        return upper

    def lower(self, quantile: float, factor: float, spread: np.ndarray) -> np.ndarray:
        """Return the offsets above which a new subject's residuals stay, at 1 − ``quantile``.

        ``quantile`` is the lower quantile, such as 0.05. Parameters as for `upper`; logarithms,
        not positive.
        """
        rank = _rank(self.subjects, 1 - quantile)
        score = min(self.best[-min(rank, self.subjects)], 0.0) if self.best else 0.0
        calibrated = score * self._widths(spread)
        if rank <= self.subjects:
            return calibrated
        lower: np.ndarray = np.minimum(calibrated, -self._margins(factor, spread))
        return lower

    def _widths(self, spread: np.ndarray) -> np.ndarray:
        """Return what a score is multiplied by, shape (n,)."""
        return np.maximum(spread, SMALLEST_SPREAD) if self.is_scaled else np.ones(len(spread))

    def _margins(self, factor: float, spread: np.ndarray) -> np.ndarray:
        """Return the offsets, above and below, of bounds that are not calibrated, shape (n,)."""
        if self.residuals is not None:
            largest = np.full(len(spread), max(map(abs, self.residuals)))
        else:  # a model of an earlier release
            largest = max(map(abs, (*self.worst, *self.best)), default=0.0) * self._widths(spread)
        least = MINIMUM_MARGIN if self.subjects > 1 else ONE_SUBJECT_MARGIN
        return np.maximum(largest * factor, least)


def scaled(residuals: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return residuals divided by the spread on their side, which is a last axis of ``spread``."""
    width = np.where(residuals > 0, spread[..., 1], spread[..., 0])
    quotients: np.ndarray = residuals / np.maximum(width, SMALLEST_SPREAD)
    return quotients


def _rank(subjects: int, quantile: float) -> int:
    # The subtraction keeps 20 × 0.95 = 19.000000000000004 from being rounded up.
    return math.ceil((subjects + 1) * quantile - 1e-9)


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bounds of predictions of one application and target.

    Attributes
    ----------
    lower, upper : ndarray, shape (n,)
        Logarithms.
    calibrated : ndarray of bool, shape (n,)
        Whether the upper bound holds as stated.
    """

    lower: np.ndarray
    upper: np.ndarray
    calibrated: np.ndarray


@dataclass(frozen=True)
class Calibrator:
    """Scores by application; an unknown application gets the widest bounds of all."""

    by_app: dict[str, Scores]
    factor: float

    @classmethod
    def fit(
        cls,
        logs: np.ndarray,
        predictions: np.ndarray,
        spread: np.ndarray,
        subjects: Sequence[str],
        apps: Sequence[str],
        factor: float,
        censored: Collection[tuple[str, str]] = (),
    ) -> Calibrator:
        """Collect the scores of each application; arguments as `Scores.of`, one target.

        ``censored`` are pairs of an application and a subject.
        """
        scores = {}
        for app in sorted(set(apps)):
            rows = np.array([name == app for name in apps])
            scores[app] = Scores.of(
                logs[rows],
                predictions[rows],
                spread[rows],
                [subject for subject, name in zip(subjects, apps, strict=True) if name == app],
                {subject for censored_app, subject in censored if censored_app == app},
            )
        return cls(scores, factor)

    def bounds(
        self,
        app: str,
        predictions: np.ndarray,
        spread: np.ndarray,
        lower_quantile: float,
        upper_quantile: float,
    ) -> Bounds:
        """Return the bounds of predicted logarithms, shape (n,), with their spread, (n, 2)."""
        scores = [self.by_app[app]] if app in self.by_app else list(self.by_app.values())
        scores = scores or [Scores((), ())]
        down = [s.lower(lower_quantile, self.factor, spread[:, 0]) for s in scores]
        up = [s.upper(upper_quantile, self.factor, spread[:, 1]) for s in scores]
        lower = predictions + np.min(down, axis=0)
        upper = predictions + np.max(up, axis=0)
        floor = np.minimum(predictions, min(s.measured[0] for s in scores)) - math.log(REACH)
        ceiling = np.maximum(predictions, max(s.measured[1] for s in scores)) + math.log(REACH)
        enough = app in self.by_app and not self.missing(app, upper_quantile)
        return Bounds(
            np.maximum(lower, floor), np.minimum(upper, ceiling), enough & (upper <= ceiling)
        )

    def missing(self, app: str, quantile: float) -> int:
        """Return how many more subjects ``app`` takes for ``quantile``, see `Scores.missing`."""
        return self.by_app.get(app, Scores((), ())).missing(quantile)

    def subjects(self, app: str) -> int:
        """Return the number of subjects of ``app`` with a residual."""
        return self.by_app.get(app, Scores((), ())).subjects

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form, without what is not known."""
        content = asdict(self)
        for fields in content["by_app"].values():
            if fields["residuals"] is None:
                del fields["residuals"]
            if not all(map(math.isfinite, fields["measured"])):
                del fields["measured"]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Calibrator:
        """Read what `to_json` returned."""
        scores = {}
        for app, fields in content["by_app"].items():
            score_fields: dict[str, Any] = {
                name: tuple(field) if isinstance(field, list | tuple) else field
                for name, field in fields.items()
            }
            scores[app] = Scores(**score_fields)
        return cls(scores, content["factor"])
