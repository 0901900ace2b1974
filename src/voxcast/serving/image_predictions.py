"""Predictions of every candidate for many images, from a champion here or behind an address."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.allocation.recommendation import ImagePredictions
from voxcast.errors import ImageError, RequestError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from voxcast.serving.champion import Champion
    from voxcast.serving.site_candidates import SiteCandidates

    ImageRows = tuple[Path, list[dict[str, Any]]]  # an image with the rows of its request

logger = logging.getLogger(__name__)


def predict_images(
    champion: Champion,
    paths: Sequence[Path],
    site: SiteCandidates,
    confidence: float,
    *,
    images_per_call: int,
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
    pending: list[ImageRows] = []

    def predict_pending() -> None:
        for path, predictions in _answers(champion, pending, confidence):
            images.append(ImagePredictions(str(path), site.by_candidate(predictions)))
        pending.clear()

    for path in progress(paths, desc="predicting", unit="image"):
        try:
            (row,) = champion.request_rows(path, champion.configurations[:1])
        except (ImageError, RequestError) as error:  # the other images are still predicted
            name = f"{path}: " if isinstance(error, RequestError) else ""
            logger.error("%s%s", name, one_line(error))
            continue
        pending.append((path, site.rows(row)))
        if len(pending) == images_per_call:
            predict_pending()
    if pending:
        predict_pending()
    return images


def _answers(
    champion: Champion, requests: Sequence[ImageRows], confidence: float
) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Yield the predictions of each image that the champion accepts; log the rest."""
    try:
        predictions = champion.predict([row for _, rows in requests for row in rows], confidence)
    except RequestError as error:
        if len(requests) == 1:
            logger.error("%s: %s", requests[0][0], one_line(error))
            return
        half = len(requests) // 2
        yield from _answers(champion, requests[:half], confidence)
        yield from _answers(champion, requests[half:], confidence)
        return
    start = 0
    for path, rows in requests:
        yield path, predictions[start : start + len(rows)]
        start += len(rows)
