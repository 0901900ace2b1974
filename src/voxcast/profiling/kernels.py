"""Small pieces of constant work whose CPU time tells how fast a core is at the moment.

Each depends on something else that neighbours take: the units of the core, bandwidth, the latency
of caches and memory, and all of it as an interpreter uses it. Recorded times compare only with
times of the same kernels: a change needs a new name.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PRODUCTS, ORDER = 4, 200  # products of square matrices of doubles
COPIED_BYTES = 16_000_000
GATHERED, GATHERED_FROM = 250_000, 1_000_000  # doubles
STEPS = 60_000


@dataclass(frozen=True)
class Kernels:
    """The kernels by name; each takes some milliseconds and allocates nothing of size."""

    by_name: Mapping[str, Callable[[], object]]

    def timed(self) -> dict[str, float]:
        """Run each once; return the CPU seconds of this thread by name."""
        seconds = {}
        for name, kernel in self.by_name.items():
            start_s = time.thread_time()
            kernel()
            seconds[name] = time.thread_time() - start_s
        return seconds


def make_kernels() -> Kernels:
    """Return the kernels, with their memory in place: the first run is as long as the others."""
    import numpy as np

    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, ORDER, ORDER))
    product = np.empty_like(left)
    source = rng.standard_normal(COPIED_BYTES // 8)
    target = np.zeros_like(source)
    values = rng.standard_normal(GATHERED_FROM)
    indices = rng.integers(0, GATHERED_FROM, GATHERED)
    gathered = np.empty(GATHERED)

    def compute() -> None:
        for _ in range(PRODUCTS):
            np.matmul(left, right, out=product)

    def interpreter() -> int:
        total = 0
        for step in range(STEPS):
            total += step & 7
        return total

    kernels = Kernels(
        {
            "compute": compute,
            "copy": lambda: np.copyto(target, source),
            # Without `mode` the result is buffered.
            "gather": lambda: np.take(values, indices, out=gathered, mode="clip"),
            "interpreter": interpreter,
        }
    )
    kernels.timed()
    return kernels
