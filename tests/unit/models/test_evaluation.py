"""Quantiles of a forecaster on subjects that it did not learn from."""

import numpy as np

import planted
from voxcast.models import point_model
from voxcast.models.calibrated_model import calibrate
from voxcast.models.evaluation import UPPER_QUANTILES, distribution_metrics
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection.cross_validation import Validation
from voxcast.records import TARGETS


def test_quantiles_of_a_planted_law_are_reliable_and_scored_as_the_noise_is() -> None:
    noise = 0.1
    runs = planted.table(160, noise=noise)
    is_train = runs["subject"].astype(int) <= 80
    table, unseen = runs[is_train].reset_index(drop=True), runs[~is_train]
    recipe = ("ridge", FAMILIES["ridge"].defaults, "volume")
    model = point_model.fit(table, None, *recipe, 0)
    out_of_fold = Validation(table, None, 4, 0).out_of_fold(*recipe)
    forecaster = Forecaster({"volume": calibrate(model, table, out_of_fold, 1.5)})
    metrics = distribution_metrics(forecaster, unseen, None)
    assert set(metrics) == set(TARGETS)
    for target in ("cpu_s", "peak_rss_bytes"):
        # That of the true normal law is its deviation over the root of pi; bounds are for the
        # worst run of a subject, and so wider.
        assert 0.9 < metrics[target]["crps_log"] / (noise / np.sqrt(np.pi)) < 1.4
        points = metrics[target]["reliability"]
        assert len(points) == 2 * len(UPPER_QUANTILES) + 1
        for point in points:
            p, observed = point["nominal"], point["below"] / point["subjects"]
            # Of two runs of a subject, the worse is above the median more often than not.
            deviation = np.sqrt(p * (1 - p) * (1 / 80 + 1 / 80))  # of calibration and of counting
            assert p == 0.5 or abs(observed - p) < 3 * deviation
        assert metrics[target]["pinball_log"]["0.95"] < metrics[target]["pinball_log"]["0.5"]
