"""Requests for many images, and optimal request sequences; prints JSON.

python benchmarks/allocation.py recommend|requests
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from timing import median_seconds, seconds

PROJECT = Path(__file__).parents[1]
REPEATS = 7


def recommend() -> dict[str, Any]:
    """Requests for many images: the choice alone, and from features to the choice."""
    import numpy as np
    import pandas as pd

    from voxcast import config
    from voxcast.allocation.offers import HardLimits, Predictions, offers
    from voxcast.errors import ModelError
    from voxcast.features.rows import rows_of
    from voxcast.models.point_model import Query
    from voxcast.records import Configuration
    from voxcast.serving.model_store import ModelStore

    images = 100_000
    site = config.load_submit(PROJECT / "conf", "osc", here=lambda: config.Here(1, 1, 0))
    configurations = [Configuration("cpu", cpus) for cpus in (1, 2)]
    candidates = site.cluster.candidates(configurations)
    rng = np.random.default_rng(0)

    def make_choices(predictions: Predictions) -> None:
        limits = HardLimits(36_000.0, 0.5)
        _ = offers(predictions, candidates, site.cluster, site.policy, limits).choice

    median = rng.lognormal(6, 0.5, (images, len(candidates)))
    predictions = Predictions(
        median, 1.3 * median, np.full_like(median, 4e8), np.full_like(median, 5e8)
    )
    figures: dict[str, Any] = {
        "images": images,
        "candidates": len(candidates),
        "choice_s": median_seconds(lambda: make_choices(predictions), 3),
        "bound_s": 60,
    }
    try:
        bundle = ModelStore.of(PROJECT).open()
        forecaster = bundle.forecaster(next(iter(bundle.apps)))
    except ModelError as error:
        return {**figures, "skipped": f"features to answer: {error}"}
    table = pd.read_parquet(PROJECT / "data/features/train.parquet")
    rows = (rows_of(table) * (images // len(table) + 1))[:images]

    def from_features() -> None:
        columns = []
        targets = ("runtime_s", "peak_rss_bytes")
        for configuration in configurations:
            queries = [Query(row, cpus=configuration.cpus) for row in rows]
            columns.append(
                [
                    [prediction.quantiles[target][1:] for target in targets]
                    for prediction in forecaster.predict(queries)
                ]
            )
        # Axes: configuration, image, target, quantile; indexed by candidate.
        places = [configurations.index(candidate.configuration) for candidate in candidates]
        values = np.array(columns)[places].transpose(2, 3, 1, 0)
        make_choices(Predictions(*(values[n // 2, n % 2] for n in range(4))))

    return {**figures, "features_to_answer_s": seconds(from_features)}


def requests() -> dict[str, Any]:
    """Optimal request sequences: the programmes at three sizes, and those of 100,000 images."""
    import numpy as np

    from voxcast.allocation.requests.cost import CostModel
    from voxcast.allocation.requests.per_image import requests_per_image
    from voxcast.allocation.requests.programme import (
        equal_time,
        mixed_checkpoints,
        without_checkpoints,
    )
    from voxcast.laws.families import parse_law
    from voxcast.laws.predicted import PredictedLaw

    law, cost = parse_law("lognormal(3,0.5)"), CostModel(0.95, 1, 1, 2, 2)
    figures: dict[str, Any] = {}
    for programme, sizes in (
        (without_checkpoints, (250, 500, 1000, 2000)),
        (mixed_checkpoints, (150, 300, 600)),
    ):
        times_ms = {}
        for points in sizes:
            solve = functools.partial(programme, equal_time(law, points), cost)
            times_ms[points] = 1e3 * median_seconds(solve, REPEATS)
        figures[f"{programme.__name__}_ms"] = times_ms
        growth = np.polyfit(np.log(sizes), np.log(list(times_ms.values())), 1)[0]
        figures[f"{programme.__name__}_grows_with_n_to_the"] = round(float(growth), 2)
    rng = np.random.default_rng(0)
    residuals = PredictedLaw.of_residuals(rng.normal(0, 0.1, 500))
    median, up = rng.lognormal(6, 1, 100_000), np.exp(rng.normal(0, 0.3, 100_000))
    images_s = seconds(lambda: requests_per_image(residuals, cost, median, up, up))
    return {
        **figures,
        "bound_without_checkpoints_1000_ms": 20,
        "bound_mixed_checkpoints_300_ms": 1000,
        "images_100000_s": images_s,
        "bound_images_100000_s": 60,
    }


BENCHMARKS = {"recommend": recommend, "requests": requests}

if __name__ == "__main__":
    json.dump(BENCHMARKS[sys.argv[1]](), sys.stdout, indent=2)
