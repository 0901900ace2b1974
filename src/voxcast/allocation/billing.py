"""How a site bills a job: its cores, its time, and its failed attempts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.pricing import SECONDS_PER_HOUR
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from voxcast.allocation.node_types import NodeType

_ROUNDING = 1e-9  # tolerance in steps, since 0.1 + 0.2 > 0.3


def stepped(amount: ArrayLike, step: float) -> NDArray[np.float64]:
    """Round up to whole steps; a step of 0 leaves the amount as it is.

    Examples
    --------
    >>> stepped([61, 120], 60.0).tolist()
    [120.0, 120.0]
    """
    exact = np.asarray(amount, dtype=np.float64)
    return exact if step <= 0 else np.ceil(exact / step - _ROUNDING) * step


@dataclass(frozen=True)
class Billing:
    """The billing rule of a site.

    Attributes
    ----------
    memory_follows_cores : bool
        Each core includes its share of the node's memory; a request for more memory is billed
        for the cores that include it.
    whole_node : bool
        A job is billed for the whole node.
    core_step : int
        Cores are billed in multiples of this.
    time_step_s, minimum_s : float
        Step to which time is rounded up (0 for none), and the minimum that is billed.
    """

    memory_follows_cores: bool = False
    whole_node: bool = False
    core_step: int = 1
    time_step_s: float = 0.0
    minimum_s: float = 0.0

    def billed_s(self, seconds: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds that are billed for an attempt of this length."""
        return np.maximum(stepped(seconds, self.time_step_s), self.minimum_s)

    def billed_cores(
        self, node: NodeType, cpus: int, memory_bytes: ArrayLike
    ) -> NDArray[np.float64]:
        """Return the cores that are billed for a number of CPUs and an amount of memory.

        Examples
        --------
        At OSC a core of Pitzer includes 4556 MB, so that 14283 MB are billed as four cores.

        >>> from voxcast.allocation.node_types import NodeType
        >>> pitzer = NodeType("pitzer", cores=40, memory_bytes=40 * 4556 * 10**6)
        >>> Billing(memory_follows_cores=True).billed_cores(pitzer, 1, 14283e6).item()
        4.0
        """
        memory = np.asarray(memory_bytes, dtype=np.float64)
        cores = np.full(memory.shape, float(node.cores if self.whole_node else cpus))
        if self.memory_follows_cores:
            cores = np.maximum(cores, stepped(memory * node.cores / node.memory_bytes, 1.0))
        return np.minimum(stepped(cores, self.core_step), node.cores)

    def usd(
        self, node: NodeType, cpus: int, gpus: int, memory_bytes: ArrayLike, seconds: ArrayLike
    ) -> NDArray[np.float64]:
        """Return the cost of one attempt in US dollars; memory and seconds may be arrays."""
        memory = np.asarray(memory_bytes, dtype=np.float64)
        cores = self.billed_cores(node, cpus, memory)
        if self.whole_node:
            gpus, memory = node.gpus, np.full(memory.shape, float(node.memory_bytes))
        hours = self.billed_s(seconds) / SECONDS_PER_HOUR
        return np.asarray(hours * node.prices.hourly(cores, gpus, memory), dtype=np.float64)


def doubled(first_s: float, actual_s: float, factor: float = 2.0) -> list[float]:
    """Return the requests of a job that is resubmitted with ``factor`` times the time.

    Raises
    ------
    ConfigError
        If no request would be long enough.

    Examples
    --------
    >>> doubled(180, 685)
    [180.0, 360.0, 720.0]
    """
    if not (first_s > 0 and factor > 1 and np.isfinite(actual_s)):
        raise ConfigError(f"{first_s:g} s, multiplied by {factor:g}, never reach {actual_s:g} s")
    requests: list[float] = []
    for n in count():
        requests.append(float(first_s * factor**n))
        if requests[-1] >= actual_s:
            break
    return requests


def attempts_s(requests_s: Sequence[float], actual_s: float) -> list[float]:
    """Return the duration of each attempt: the full request if it fails, else the run.

    Raises
    ------
    ConfigError
        If no request is long enough.

    Examples
    --------
    >>> attempts_s([180, 360, 720], 685), sum(attempts_s([180, 360, 720], 685))
    ([180, 360, 685], 1225)
    """
    for n, request in enumerate(requests_s):
        if request >= actual_s:
            return [*requests_s[:n], actual_s]
    raise ConfigError(f"no request is long enough for a run of {actual_s:g} s")
