"""How a machine drifts from sitting to sitting, by the anchors that each sitting begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.history.repeats import REPEATED, anchors
from voxcast.records import Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


@dataclass(frozen=True)
class Anchor:
    """One run that was made at the start of several sittings.

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
        """CPU time less that of the first sitting, as a share of it."""
        first = next(iter(self.cpu_s.values()))
        return {sitting: value / first - 1 for sitting, value in self.cpu_s.items()}

    @property
    def largest(self) -> float:
        """The largest change, whichever its sign."""
        return max(self.change.values(), key=abs)


@dataclass(frozen=True)
class Drift:
    """Anchors that were run in more than one sitting, and these sittings in order."""

    sittings: list[str]
    anchors: list[Anchor]

    @property
    def largest(self) -> tuple[Anchor, float]:
        """The anchor that changed most since its first sitting, and by which share of it."""
        return max(((one, one.largest) for one in self.anchors), key=lambda pair: abs(pair[1]))


def drift(runs: pd.DataFrame) -> Drift | None:
    """Find how the anchors among completed ``runs`` changed; None without a second sitting.

    Those that a busy machine disturbed are left out, and a machine is compared with itself alone.
    """
    own = anchors(runs).sort_values("started_at", kind="stable")
    own = own[(own["cpu_s"] > 0) & ~own["noisy"]]
    found = []
    for _, of_one in own.groupby(REPEATED, sort=True, dropna=False):
        times = of_one.groupby("sitting", sort=False)["cpu_s"].median()
        if len(times) > 1:
            one = of_one.iloc[0]
            found.append(
                Anchor(
                    str(one["app"]),
                    Configuration(str(one["device"]), int(one["cpus"])),
                    str(one["volume_id"]),
                    {str(name): float(value) for name, value in times.items()},
                )
            )
    known = {sitting for one in found for sitting in one.cpu_s}
    order = [str(name) for name in own["sitting"].drop_duplicates() if name in known]
    return Drift(order, found) if found else None
