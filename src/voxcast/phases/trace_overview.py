"""What there is to see in a trace: phases, their places in the run, and communication."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.phases.leader import DROPPED
from voxcast.phases.signature import signature
from voxcast.phases.timeline import COMMUNICATION, COMPUTATION, middle_span_s, timeline
from voxcast.phases.traffic import traffic

if TYPE_CHECKING:
    from voxcast.phases.leader import Grouping
    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.signature import Signature
    from voxcast.phases.timeline import Timeline
    from voxcast.phases.traffic import Traffic

MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DETAIL_TICKS = 60


@dataclass(frozen=True, eq=False)
class TraceOverview:
    """A trace, ready to be shown.

    Attributes
    ----------
    signature : Signature
        Phases with times, weights and shares.
    order : tuple of int
        Indices of the phases, that with the largest share first. The first `marked` have a mark
        each, in that order, and their places are the categories of the timelines; the next
        category is that of all other ticks, the last the time after the last event.
    marked : int
        Number of phases with a mark.
    timeline : Timeline
        The run.
    detail : Timeline or None
        Some ticks in the middle of the run; None if it is not longer than that.
    processes : Timeline
        The run in a single bin, each process by itself.
    traffic : Traffic
        Messages and collectives.
    computation_unit : str
        What computation was compared in, see `voxcast.phases.traces.events.EventTable`.
    """

    signature: Signature
    order: tuple[int, ...]
    marked: int
    timeline: Timeline
    detail: Timeline | None
    processes: Timeline
    traffic: Traffic
    computation_unit: str

    @property
    def metrics(self) -> dict[str, float]:
        """The run in a few numbers."""
        run = self.signature
        return {
            "count": float(len(run.phases)),
            "dropped_phases": float(run.dropped_phases),
            "ticks": float(run.ticks),
            "processes": float(run.processes),
            "elapsed_s": run.elapsed_s,
            "communication_share": run.communication_share,
            "largest_phase_share": max((phase.share for phase in run.phases), default=0.0),
            "messages": float(self.traffic.messages.sum()),
            "message_bytes": float(self.traffic.size_bytes.sum()),
            "collective_calls": float(sum(c.calls for c in self.traffic.collectives)),
        }

    def as_json(self) -> dict[str, Any]:
        """Return all but the timelines, as what JSON can hold."""
        marks = dict(zip(self.order, MARKS[: self.marked], strict=False))
        run = asdict(self.signature)
        run["phases"] = [
            {"mark": marks.get(n, ""), **phase} for n, phase in enumerate(run["phases"])
        ]
        by_part = self.processes.time_s[:, :-1].sum(axis=(1, 3))
        after_s = self.processes.time_s[:, -1].sum(axis=(1, 2))
        messages, size_bytes = self.traffic.messages, self.traffic.size_bytes
        return {
            **run,
            "computation_unit": self.computation_unit,
            "by_process": [
                {
                    "process": name,
                    "computation_s": float(part[COMPUTATION]),
                    "communication_s": float(part[COMMUNICATION]),
                    "after_s": float(rest),
                }
                for name, part, rest in zip(self.processes.lanes, by_part, after_s, strict=True)
            ],
            "messages": [
                {
                    "sender": int(sender),
                    "receiver": int(receiver),
                    "messages": int(messages[sender, receiver]),
                    "size_bytes": int(size_bytes[sender, receiver]),
                }
                for sender, receiver in np.argwhere(messages)
            ],
            "collectives": [asdict(collective) for collective in self.traffic.collectives],
        }


def trace_overview(
    trace: LogicalTrace,
    grouping: Grouping,
    *,
    bins: int,
    max_lanes: int,
    max_marked: int = len(MARKS),
) -> TraceOverview:
    """Return what there is to see in a trace.

    Parameters
    ----------
    trace : LogicalTrace
        The trace.
    grouping : Grouping
        Its phases.
    bins, max_lanes : int
        Of the timelines, see `voxcast.phases.timeline.timeline`.
    max_marked : int
        Most phases that get a mark.
    """
    run = signature(trace, grouping)
    order = sorted(range(len(run.phases)), key=lambda n: -run.phases[n].share)
    marked = min(len(order), max_marked)
    # The last element is for the label of dropped phases, -1.
    places = np.full(len(order) + 1, marked)
    places[order[:marked]] = np.arange(marked)
    category = places[np.where(grouping.label == DROPPED, len(order), grouping.label)]
    lines = partial(timeline, trace, category, marked + 1)
    span_s = middle_span_s(trace, DETAIL_TICKS)
    detail = None if span_s is None else lines(bins=bins, max_lanes=max_lanes, span_s=span_s)
    return TraceOverview(
        run, tuple(order), marked, lines(bins=bins, max_lanes=max_lanes), detail,
        lines(bins=1, max_lanes=run.processes), traffic(trace.events),
        trace.events.computation_unit,
    )  # fmt: skip
