"""The candidates of a cluster as questions to a model, and its answers as a recommendation."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.allocation.recommendation import ImagePredictions, Recommendation
from voxcast.errors import ImageError, RequestError, one_line
from voxcast.quantities import format_bytes
from voxcast.serving.champion import allocation_columns, predicted_or_refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from voxcast.allocation.offers import HardLimits, Policy
    from voxcast.allocation.site import Candidate, Cluster
    from voxcast.records import Configuration
    from voxcast.serving.champion import Champion

    Row = dict[str, Any]

IMAGES_PER_CALL = 64

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SiteCandidates:
    """The configurations that fit the nodes of a cluster.

    Attributes
    ----------
    cluster : Cluster
        The site.
    candidates : list of Candidate
        See `voxcast.allocation.site.Cluster.candidates`.
    host : str, optional
        The machine to predict for, in place of the nodes.
    """

    cluster: Cluster
    candidates: list[Candidate]
    host: str | None = None

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        configurations: Sequence[Configuration],
        host_classes: Sequence[str],
        *,
        partition: str | None = None,
        host: str | None = None,
    ) -> SiteCandidates:
        """Return the candidates of a cluster, or of one partition.

        Parameters
        ----------
        host_classes : sequence of str
            Machines that the model was learned from.

        Raises
        ------
        ConfigError
            If the partition is unknown, or no configuration fits.
        """
        cluster = _with_this_machine(cluster, host_classes)
        return cls(cluster, cluster.candidates(configurations, partition), host)

    @property
    def _questions(self) -> list[tuple[Configuration, str | None, str | None]]:
        """Configuration, host class and machine of each candidate: all that a model knows."""
        here = self.cluster.is_this_machine
        return [
            (
                candidate.configuration,
                candidate.node.host_class,
                None if here else candidate.node.host_class or candidate.node.name,
            )
            for candidate in self.candidates
        ]

    def rows(self, row: Mapping[str, Any]) -> list[Row]:
        """Return the rows of an image, one for all candidates that a model distinguishes.

        Parameters
        ----------
        row : mapping
            Of the model's signature; its allocation is replaced.
        """
        rows = []
        for configuration, host_class, host in dict.fromkeys(self._questions):
            cells = {**row, **allocation_columns(configuration)}
            if host_class is not None:
                cells["host_class"] = host_class
            if (stated := self.host or host) is not None:
                cells["host"] = stated
                cells.pop("kernel_s", None)  # which was read here
            rows.append(cells)
        return rows

    def by_candidate(self, predictions: Sequence[Row]) -> list[Row]:
        """Return the prediction of each candidate from the predictions of `rows`."""
        questions = self._questions
        position = {question: n for n, question in enumerate(dict.fromkeys(questions))}
        return [predictions[position[question]] for question in questions]

    def recommendation(
        self,
        policy: Policy,
        limits: HardLimits,
        images: list[ImagePredictions],
        host_classes: Sequence[str],
        measured: Collection[tuple[str, int, int]],
        parameters: Mapping[str, Any] | None = None,
    ) -> Recommendation:
        """Choose for images of one application.

        Parameters
        ----------
        images : list of ImagePredictions
            At least one.
        host_classes, measured
            See `voxcast.serving.bundle.ServedApp`; empty where they are not known.
        parameters : mapping, optional
            Parameters of the application in the question.
        """
        cluster = _with_mapped_files(self.cluster, str(images[0].by_candidate[0]["app"]))
        return Recommendation.of(
            cluster,
            policy,
            limits,
            self.candidates,
            images,
            host_classes,
            measured or None,
            parameters,
        )


def _with_this_machine(cluster: Cluster, host_classes: Sequence[str]) -> Cluster:
    """Return the cluster; nodes of this machine get its class if it was measured."""
    if not cluster.is_this_machine or not host_classes:
        return cluster
    from voxcast.measure.host import host_class, host_facts

    here = host_class(host_facts())
    if here not in host_classes:
        return cluster
    nodes = (replace(n, host_class=n.host_class or here) for n in cluster.node_types)
    return replace(cluster, node_types=tuple(nodes))


def _with_mapped_files(cluster: Cluster, app: str) -> Cluster:
    """Return the cluster; where resident pages count, including mapped files."""
    if cluster.memory_counted != "rss":
        return cluster
    cluster = cluster.for_app(app)
    added = format_bytes(cluster.added_bytes_of(app))
    logger.info("%s counts resident pages: requests are %s larger", cluster.name, added)
    return cluster


def predict_images(
    champion: Champion,
    paths: Sequence[Path],
    site: SiteCandidates,
    confidence: float,
) -> list[ImagePredictions]:
    """Predict every candidate for all images, with a progress bar.

    Images that cannot be read, or that the model refuses, are logged and left out.

    Parameters
    ----------
    confidence : float
        Probability of the upper bounds.
    """
    from voxcast.log import progress

    images: list[ImagePredictions] = []
    remaining = iter(progress(paths, desc="predicting", unit="image"))
    while chunk := list(itertools.islice(remaining, IMAGES_PER_CALL)):
        pending: list[tuple[Path, list[Row]]] = []
        for path in chunk:
            try:
                (row,) = champion.request_rows(path, champion.configurations[:1])
                pending.append((path, site.rows(row)))
            except (ImageError, RequestError) as error:  # the other images are still predicted
                name = f"{path}: " if isinstance(error, RequestError) else ""
                logger.error("%s%s", name, one_line(error))
        requested_rows = [row for _, rows in pending for row in rows]
        answers = iter(predicted_or_refused(champion.predict, requested_rows, confidence))
        for path, rows in pending:
            of_image = list(itertools.islice(answers, len(rows)))
            predictions = [answer for answer in of_image if not isinstance(answer, RequestError)]
            if len(predictions) == len(of_image):
                images.append(ImagePredictions(str(path), site.by_candidate(predictions)))
            else:
                refusal = next(error for error in of_image if isinstance(error, RequestError))
                logger.error("%s: %s", path, one_line(refusal))
    return images
