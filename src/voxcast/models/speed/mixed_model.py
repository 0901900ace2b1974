"""A linear model with random effects, its spreads estimated from the data (empirical Bayes).

``y = b0 + X b + group effects + subject effect + noise``, every effect normal around zero. The
spreads are estimated by expectation maximisation (Dempster, Laird and Rubin, JRSS B 1977). A prior
counts as so many further members of a group, so that a group of one member keeps the prior's
spread. Residuals are winsorised, so that a disturbed run does not count more than others.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

ITERATIONS = 40
WINSORISED = 2.5  # standard deviations of a residual
SMALLEST_SD = 0.01  # of the noise: few runs can be fitted without any residual
FIRST_NOISE = 0.1


@dataclass(frozen=True)
class Grouping:
    """Members of one kind, such as machines.

    Attributes
    ----------
    codes : ndarray of int, shape (n,)
        Member of each observation, from 0.
    prior_sd : float
        Spread between members, before the data.
    prior_members : float
        Number of members that the prior counts as.
    blocks : ndarray of int, shape (members,), optional
        Block of each member, from 0. Members of one are much alike, and count as one member where
        their spread is estimated.
    """

    codes: np.ndarray
    prior_sd: float
    prior_members: float
    blocks: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Number of members."""
        return int(self.codes.max()) + 1


@dataclass(frozen=True)
class GroupEffects:
    """What `fit` estimated.

    Attributes
    ----------
    means : ndarray, shape (members of all groupings,)
        Effects, in the order of the groupings.
    covariance : ndarray, shape (members, members)
        Their posterior covariance.
    spreads : tuple of float
        Standard deviation between the members of each grouping.
    noise_sd, subject_sd : float
        Standard deviation of single observations, and between subjects.
    """

    means: np.ndarray
    covariance: np.ndarray
    spreads: tuple[float, ...]
    noise_sd: float
    subject_sd: float


def fit(
    y: np.ndarray, x: np.ndarray, groupings: Sequence[Grouping], subjects: np.ndarray
) -> GroupEffects:
    """Estimate the effects of groups beside the effects of columns and subjects.

    Parameters
    ----------
    y : ndarray, shape (n,)
        Observations.
    x : ndarray, shape (n, p)
        Columns; they are standardised here.
    groupings : sequence of Grouping
        Groups whose effects are wanted.
    subjects : ndarray of int, shape (n,)
        Subject of each observation, from 0.
    """
    n, first = len(y), 1 + x.shape[1]
    indicators = [np.eye(grouping.count)[grouping.codes] for grouping in groupings]
    design = np.hstack([np.ones((n, 1)), _standardised(x), *indicators])
    # Positions of the columns, then of each grouping.
    edges = np.cumsum([1, x.shape[1], *(grouping.count for grouping in groupings)])
    parts = [slice(low, high) for low, high in itertools.pairwise(edges)]
    spreads = [0.3, *(grouping.prior_sd for grouping in groupings)]
    priors = [(0.0, 0.0, None), *((g.prior_sd, g.prior_members, g.blocks) for g in groupings)]
    counts = np.bincount(subjects)
    noise_sd, subject_sd, observed = FIRST_NOISE, FIRST_NOISE, y
    means, covariance = np.zeros(design.shape[1]), np.eye(design.shape[1])
    for _ in range(ITERATIONS):
        precision = np.zeros(design.shape[1])
        for part, spread in zip(parts, spreads, strict=True):
            precision[part] = 1 / max(spread, 1e-4) ** 2
        # Subjects are integrated out: part of their means is subtracted.
        share = 1 - noise_sd / np.sqrt(noise_sd**2 + counts * subject_sd**2)
        reduced = design - (share / counts)[subjects, None] * _sums(design, subjects)[subjects]
        reduced_y = observed - (share * _sums(observed, subjects) / counts)[subjects]
        covariance = np.linalg.inv(reduced.T @ reduced / noise_sd**2 + np.diag(precision))
        means = covariance @ (reduced.T @ reduced_y) / noise_sd**2
        fitted = design @ means
        weights = counts * subject_sd**2 / (noise_sd**2 + counts * subject_sd**2)
        effects = weights * _sums(observed - fitted, subjects) / counts
        residuals = observed - fitted - effects[subjects]
        freedom = len(means) - precision @ np.diag(covariance) + weights.sum()
        noise_sd = float(np.sqrt((residuals @ residuals + noise_sd**2 * min(freedom, n)) / n))
        noise_sd = max(noise_sd, SMALLEST_SD)
        subject_sd = float(np.sqrt(np.mean(effects**2 + subject_sd**2 * (1 - weights))))
        spreads = [
            _spread(means[part], np.diag(covariance)[part], *prior)
            for part, prior in zip(parts, priors, strict=True)
        ]
        expected = fitted + effects[subjects]
        limit = WINSORISED * noise_sd
        observed = expected + np.clip(y - expected, -limit, limit)
    return GroupEffects(
        means[first:], covariance[first:, first:], tuple(spreads[1:]), noise_sd, subject_sd
    )


def _standardised(x: np.ndarray) -> np.ndarray:
    sd = x.std(axis=0)
    standardised: np.ndarray = (x - x.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    return standardised


def _sums(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the sums of rows with the same code."""
    sums = np.zeros((int(codes.max()) + 1, *values.shape[1:]))
    np.add.at(sums, codes, values)
    return sums


def _spread(
    means: np.ndarray,
    variances: np.ndarray,
    prior_sd: float,
    prior_members: float,
    blocks: np.ndarray | None,
) -> float:
    squares = means**2 + variances
    if blocks is not None:
        squares = np.bincount(blocks, squares) / np.bincount(blocks)
    members = len(squares) + prior_members
    if not members:
        return prior_sd
    return float(np.sqrt((squares.sum() + prior_members * prior_sd**2) / members))
