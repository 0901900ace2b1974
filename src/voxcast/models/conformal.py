"""Bounds at a given quantile: ranks of out-of-fold residuals, one score per subject.

Runs of one subject are not exchangeable with each other, so a subject gives one score per
application: its worst residual. With n subjects the bound at quantile q is the score of rank
⌈(n + 1) q⌉, as in split conformal prediction (Vovk, Gammerman and Shafer 2005; Lei et al., JASA
2018). Beyond the range of the runs errors may grow with distance: there scores are residuals
divided by a width, see `voxcast.models.side`.

When that rank exceeds n, the history is too small to calibrate q. The bound is then a fixed
multiple of the largest residual of either sign, and no less than `MINIMUM_MARGIN`, or with one
subject `ONE_SUBJECT_MARGIN`, of `voxcast.models.subject_scores`. Nor is it less than the highest
bound that is calibrated, so that bounds never cross. The prediction is marked as not calibrated.

No bound is farther than `REACH` from both the prediction and everything measured. Where a
width, a residual of a poor fit, or the uncertainty of a machine's speed would take it there, it
stops and is not calibrated.

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

from voxcast.models.subject_scores import Scores

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


REACH = 10.0  # times the largest, or one part in so many of the smallest


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
        subjects: Sequence[str],
        apps: Sequence[str],
        factor: float,
        censored: Collection[tuple[str, str]] = (),
        *,
        widths: np.ndarray | None = None,
        either_sign: bool = False,
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
                [subject for subject, name in zip(subjects, apps, strict=True) if name == app],
                {subject for censored_app, subject in censored if censored_app == app},
                widths=1.0 if widths is None else widths[rows],
                either_sign=either_sign,
            )
        return cls(scores, factor)

    def bounds(
        self,
        app: str,
        predictions: np.ndarray,
        lower_quantile: float,
        upper_quantile: float,
        widths: np.ndarray | float = 1.0,
        margins: np.ndarray | float = 0.0,
    ) -> Bounds:
        """Return the bounds of predicted logarithms, shape (n,).

        ``widths`` multiply the scores; ``margins`` are logarithms by which bounds are wider for
        what no score tells.
        """
        scores = [self.by_app[app]] if app in self.by_app else list(self.by_app.values())
        scores = scores or [Scores((), ())]
        down = [s.lower(lower_quantile, self.factor, widths) for s in scores]
        up = [s.upper(upper_quantile, self.factor, widths) for s in scores]
        lower = predictions + np.min(down, axis=0) - margins
        upper = predictions + np.max(up, axis=0) + margins
        floor, ceiling = self.limits(app, predictions)
        enough = app in self.by_app and not self.missing(app, upper_quantile)
        return Bounds(
            np.maximum(lower, floor), np.minimum(upper, ceiling), enough & (upper <= ceiling)
        )

    def limits(self, app: str, predictions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the logarithms beyond which no bound goes, see `REACH`, each of shape (n,)."""
        scores = [self.by_app[app]] if app in self.by_app else list(self.by_app.values())
        scores = scores or [Scores((), ())]
        floor = np.minimum(predictions, min(s.measured[0] for s in scores)) - math.log(REACH)
        ceiling = np.maximum(predictions, max(s.measured[1] for s in scores)) + math.log(REACH)
        return floor, ceiling

    def missing(self, app: str, quantile: float) -> int:
        """Return how many more subjects ``app`` takes for ``quantile``, see `Scores.missing`."""
        return self.by_app.get(app, Scores((), ())).missing(quantile)

    def subjects(self, app: str) -> int:
        """Return the number of subjects of ``app`` with a residual."""
        return self.by_app.get(app, Scores((), ())).subjects

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form, without unknown values."""
        content = asdict(self)
        for fields in content["by_app"].values():
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
