"""What jobs cost on a cluster, by its prices and its rules of billing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.allocation.site import Cluster

    Floats = NDArray[np.float64]

_ROOM = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class JobPrices:
    """Prices of jobs, on the node type that each ran on.

    A job of several nodes is billed as that many jobs of one node, each with an equal share.

    Attributes
    ----------
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
        cpus, gpus = (np.ceil(jobs[name].to_numpy() / nodes) for name in ("cpus", "gpus"))
        memory = np.nan_to_num(jobs["mem_limit_bytes"].to_numpy()) / nodes
        # Where a site has one partition, exports may leave it out.
        not_stated = (jobs["partition"] == "").to_numpy() & (len(cluster.partitions) == 1)
        chosen = np.full(len(jobs), -1)
        sizes = [(node.gpus, node.cores, node.memory_bytes) for node in cluster.node_types]
        for n in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
            node = cluster.node_types[n]
            fits = (jobs["partition"] == node.partition).to_numpy() | not_stated
            fits &= (cpus <= node.cores) & (gpus <= node.gpus)
            chosen[fits & (memory <= node.memory_bytes * _ROOM)] = n
        return cls(cluster, chosen, cpus, gpus, nodes)

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
        requested = np.where(np.isnan(requested_s), used_s, requested_s)
        sizes = pd.DataFrame({"node": self.node, "cpus": self.cpus, "gpus": self.gpus})
        for size, same in sizes[self.priced].groupby(list(sizes)).groups.items():
            n, cpus, gpus = np.array(size, dtype=int)
            node = self.cluster.node_types[n]
            seconds = (requested if node.charged == "requested" else used_s)[same]
            each = self.cluster.billing.usd(node, cpus, gpus, share[same], seconds)
            cost[same] = each * self.nodes[same]
        return cost
