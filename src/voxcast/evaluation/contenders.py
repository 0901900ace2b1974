"""Contenders: models that get the same runs, the same columns and the same treatment of speed.

A contender learns the work of a run: its times on a machine of usual speed. The speed of the
judged place is then subtracted from the logarithm of its prediction. Only HARP as published learns
times as they were measured. Speeds are estimated by the method of voxcast for all contenders.
Tuning, selection and calibration use folds within the training runs alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.errors import TableError
from voxcast.evaluation import harp
from voxcast.features.rows import FULL, KERNEL_S, TIMES, feature_names
from voxcast.models import point_model
from voxcast.models.point_model import queries_of
from voxcast.models.selection.cross_validation import FoldCache, Validation
from voxcast.models.selection.fitting import fit_forecaster
from voxcast.models.selection.learning import learn
from voxcast.models.speed_estimation import log_speeds, speeds_of
from voxcast.models.speeds import RunResidual, residuals_of, timed_or_none, updated
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from voxcast.models.families.family import Params
    from voxcast.models.forecaster import Forecaster
    from voxcast.models.speeds import Speeds

    Work = Callable[[pd.DataFrame], pd.DataFrame]


SIZE = "header.megavoxels"
UPPER = 0.95
INNER_FOLDS, TRIALS, UNCALIBRATED_FACTOR = 4, 6, 1.5
FAMILIES = ("ridge", "extra_trees", "boosted", "gaussian_process", "phases")


class Contender:
    """A model and the speeds of machines, both learned from the training runs of one fold."""

    def __init__(self, work: Work, speeds: Speeds | None, trained_on: pd.DataFrame) -> None:
        self.work = work
        self.speeds = speeds
        if speeds is not None:
            # The more a contender errs by the image alone, the less a local run says of the speed.
            ratios = np.log(trained_on["cpu_s"] / work(trained_on)["cpu_s"])
            self.speeds = _with_subject_sd(speeds, float(ratios.std()))

    def predict(self, runs: pd.DataFrame, local: pd.DataFrame) -> pd.DataFrame:
        """Return ``TARGET_median`` of runs, at the speed that local runs show."""
        work = self.work(runs)
        if self.speeds is not None:
            deviations = _log_speeds(self.speeds, self.work, runs, local)
            for time in TIMES:
                work[time] *= np.exp(-deviations)
        return work.add_suffix("_median")


def _with_subject_sd(speeds: Speeds, sd: float) -> Speeds:
    """Return speeds by which images differ at least so much."""
    gauge = speeds.gauge
    if gauge is not None:
        gauge = replace(gauge, speeds=_with_subject_sd(gauge.speeds, sd))
    return replace(speeds, subject_sd=max(speeds.subject_sd, sd), gauge=gauge)


class VoxcastContender:
    """voxcast with some families: tuned and chosen within the training runs, with bounds.

    Parameters
    ----------
    fixed_params : mapping, optional
        Parameters of families that are not tuned.
    volumes : ndarray, optional
        Small volumes of the training runs, for the network.
    """

    def __init__(
        self,
        train: pd.DataFrame,
        families: Sequence[str],
        seed: int = 0,
        cache: FoldCache | None = None,
        *,
        trials: int = TRIALS,
        fixed_params: Mapping[str, Params] | None = None,
        volumes: np.ndarray | None = None,
    ) -> None:
        runs = train.reset_index(drop=True)
        validation = Validation(runs, volumes, INNER_FOLDS, seed, cache=cache or FoldCache())
        leaderboard = learn(validation, families, trials=trials, fixed_params=fixed_params)
        self.family = leaderboard.best
        self.forecaster: Forecaster = fit_forecaster(
            validation, leaderboard, self.family, UNCALIBRATED_FACTOR
        )

    def at_speed_of(self, local: pd.DataFrame) -> Forecaster:
        """Return the forecaster at the speed that local runs show.

        Those that are out of range tell nothing of the speed, as in production.
        """
        forecaster, speeds = self.forecaster, self.forecaster.speeds
        if speeds is None or not len(local):
            return forecaster
        for host, of_host in local.groupby("host_id", sort=True):
            answers = forecaster.predict(queries_of(_anywhere(of_host)))
            if residuals := residuals_of(of_host.to_dict("records"), answers):
                speeds = updated(speeds, str(host), residuals)
        return forecaster.with_speeds(speeds)

    def predict(
        self,
        runs: pd.DataFrame,
        local: pd.DataFrame,
        volumes: np.ndarray | None = None,
    ) -> pd.DataFrame:
        """Return the answers for runs, at the speed that local runs show.

        Returns
        -------
        DataFrame
            ``TARGET_median``, ``TARGET_upper``, ``out_of_range`` and ``calibrated``.
        """
        answers = self.at_speed_of(local).predict(
            queries_of(runs, volumes, with_readings=KERNEL_S in runs),
            lower_quantile=1 - UPPER, upper_quantile=UPPER,
        )  # fmt: skip
        columns: dict[str, list[float] | list[bool]] = {}
        for target in TARGETS:
            for k, name in ((1, "median"), (2, "upper")):
                columns[f"{target}_{name}"] = [answer.quantiles[target][k] for answer in answers]
        columns["out_of_range"] = [bool(answer.out_of_range) for answer in answers]
        columns["calibrated"] = [answer.calibrated for answer in answers]
        return pd.DataFrame(columns, index=runs.index)


def recipe_contender(
    model: point_model.PointModel, train: pd.DataFrame, volumes: Mapping[str, np.ndarray]
) -> Contender:
    """Return a fitted recipe as a contender, with the speeds that it learned.

    Parameters
    ----------
    volumes : mapping
        Small volumes by volume id, for a recipe that needs them; may be empty.
    """
    speeds = speeds_of(train)
    return Contender(_family_work(model, volumes), speeds, _at_usual_speed(train, speeds))


def _at_usual_speed(train: pd.DataFrame, speeds: Speeds | None) -> pd.DataFrame:
    """Return runs with their times on a machine of usual speed."""
    deviations = np.zeros(len(train)) if speeds is None else log_speeds(train, speeds)
    return train.assign(**{time: train[time] * np.exp(deviations) for time in TIMES})


def contenders(train: pd.DataFrame, scaled_down: pd.DataFrame, seed: int) -> dict[str, Contender]:
    """Fit the contenders that are not tuned, by name.

    Parameters
    ----------
    train : DataFrame
        Full-scale runs of one application.
    scaled_down : DataFrame
        Scaled-down runs of the same subjects and sittings, for HARP.
    """
    speeds = speeds_of(train)
    work = _at_usual_speed(train, speeds)
    fitted: dict[str, Contender] = {}
    for name in ("median", "voxels", "law") if SIZE in train else ("median",):
        model = point_model.fit(train, None, name, {}, "volume", seed, speeds=speeds)
        fitted[name] = Contender(_family_work(model, {}), speeds, work)
    if at_usual_speed := _harp(work, work.head(0), logs=True):
        fitted["HARP + log + speed"] = Contender(at_usual_speed, speeds, work)
    for name, smaller in (("HARP", scaled_down), ("HARP, full scale", scaled_down.head(0))):
        if published := _harp(train, smaller, logs=False):
            fitted[name] = Contender(published, None, train)
    return fitted


def _family_work(model: point_model.PointModel, volumes: Mapping[str, np.ndarray]) -> Work:
    def work(runs: pd.DataFrame) -> pd.DataFrame:
        small = np.stack([volumes[name] for name in runs["volume_id"]]) if volumes else None
        logs = point_model.predict_table(model, _anywhere(runs), small)
        return pd.DataFrame(np.exp(logs), index=runs.index, columns=list(TARGETS))

    return work


def _harp(train: pd.DataFrame, scaled_down: pd.DataFrame, *, logs: bool) -> Work | None:
    """Fit HARP to each target; None where it cannot be fitted.

    Parameters
    ----------
    logs : bool
        Whether it learns logarithms, which are moved to be at least 1.
    """
    both = pd.concat([train, scaled_down])
    columns = [name for name in feature_names(train) if both[name].nunique() > 1]
    fits = {}
    for target in TARGETS:
        values = both[target].to_numpy(dtype=float)
        shift = 1.0 - np.log(values).min() if logs else 0.0
        try:
            fitted = harp.fit(
                both[columns],
                np.log(values) + shift if logs else values,
                (both["scale"] == FULL).to_numpy(),
                groups=both["subject"].tolist(),
                scaled_down=len(scaled_down) > 0,
            )
        except TableError:
            return None
        fits[target] = (fitted, fitted.chosen("WTM" if len(scaled_down) else "MAE"), shift)

    def work(runs: pd.DataFrame) -> pd.DataFrame:
        features = runs.reindex(columns=columns)
        medians = {}
        for target, (fitted, candidate, shift) in fits.items():
            values = fitted.predict(features, candidate)
            medians[target] = np.exp(values - shift) if logs else values
        return pd.DataFrame(medians, index=runs.index)

    return work


def _anywhere(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs without their place, for which work is predicted."""
    return runs.drop(columns=["host_id", "sitting"], errors="ignore")


def _log_speeds(speeds: Speeds, work: Work, runs: pd.DataFrame, local: pd.DataFrame) -> np.ndarray:
    present = _updated_speeds(speeds, work, local) if len(local) else speeds
    readings = map(timed_or_none, runs.reindex(columns=[KERNEL_S])[KERNEL_S])
    places = zip(runs["host_id"].astype(str), runs["sitting"].astype(str), readings, strict=True)
    return np.array([present.estimate(*place).log_speed for place in places])


def _updated_speeds(speeds: Speeds, work: Work, local: pd.DataFrame) -> Speeds:
    """Return the speeds after local runs."""
    ratios = np.log(local["cpu_s"] / work(local)["cpu_s"])
    for host, at in local.groupby("host_id", sort=True).groups.items():
        residuals = [
            RunResidual(
                str(run.sitting), str(run.subject), str(run.started_at), ratios[n],
                timed_or_none(getattr(run, KERNEL_S, None)),
            )
            for n, run in zip(at, local.loc[at].itertuples(), strict=True)
        ]  # fmt: skip
        speeds = updated(speeds, str(host), residuals)
    return speeds
