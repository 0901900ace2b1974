"""Thinning of a long series of samples that keeps its peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MAX_SAMPLES = 200


def thinned(samples: pd.DataFrame, value: str, max_samples: int = MAX_SAMPLES) -> pd.DataFrame:
    """Return at most ``max_samples`` rows: the first, the last, and the highest of each interval.

    The peak of column ``value`` is therefore always retained, at its time.

    Raises
    ------
    ValueError
        If ``max_samples`` is less than 3.
    """
    if max_samples < 3:
        raise ValueError("max_samples must be at least 3")
    if len(samples) <= max_samples:
        return samples
    values = samples[value].to_numpy()[1:-1]
    intervals = np.array_split(np.arange(1, len(samples) - 1), max_samples - 2)
    positions = [0, *(int(s[np.argmax(values[s - 1])]) for s in intervals), len(samples) - 1]
    return samples.iloc[positions]
