"""The evidence behind the upper bound of a table's model, and in words why it does not hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voxcast.models.conformal import Calibrator

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
