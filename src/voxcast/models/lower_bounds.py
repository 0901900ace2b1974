"""Runs that were stopped, as lower bounds of what they would have taken.

A run that was stopped by its limit is known to take more than it had taken by then. If it were
left out, models would learn only from the runs that the limit allowed. So its label is the mean of
a normal distribution around the prediction, given that it is above the bound, and the model is
fitted again (Schmee and Hahn, Technometrics 1979; Buckley and James, Biometrika 1979).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

ROUNDS = 3  # of fits with labels from the fit before
MAD_TO_SD = 1.4826  # of a normal distribution
SMALLEST_SD = 0.1  # of a logarithm: errors on training rows are too small


def bounds_of(stopped: pd.DataFrame | None, targets: Sequence[str]) -> pd.DataFrame | None:
    """Return the stopped runs with a known lower bound of each target; None if there are none."""
    if stopped is None or not set(targets) <= set(stopped):
        return None
    values = stopped[list(targets)].to_numpy(dtype=float)
    complete = stopped[(np.isfinite(values) & (values > 0)).all(axis=1)]
    return complete if len(complete) else None


def expected_labels(bounds: np.ndarray, predictions: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return the mean logarithms of stopped runs, shape (n, outputs).

    Parameters
    ----------
    bounds, predictions : ndarray, shape (n, outputs)
        Logarithms that the runs had reached, and predicted ones.
    errors : ndarray, shape (n_runs, outputs)
        Errors of the same model on the runs that completed.

    Examples
    --------
    >>> bounds, none = np.array([[2.0], [-9.0]]), np.zeros((2, 1))
    >>> expected_labels(bounds, none, none).round(3).tolist()
    [[2.005], [0.0]]
    """
    from scipy.stats import norm

    sd = np.maximum(MAD_TO_SD * np.median(np.abs(errors), axis=0), SMALLEST_SD)
    z = (bounds - predictions) / sd
    means: np.ndarray = predictions + sd * np.exp(norm.logpdf(z) - norm.logsf(z))
    return means
