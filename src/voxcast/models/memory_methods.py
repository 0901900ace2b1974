"""Memory by another method of measuring, brought to the level of the usual one.

Slurm's MaxRSS counts other pages than a control group, and is sampled. One factor for all runs of
an application is their ratio: the median of measured over predicted. A change of the
level of memory cannot be learned from such runs, and differences between images can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.query import queries_of

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.models.forecaster import Forecaster

MEMORY = "peak_rss_bytes"
MIN_RUNS = 10  # with fewer the factor is not known, and the runs are left out


def at_usual_level(
    table: pd.DataFrame, volumes: np.ndarray | None, forecaster: Forecaster
) -> tuple[pd.DataFrame, float]:
    """Return the runs with their memory divided by the factor, and the factor.

    Parameters
    ----------
    table : DataFrame
        Training runs whose memory was measured by one other method.
    forecaster : Forecaster
        Learned from memory by the usual method.
    """
    predictions = forecaster.predict(queries_of(table, volumes))
    predicted = np.array([prediction.quantiles[MEMORY][1] for prediction in predictions])
    factor = float(np.exp(np.median(np.log(table[MEMORY].to_numpy(dtype=float) / predicted))))
    return table.assign(**{MEMORY: table[MEMORY] / factor}), factor
