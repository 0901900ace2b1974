"""Drift of a machine between sittings, measured on the anchors at the start of each sitting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.records import Configuration
from voxcast.runs.table import REPEATED, anchors

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


@dataclass(frozen=True)
class Anchor:
    """One run that was repeated at the start of several sittings.

    Attributes
    ----------
    cpu_s : dict of str to float
        CPU time by name of the sitting, in the order of the sittings.
    """

    app: str
    configuration: Configuration
    volume_id: str
    cpu_s: Mapping[str, float]

    @property
    def change(self) -> dict[str, float]:
        """CPU time minus the first sitting's, as a fraction of the latter."""
        first_cpu_s = next(iter(self.cpu_s.values()))
        return {sitting: value / first_cpu_s - 1 for sitting, value in self.cpu_s.items()}

    @property
    def largest(self) -> float:
        """The change with the largest absolute value."""
        return max(self.change.values(), key=abs)


@dataclass(frozen=True)
class Drift:
    """Anchors that were run in more than one sitting, and these sittings in order."""

    sittings: list[str]
    anchors: list[Anchor]

    @property
    def largest(self) -> tuple[Anchor, float]:
        """The anchor that changed most since its first sitting, and its change as a fraction."""
        return max(((anchor, anchor.largest) for anchor in self.anchors), key=lambda p: abs(p[1]))

    @property
    def changes(self) -> int:
        """Number of changes that were measured: sittings after the first, over all anchors."""
        return sum(len(anchor.cpu_s) - 1 for anchor in self.anchors)


def drift(runs: pd.DataFrame) -> Drift | None:
    """Return how the anchors among completed ``runs`` changed; None without a second sitting.

    Anchors disturbed by other work are left out, and every machine is compared with itself only.
    """
    undisturbed = anchors(runs).sort_values("started_at", kind="stable")
    undisturbed = undisturbed[(undisturbed["cpu_s"] > 0) & ~undisturbed["noisy"]]
    changed = []
    for _, repeats in undisturbed.groupby(REPEATED, sort=True, dropna=False):
        times = repeats.groupby("sitting", sort=False)["cpu_s"].median()
        if len(times) > 1:
            first_run = repeats.iloc[0]
            changed.append(
                Anchor(
                    str(first_run["app"]),
                    Configuration(str(first_run["device"]), int(first_run["cpus"])),
                    str(first_run["volume_id"]),
                    {str(name): float(value) for name, value in times.items()},
                )
            )
    sittings = {sitting for anchor in changed for sitting in anchor.cpu_s}
    names = undisturbed["sitting"].drop_duplicates()
    order = [str(name) for name in names if name in sittings]
    return Drift(order, changed) if changed else None


def largest_change_by_noise(cv_percent: float, changes: int, confidence: float = 0.95) -> float:
    """Return the fraction that the largest of several changes stays below by noise alone.

    A change is the difference of two single runs, so its logarithm has the square root of 2 times
    the scatter of repeats. The bound over all changes is Šidák's, which holds for changes
    from a common first run as well.

    Parameters
    ----------
    cv_percent : float
        Coefficient of variation of repeats within a sitting.
    changes : int
        Number of changes among which the largest is taken.
    confidence : float
        Probability with which the largest change stays below the bound.

    Examples
    --------
    >>> round(largest_change_by_noise(1.0, 1), 3), round(largest_change_by_noise(1.0, 8), 3)
    (0.028, 0.039)
    """
    from scipy.stats import norm

    confidence_per_change = confidence ** (1 / changes)
    sd_log = math.sqrt(2 * math.log1p((cv_percent / 100) ** 2))
    return math.expm1(float(norm.ppf((1 + confidence_per_change) / 2)) * sd_log)
