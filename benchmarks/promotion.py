"""How often the rule of promotion takes a gain for shown, with and without one; prints JSON.

The gains of a sample are one number for each subject, with standard deviation 1. ``error`` is the
share of samples whose interval is above zero although the mean gain of the population is zero;
2.5 % is stated. ``power`` is that share where the mean gain is ``GAIN``. A minus marks populations
whose long tail is of losses. ``mean`` is what a challenger is judged by that learned from more
subjects: the mean gain of the sample is above zero.

python benchmarks/promotion.py [SAMPLES]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from voxcast.laws.intervals import cautious_mean, clustered_mean

SUBJECTS = (4, 6, 9, 15, 30, 105)
# A gain of 20 % of the error, where the gains of subjects vary by 33 % of it.
GAIN = 0.6
Estimate = Callable[[np.ndarray, list[str]], float]
ESTIMATES: dict[str, Estimate] = {  # each shows a gain where it is above zero
    "student_t": lambda gains, subjects: clustered_mean(gains, subjects).low,
    "one_more_subject": lambda gains, subjects: cautious_mean(gains, subjects).low,
    "mean": lambda gains, subjects: float(gains.mean()),
}
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def lognormal(sigma: float) -> Draw:
    """Return a generator of skewed gains with a few large ones."""
    mean = np.exp(sigma**2 / 2)
    deviation = mean * np.sqrt(np.exp(sigma**2) - 1)
    return lambda rng, shape: (rng.lognormal(0, sigma, shape) - mean) / deviation


def mixture(share: float) -> Draw:
    """Return a generator of gains that a share of the subjects carries."""
    scale = np.sqrt(1 + 25 * share * (1 - share))

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        carries = rng.random(shape) < share
        gains = 5 * (carries - share) + rng.normal(0, 1, shape)
        return np.asarray(gains / scale)

    return draw


def rare_loss(share: float) -> Draw:
    """Return a generator of gains that are small and alike, but for a share of large losses."""
    scale = np.sqrt(share * (1 - share) + (0.3 * share) ** 2)

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        loses = rng.random(shape) < share
        return np.asarray((share - loses + 0.3 * share * rng.normal(0, 1, shape)) / scale)

    return draw


def reversed_(draw: Draw) -> Draw:
    """Return a generator of the same gains with the other sign."""
    return lambda rng, shape: -draw(rng, shape)


POPULATIONS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(0, 1, shape),
    "heavy_tails": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3),
    "skewness_1.75": lognormal(0.5),
    "skewness_6": lognormal(1.0),
    "one_in_5_carries_all": mixture(0.2),
    "one_in_10_carries_all": mixture(0.1),
}
POPULATIONS |= {
    f"-{name}": reversed_(draw) for name, draw in list(POPULATIONS.items())[2:]
}  # the first two are symmetric
POPULATIONS |= {f"-one_in_{n}_loses_all": rare_loss(1 / n) for n in (10, 20, 50)}


def percent_above_zero(estimate: Estimate, samples: np.ndarray) -> float:
    """Return the percentage of samples, shape (samples, n_subjects), estimated above zero."""
    subjects = [str(n) for n in range(samples.shape[1])]
    return round(100 * float(np.mean([estimate(s, subjects) > 0 for s in samples])), 1)


def main() -> None:
    """Print the rates by population, estimate and number of subjects."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rates: dict[str, Any] = {"samples": count, "error_percent": {}, "power_percent": {}}
    for kind, gain in (("error_percent", 0.0), ("power_percent", GAIN)):
        for population, draw in POPULATIONS.items():
            rng = np.random.default_rng(0)
            by_estimate: dict[str, dict[int, float]] = {name: {} for name in ESTIMATES}
            for n in SUBJECTS:
                samples = draw(rng, (count, n)) + gain
                for name, estimate in ESTIMATES.items():
                    by_estimate[name][n] = percent_above_zero(estimate, samples)
            rates[kind][population] = by_estimate
    print(json.dumps(rates, indent=1))


if __name__ == "__main__":
    main()
