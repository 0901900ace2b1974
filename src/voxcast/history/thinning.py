"""A long series of samples made short: as many points as a plot or a feature can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MAX_SAMPLES = 200


def thinned(samples: pd.DataFrame, value: str, most: int = MAX_SAMPLES) -> pd.DataFrame:
    """Return at most ``most`` rows of ``samples``: first, last, and the highest of each stretch.

    The peak of column ``value`` is therefore always kept, at its own time.

    Raises
    ------
    ValueError
        If ``most`` is less than 3.
    """
    if most < 3:
        raise ValueError("needs at least 3")
    if len(samples) <= most:
        return samples
    values = samples[value].to_numpy()[1:-1]
    stretches = np.array_split(np.arange(1, len(samples) - 1), most - 2)
    kept = [0, *(int(s[np.argmax(values[s - 1])]) for s in stretches), len(samples) - 1]
    return samples.iloc[kept]
