"""A kind of node: its size and prices, and the partition that gives access to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from voxcast.allocation.pricing import Prices

Charged = Literal["used", "requested"]


@dataclass(frozen=True)
class NodeType:
    """Nodes of one kind.

    Attributes
    ----------
    memory_bytes : int
        Memory of a node that is available to jobs.
    partition : str
        Partition to which the nodes belong.
    charged : {"used", "requested"}
        Whether the used or the requested time is charged (the latter for a reserved cloud
        instance).
    host_class : str or None
        Host class in the history, where runs were measured on such nodes. If None, the speed of
        the nodes is that of the runs of this node type, see `voxcast.models.speed`.
    """

    name: str
    cores: int
    memory_bytes: int
    gpus: int = 0
    prices: Prices = field(default_factory=Prices)
    partition: str = ""
    charged: Charged = "used"
    host_class: str | None = None
