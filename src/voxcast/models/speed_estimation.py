"""The speeds of machines, estimated from the training runs of an application.

The work is described by a linear law of the features, fitted together with the effects of
machines, of sittings on them, and of subjects. It is the same for all families, so all of them
learn from the same work. Runs of a machine on other subjects than the reference's show its
speed by this law; runs on the same subjects tell it better.

``y = b0 + X b + group effects + subject effect + noise``, every effect normal around zero. The
spreads are estimated by expectation maximisation (Dempster, Laird and Rubin, JRSS B 1977). A prior
counts as so many further members of a group, so that a group of one member keeps the prior's
spread. Residuals are winsorised, so that a disturbed run does not count more than others.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.rows import KERNEL_S, rows_of
from voxcast.models.families.encoder import Encoder
from voxcast.models.families.regressors import Process
from voxcast.models.speeds import (
    PRIOR_DAYS,
    Gauge,
    MachineSpeed,
    SittingSpeed,
    SpeedEstimate,
    Speeds,
    day_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


ITERATIONS = 40
WINSORISED = 2.5  # standard deviations of a residual
SMALLEST_SD = 0.01  # of the noise: few runs can be fitted without any residual
FIRST_NOISE = 0.1
# Where a linear law leaves more than this of the logarithms, its errors could pass for sittings of
# another speed; a process of more rows takes too long.
POOR_LAW, MOST_ROWS = 0.25, 1500


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
    return np.asarray((x - x.mean(axis=0)) / np.where(sd > 0, sd, 1.0))


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


CPU = "cpu_s"
HOST, SITTING = "host_id", "sitting"
# Before anything is measured: machines of today differ by this much, and sittings on one of them.
# The prior counts as two machines and two days: one machine on record shows no spread. On the
# recorded machine, which is shared, days differ by 7 to 15 %.
MACHINE_SPREAD, SITTING_SPREAD = 0.25, 0.1
PRIOR_MEMBERS = 2.0
# The same in times of the kernels: two machines on record differ by 15 %. Sittings differ by less
# than in seconds, but how much less takes days to tell.
BY_KERNELS = 0.15, SITTING_SPREAD
# Of a single sitting, whose runs tell nothing about noise between machines.
NOISE_SD, SUBJECT_SD = 0.07, 0.05


def target_by_speed(targets: Sequence[str]) -> str:
    """Return the target that the speed of a machine divides: CPU time, or of a table its own."""
    return CPU if CPU in targets else targets[0]


def speeds_of(runs: pd.DataFrame, target: str = CPU) -> Speeds | None:
    """Return the speeds of machines from the runs of one application, see `estimate`.

    None where no run states its machine: times are then for the machines as a whole.
    """
    if target not in runs or HOST not in runs or not (runs[HOST] != "").any():
        return None
    return estimate(runs, target)


def estimate(runs: pd.DataFrame, target: str = CPU) -> Speeds:
    """Return the speeds of machines from the runs of one application, also by the kernels.

    Parameters
    ----------
    runs : DataFrame
        Training runs with their features, ``target``, ``subject``, ``host_id``, ``sitting``, and
        ``started_at`` and ``kernel_s`` if these are known.
    target : str
        Column of times.
    """
    speeds = _estimate(runs, target, (MACHINE_SPREAD, SITTING_SPREAD))
    if KERNEL_S not in runs or (timed := runs[runs[KERNEL_S].notna()]).empty:
        return speeds
    kernel_s = timed[KERNEL_S].to_numpy(dtype=float)
    in_kernels = timed.assign(**{target: timed[target] / kernel_s})
    by_kernels = _estimate(in_kernels, target, BY_KERNELS)
    # On the average of these runs both say the same.
    differences = log_speeds(timed, speeds) - log_speeds(timed, by_kernels)
    equal_at = float(np.exp(np.mean(np.log(kernel_s) + differences)))
    return replace(speeds, gauge=Gauge(equal_at, by_kernels))


def _estimate(runs: pd.DataFrame, target: str, spreads: tuple[float, float]) -> Speeds:
    """Return speeds; ``spreads`` are of machines and sittings before the data."""
    hosts = runs[HOST].astype(str).to_numpy()
    sittings = sittings_of(runs)
    host_names, host_codes = np.unique(hosts, return_inverse=True)
    keys = list(zip(hosts.tolist(), sittings.tolist(), strict=True))
    pairs = sorted(set(keys))
    pair_codes = np.array([pairs.index(key) for key in keys])
    starts = [""] * len(pairs)
    if "started_at" in runs:
        by_pair = runs["started_at"].astype(str).groupby(pair_codes).max()
        starts = by_pair.tolist()
    days = [(host, day_of(start)) for (host, _), start in zip(pairs, starts, strict=True)]
    blocks = np.array([sorted(set(days)).index(day) for day in days])
    machines = Grouping(host_codes, spreads[0], PRIOR_MEMBERS)
    stretches = Grouping(pair_codes, spreads[1], PRIOR_DAYS, blocks)
    if stretches.count == 1:  # nothing to tell apart
        effects = GroupEffects(
            np.zeros(2), np.diag(np.square(spreads)), spreads, NOISE_SD, SUBJECT_SD,
        )  # fmt: skip
    else:
        rows = rows_of(runs)
        columns = Encoder.fit(rows, content=True).transform(rows)
        logs = np.log(runs[target].to_numpy(dtype=float))
        subjects = np.unique(runs["subject"].astype(str), return_inverse=True)[1]
        effects = fit(logs, columns, (machines, stretches), subjects)
        if np.hypot(effects.noise_sd, effects.subject_sd) > POOR_LAW and len(logs) <= MOST_ROWS:
            work, errors = _smooth_work(columns, logs)
            by_work = fit(logs - work, columns, (machines, stretches), subjects)
            # A process that follows each run leaves less than the noise.
            spread = max(float(np.std(errors)), by_work.noise_sd)
            subject_sd = (spread**2 - by_work.noise_sd**2) ** 0.5
            effects = replace(by_work, subject_sd=max(by_work.subject_sd, subject_sd))
    # Work is learned at the average speed of the runs; the uncertainty is in the distance from it.
    average = np.concatenate(
        [np.bincount(grouping.codes) / len(runs) for grouping in (machines, stretches)]
    )
    reference = int(np.bincount(host_codes).argmax())
    count = len(host_names)

    def contrast(host: int | None, pair: int | None = None) -> tuple[float, float]:
        """Return the logarithmic speed relative to the reference, and its sd to the average."""
        chosen = np.zeros(len(average))
        for position in (host, None if pair is None else count + pair):
            if position is not None:
                chosen[position] = 1.0
        distance = chosen - average
        variance = float(distance @ effects.covariance @ distance)
        log_cpu = float(chosen @ effects.means - effects.means[reference])
        return 0.0 - log_cpu, max(variance, 0.0) ** 0.5

    by_host: dict[str, MachineSpeed] = {}
    for n, name in enumerate(host_names):
        by_sitting = {
            sitting: SittingSpeed(*contrast(n, k), int((pair_codes == k).sum()), starts[k])
            for k, (host, sitting) in enumerate(pairs)
            if host == name
        }
        on_host = runs[host_codes == n]
        kinds = (_usual(on_host, "host_class"), _usual(on_host, "node_type"))
        by_host[str(name)] = MachineSpeed(*contrast(n), len(on_host), by_sitting, *kinds)
    log_speed, sd = contrast(None)
    unknown = SpeedEstimate(log_speed, float(np.hypot(sd, effects.spreads[0])))
    return Speeds(
        str(host_names[reference]), by_host, unknown, effects.spreads[1], effects.noise_sd,
        effects.subject_sd,
    )  # fmt: skip


def _smooth_work(columns: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the work by a Gaussian process of the columns, and its errors without each run.

    It explains by the columns all that it can, such as large runs that were made in sittings of
    their own, and leaves to sittings what runs alike differ by.
    """
    from scipy.linalg import cho_solve

    x = _standardised(columns)
    process = Process(0, 1.0, FIRST_NOISE, linear=True, each=True).fit(x, logs)
    # Rasmussen and Williams, Gaussian Processes for Machine Learning, equation 5.12.
    inverse = cho_solve((process.process_.L_, True), np.eye(len(x)))
    errors = process.process_.alpha_ / np.diag(inverse) * process.scale_
    return process.predict(x), errors


def sittings_of(runs: pd.DataFrame) -> np.ndarray:
    """Return the sitting of each run, empty where it is not known."""
    if SITTING not in runs:
        return np.full(len(runs), "")
    return runs[SITTING].astype(str).to_numpy()


def log_speeds(runs: pd.DataFrame, speeds: Speeds) -> np.ndarray:
    """Return the logarithmic speed of the machine of each run, shape (n,)."""
    keys = zip(runs[HOST].astype(str), sittings_of(runs), strict=True)
    return np.array([speeds.estimate(host, sitting).log_speed for host, sitting in keys])


def _usual(runs: pd.DataFrame, column: str) -> str:
    """Return the most frequent text of a column, empty if the column is missing."""
    return str(runs[column].mode().iloc[0]) if column in runs else ""
