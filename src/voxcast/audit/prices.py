"""What jobs cost on a cluster, by its prices and its rules of billing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from voxcast.allocation.site import Cluster, NodeType

    Floats = NDArray[np.float64]

_ROOM = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class JobPrices:
    """Prices of jobs, on the node type that each ran on.

    A job of several nodes is billed as that many jobs of one node, each with an equal share.

    Attributes
    ----------
    cluster : Cluster
    node : ndarray of int, shape (n,)
        Position of the node type in the cluster's; -1 for a job whose partition or size the
        cluster does not have, which has no price.
    cpus, gpus, nodes : ndarray of float, shape (n,)
    """

    cluster: Cluster
    node: NDArray[np.int64]
    cpus: Floats
    gpus: Floats
    nodes: Floats

    @classmethod
    def of(cls, jobs: pd.DataFrame, cluster: Cluster) -> JobPrices:
        """Return the prices of jobs, each on the smallest node type of its partition that fits."""
        nodes = np.maximum(jobs["nodes"].to_numpy(), 1.0)
        cpus = np.ceil(jobs["cpus"].to_numpy() / nodes)
        gpus = np.ceil(jobs["gpus"].to_numpy() / nodes)
        memory = np.nan_to_num(jobs["mem_limit_bytes"].to_numpy()) / nodes
        partitions = _codes(jobs, cluster)
        best = np.full(len(jobs), -1)
        order = sorted(range(len(cluster.node_types)), key=lambda n: _size(cluster, n))
        for n in reversed(order):
            node = cluster.node_types[n]
            fits = (cpus <= node.cores) & (gpus <= node.gpus)
            fits &= memory <= node.memory_bytes * _ROOM
            fits &= np.isin(partitions, _namesakes(cluster, node))
            best[fits] = n
        return cls(cluster, best, cpus, gpus, nodes)

    @property
    def priced(self) -> NDArray[np.bool_]:
        """Which jobs have a price."""
        return self.node >= 0

    def usd(self, memory_bytes: Floats, used_s: Floats, requested_s: Floats) -> Floats:
        """Return the cost of one attempt of each job in US dollars; NaN without a price.

        Parameters
        ----------
        memory_bytes : ndarray, shape (n,)
            Requested memory of the whole job; NaN where it is not stated.
        used_s, requested_s : ndarray, shape (n,)
            Time used and requested; which of them is charged depends on the node type.
        """
        cost = np.full(len(self.node), np.nan)
        share = np.nan_to_num(memory_bytes) / self.nodes
        sizes = np.column_stack([self.node, self.cpus, self.gpus])
        for n, cpus, gpus in np.unique(sizes[self.priced], axis=0):
            node = self.cluster.node_types[int(n)]
            same = (sizes == (n, cpus, gpus)).all(axis=1)
            requested = np.where(np.isnan(requested_s[same]), used_s[same], requested_s[same])
            seconds = requested if node.charged == "requested" else used_s[same]
            each = self.cluster.billing.usd(node, int(cpus), int(gpus), share[same], seconds)
            cost[same] = each * self.nodes[same]
        return cost


def _codes(jobs: pd.DataFrame, cluster: Cluster) -> NDArray[np.int64]:
    """Return the first node type of each job's partition; -1 where there is none."""
    first: dict[str, int] = {}
    for n, node in enumerate(cluster.node_types):
        first.setdefault(node.partition, n)
    partitions = jobs["partition"]
    if len(cluster.partitions) == 1:  # where a site has one, exports may leave it out
        first[""] = 0
    by_category = np.array([first.get(name, -1) for name in partitions.cat.categories] + [-1])
    return by_category[partitions.cat.codes.to_numpy()]


def _namesakes(cluster: Cluster, node: NodeType) -> list[int]:
    return [n for n, other in enumerate(cluster.node_types) if other.partition == node.partition]


def _size(cluster: Cluster, n: int) -> tuple[int, int, int]:
    node = cluster.node_types[n]
    return node.gpus, node.cores, node.memory_bytes
