"""Bounds at a given quantile: ranks of out-of-fold residuals, one score per subject.

Runs of one subject are not exchangeable with each other, so a subject gives one score per
application: its worst residual. With n subjects the bound at quantile q is the score of rank
⌈(n + 1) q⌉, as in split conformal prediction (Vovk, Gammerman and Shafer 2005; Lei et al., JASA
2018). When that rank exceeds n, the history is too small to calibrate q: a fixed multiple of the
largest residual is used instead, and the prediction is marked as not calibrated.

The residuals come from cross-validation and the model is refitted on all subjects. This is cross-
conformal, not split conformal: coverage is close to q where the models of the folds resemble the
refitted one, but not guaranteed. The parameters were tuned on the same folds, which makes the
residuals slightly optimistic. `voxcast.models.selection.promotion_rule.risks` therefore evaluates
the bounds by nested folds, and the stage `evaluate` on unseen subjects. The quantile holds for
each target separately, not jointly.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass(frozen=True)
class Scores:
    """Residuals of one target and application, on the logarithmic scale.

    Attributes
    ----------
    worst, best : tuple of float
        Each subject's largest and smallest residual, measured minus predicted; sorted.
    censored : int
        Number of subjects with a run that was stopped before it completed. Its residual is
        unknown, so they count as above every bound.
    """

    worst: tuple[float, ...]
    best: tuple[float, ...]
    censored: int = 0

    @classmethod
    def of(
        cls,
        residuals: Sequence[float],
        subjects: Sequence[str],
        censored: Collection[str] = (),
    ) -> Scores:
        """Reduce residuals of runs to one score per subject; `censored` are subjects."""
        by_subject: dict[str, list[float]] = {}
        for residual, subject in zip(residuals, subjects, strict=True):
            by_subject.setdefault(subject, []).append(float(residual))
        return cls(
            tuple(sorted(max(r) for s, r in by_subject.items() if s not in censored)),
            tuple(sorted(min(r) for r in by_subject.values())),
            len(set(censored)),
        )

    def is_calibrated(self, quantile: float) -> bool:
        """Whether there are enough subjects: at least ⌈1/α⌉ − 1 for α = 1 − ``quantile``.

        Examples
        --------
        >>> zeros = (0.0,) * 19
        >>> [Scores(zeros[:n], zeros[:n]).is_calibrated(0.95) for n in (19, 18)]
        [True, False]
        """
        return _rank(len(self.worst) + self.censored, quantile) <= len(self.worst)

    def upper(self, quantile: float, factor: float) -> float:
        """Return the offset below which a new subject's residuals stay, at ``quantile``.

        ``factor`` multiplies the largest score where `is_calibrated` is false.
        """
        if self.is_calibrated(quantile):
            return self.worst[_rank(len(self.worst) + self.censored, quantile) - 1]
        return max(self.worst[-1], 0.0) * factor if self.worst else 0.0

    def lower(self, quantile: float, factor: float) -> float:
        """Return the offset above which a new subject's residuals stay, at 1 − ``quantile``.

        ``quantile`` is the lower quantile, such as 0.05.
        """
        rank = _rank(len(self.best), 1 - quantile)
        if rank <= len(self.best):
            return self.best[-rank]
        return min(self.best[0], 0.0) * factor


def _rank(subjects: int, quantile: float) -> int:
    # The subtraction keeps 20 × 0.95 = 19.000000000000004 from being rounded up.
    return math.ceil((subjects + 1) * quantile - 1e-9)


@dataclass(frozen=True)
class Calibrator:
    """Scores by application; an unknown application gets the widest bounds of all."""

    by_app: dict[str, Scores]
    factor: float

    @classmethod
    def fit(
        cls,
        residuals: Sequence[float],
        subjects: Sequence[str],
        apps: Sequence[str],
        factor: float,
        censored: Collection[tuple[str, str]] = (),
    ) -> Calibrator:
        """Collect scores from out-of-fold residuals of one target; all columns have one length.

        ``censored`` are pairs of an application and a subject, see `Scores`.
        """
        runs: dict[str, tuple[list[float], list[str]]] = {}
        for residual, subject, app in zip(residuals, subjects, apps, strict=True):
            columns = runs.setdefault(app, ([], []))
            columns[0].append(float(residual))
            columns[1].append(subject)
        scores = {
            app: Scores.of(
                *columns, {subject for censored_app, subject in censored if censored_app == app}
            )
            for app, columns in sorted(runs.items())
        }
        return cls(scores, factor)

    def offsets(
        self, app: str, lower_quantile: float, upper_quantile: float
    ) -> tuple[float, float]:
        """Return the offsets of both bounds from a predicted logarithm: at most 0, at least 0."""
        scores = [self.by_app[app]] if app in self.by_app else list(self.by_app.values())
        low = min(s.lower(lower_quantile, self.factor) for s in scores)
        high = max(s.upper(upper_quantile, self.factor) for s in scores)
        return min(low, 0.0), max(high, 0.0)

    def is_calibrated(self, app: str, quantile: float) -> bool:
        """Whether the history of ``app`` is large enough for ``quantile``."""
        return app in self.by_app and self.by_app[app].is_calibrated(quantile)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Calibrator:
        """Read what `to_json` returned."""
        scores = {
            app: Scores(tuple(s["worst"]), tuple(s["best"]), s["censored"])
            for app, s in content["by_app"].items()
        }
        return cls(scores, content["factor"])
