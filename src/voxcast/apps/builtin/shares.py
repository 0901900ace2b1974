"""The share of a process in rows that are generated: all processes together make the same rows.

Rows come in blocks, each from a random stream of its own, so that a process makes its rows without
those of the others, and their values do not depend on the number of processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

BLOCK_ROWS = 4096


def share(rows: int, rank: int, processes: int) -> tuple[int, int]:
    """Return the first row of a process and the first one of the next.

    Examples
    --------
    >>> [share(10, rank, 4) for rank in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    return rows * rank // processes, rows * (rank + 1) // processes


def generated_rows(
    make: Callable[[np.random.Generator, int], npt.NDArray[np.float64]],
    seed: int,
    first: int,
    end: int,
) -> npt.NDArray[np.float64]:
    """Return the rows from ``first`` to before ``end``, shape (end - first, columns).

    Parameters
    ----------
    make : callable
        Returns a number of rows from a random stream.
    """
    blocks = []
    for block in range(first // BLOCK_ROWS, -(-end // BLOCK_ROWS)):
        rows = make(np.random.default_rng([seed, block]), BLOCK_ROWS)
        start = block * BLOCK_ROWS
        blocks.append(rows[max(first - start, 0) : end - start])
    return np.concatenate(blocks)
