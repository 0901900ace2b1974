"""The communication of ticks in words, the same in every trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.phases.simo import communication, orders_of_magnitude

if TYPE_CHECKING:
    from voxcast.phases.logical import LogicalTrace

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def communication_texts(trace: LogicalTrace) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the kind of communication of each tick, and each kind in words.

    Returns
    -------
    kind : ndarray of int, shape (ticks,)
        Index of the words; as `voxcast.phases.simo.communication`.
    texts : tuple of str
        Operations with the order of magnitude of their sizes, such as ``MPI_Allreduce 1-10 kB``.
    """
    kind = communication(trace)
    events = trace.events
    first = np.unique(kind, return_index=True)[1]
    stops = np.append(trace.starts, len(trace.rows))
    texts = []
    for tick in first.tolist():
        rows = trace.rows[stops[tick] : stops[tick + 1]]
        orders = orders_of_magnitude(events["size_bytes"][rows])
        operations = events["operation"][rows]
        sizes = events["size_bytes"][rows] > 0
        pairs = sorted(set(zip(operations.tolist(), orders.tolist(), sizes.tolist(), strict=True)))
        texts.append(
            " + ".join(_text(events.operations[n], order, has_size=has) for n, order, has in pairs)
        )
    return kind, tuple(texts)


def _text(operation: str, order: int, *, has_size: bool) -> str:
    if not has_size:
        return operation
    prefix, power = divmod(order, 3)
    return f"{operation} {10**power}-{10 ** (power + 1)} {_PREFIXES[prefix]}B"
