"""The wishes behind a recommendation: a question, a cluster, a policy and limits."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.api.question import Question
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.allocation.offers import HardLimits
    from voxcast.allocation.recommendation import Recommendation
    from voxcast.config import Site


LOCAL = "local"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """Wishes that a recommendation respects.

    Attributes
    ----------
    cluster : str or None
        ``NAME`` or ``NAME:PARTITION``; ``local`` is this machine.
    deadline : str or None
        A duration such as ``2h``, or a time in ISO 8601.
    max_usd : float or None
        Largest cost of an image.
    changes : sequence of str
        ``KEY=VALUE`` of the configuration of cluster and policy.
    """

    question: Question
    cluster: str | None = None
    policy: str | None = None
    deadline: str | None = None
    max_usd: float | None = None
    changes: Sequence[str] = ()

    @property
    def partition(self) -> str | None:
        """The only partition to use, if one is named."""
        return None if self.cluster is None else self.cluster.partition(":")[2] or None

    @property
    def is_local(self) -> bool:
        """Whether the cluster is this machine, by name."""
        return self.cluster == LOCAL

    def limits(self) -> HardLimits:
        """Return the deadline and the budget.

        Raises
        ------
        ConfigError
            If one cannot be read, or is out of range.
        """
        from voxcast.allocation.offers import HardLimits, seconds_until

        deadline = self.deadline
        return HardLimits(
            None if deadline is None else seconds_until(deadline, "--deadline"), self.max_usd
        )

    def site(self) -> Site:
        """Return cluster and policy of the project; errors as `voxcast.config.load_submit`.

        Where the cluster's file leaves open how memory is counted, Slurm is asked.
        """
        from voxcast import config
        from voxcast.allocation.site import THIS_MACHINE

        name = (self.cluster or "").partition(":")[0] or None
        conf_dir = projects.require(self.question.project) / config.CONF_DIR
        chosen = THIS_MACHINE if name == LOCAL else name
        return config.current_site(conf_dir, chosen, self.policy, self.changes)

    def slurm_site(self) -> Site:
        """Return the same where Slurm is needed.

        Raises
        ------
        ConfigError
            If the cluster is this machine; the message lists other clusters.
        """
        from voxcast import config
        from voxcast.allocation.site import THIS_MACHINE

        site = self.site()
        if not site.cluster.is_this_machine:
            return site
        folder = projects.require(self.question.project) / config.CONF_DIR / "cluster"
        names = ", ".join(name for name in config.options(folder) if name != THIS_MACHINE)
        raise ConfigError(
            "has no partitions of Slurm, as it is this machine", THIS_MACHINE,
            f"choose --cluster from {names or 'none'}, or copy a file of conf/cluster for yours",
        )  # fmt: skip

    def recommendation(
        self,
        images: Sequence[Path],
        site: Site,
        volumes: dict[str, dict[str, Any]] | None = None,
    ) -> Recommendation | None:
        """Return the recommendation for the images that can be predicted; None without any.

        ``volumes`` is filled as in `voxcast.serving.champion.Champion`.

        Raises
        ------
        VoxcastError
            If limits or model cannot be had.
        """
        from voxcast.serving.site_candidates import SiteCandidates, predict_images

        limits, cluster = self.limits(), site.cluster
        champion = replace(self.question.champion(), volumes=volumes)
        candidates = SiteCandidates.of(
            cluster, champion.configurations, champion.facts.host_classes,
            partition=self.partition, host=champion.host,
        )  # fmt: skip
        predictions = predict_images(champion, images, candidates, site.policy.confidence)
        if not predictions:
            return None
        return candidates.recommendation(
            site.policy, limits, predictions, champion.facts.host_classes,
            champion.facts.measured, champion.parameters,
        )  # fmt: skip
