"""The registered model: point models with calibrated bounds, one for each input level."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.descriptions import outside, outside_together
from voxcast.features.rows import members
from voxcast.models.conformal import Calibrator
from voxcast.models.model_files import RETRAIN, read_object, read_sealed, subfolder, write_sealed
from voxcast.models.out_of_range import UNCERTAIN_POWER, WIDER, continued
from voxcast.models.point_model import WALL, InputLevel, PointModel, log_targets, queries_of
from voxcast.models.speed_estimation import target_by_speed

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.features.any_table import Columns
    from voxcast.models import out_of_range
    from voxcast.models.point_model import Query
    from voxcast.models.speeds import Basis, Speeds

FILE, TREND = "forecaster.json", "trend"
# Of the files; models of other formats are not read. Format 5 had models by application.
FORMAT = 6
MEMORY = "peak_rss_bytes"


@dataclass(frozen=True)
class CalibratedModel:
    """A point model with a calibrator per target.

    Attributes
    ----------
    trend : PointModel or None
        Its trend is continued beyond the range of the training runs, see
        `voxcast.models.out_of_range`; None to answer as at the edge of the range.
    columns : Columns or None
        Of a table; None for images.
    """

    model: PointModel
    calibrators: dict[str, Calibrator]
    trend: PointModel | None = None
    columns: Columns | None = None

    def quantiles(
        self,
        queries: Sequence[Query],
        lower_quantile: float,
        upper_quantile: float,
        names_out_of_range: Sequence[Collection[str]] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return quantiles in the targets' units, and whether the upper one is calibrated.

        Parameters
        ----------
        names_out_of_range : sequence, length n
            The features of each query that are out of range, where they are known already.

        Returns
        -------
        quantiles : ndarray, shape (n, targets, 3)
            Lower, median and upper.
        calibrated : ndarray of bool, shape (n,)
        """
        if names_out_of_range is None:
            names_out_of_range = self.model.range.outside([query.features for query in queries])
        far = np.flatnonzero([bool(names) for names in names_out_of_range])
        in_range = list(queries)
        if len(far):
            beyond = [queries[n] for n in far]
            paths, trends = continued(self.model, self.trend, beyond, self.columns)
            for n, path in zip(far, paths, strict=True):
                in_range[n] = path.edge
        logs = np.stack([self.model.predict(in_range)] * 3, axis=-1)
        calibrated = np.ones(len(queries), dtype=bool)
        calibrated[far] = False
        for k, target in enumerate(self.model.targets):
            calibrator = self.calibrators[target]
            logs[:, k, 0], logs[:, k, 2], is_calibrated = calibrator.bounds(
                logs[:, k, 1].copy(), lower_quantile, upper_quantile
            )
            calibrated &= is_calibrated
            if len(far):
                at_edge = logs[far, k]
                logs[far, k] = self._continued(calibrator, at_edge, paths, trends[:, k])
        calibrated &= self._widen(logs, queries, (lower_quantile, upper_quantile))
        for k, target in enumerate(self.model.targets):
            floor, ceiling = self.calibrators[target].limits(logs[:, k, 1])
            calibrated &= logs[:, k, 2] <= ceiling
            logs[:, k, 0] = np.maximum(logs[:, k, 0], floor)
            logs[:, k, 2] = np.minimum(logs[:, k, 2], ceiling)
        return np.exp(logs), calibrated

    def _continued(
        self,
        calibrator: Calibrator,
        at_edge: np.ndarray,
        paths: Sequence[out_of_range.Path],
        trends: np.ndarray,
    ) -> np.ndarray:
        """Return the quantiles of rows beyond the range from those at its edge, (n, 3)."""
        distances = np.array([path.distance + path.combined for path in paths])
        unknown = np.array([path.unknown for path in paths])
        medians = at_edge[:, 1] + trends
        if self.columns is not None:  # of any table no answer is farther outside than labels span
            low, high = calibrator.measured
            medians = np.clip(medians, 2 * low - high, 2 * high - low)
            distances = np.minimum(distances, high - low)
        widths = np.abs(at_edge[:, [0, 2]] - at_edge[:, [1]])
        widths = np.maximum(WIDER * widths, math.log(WIDER))
        widths += (UNCERTAIN_POWER * distances + unknown)[:, None]
        return np.column_stack([medians - widths[:, 0], medians, medians + widths[:, 1]])

    def _widen(
        self, logs: np.ndarray, queries: Sequence[Query], quantiles: tuple[float, float]
    ) -> np.ndarray:
        """Widen the bounds of times by the uncertainty of the machine's speed, in quadrature.

        ``logs`` are changed in place.

        Returns
        -------
        ndarray of bool, shape (n,)
            Whether the machine is known well enough for a calibrated bound.
        """
        speeds = self.model.speeds
        if speeds is None:
            return np.ones(len(queries), dtype=bool)
        estimates = self.model.speed_estimates(queries)
        sd = np.array([estimate.sd for estimate in estimates])
        times = (target_by_speed(self.model.targets), WALL)
        for k, target in enumerate(self.model.targets):
            if target not in times:
                continue
            median = logs[:, k, 1]
            for side, quantile in zip((0, 2), quantiles, strict=True):
                offset = logs[:, k, side] - median
                unknown = np.array([estimate.deviation(quantile) for estimate in estimates])
                wider = np.sign(side - 1) * np.hypot(offset, unknown)
                logs[:, k, side] = median + np.where(sd > 0, wider, offset)
        return np.array([speeds.knows(q.host, q.sitting, q.kernel_s) for q in queries], bool)

    def speed(
        self, query: Query, lower_quantile: float, upper_quantile: float
    ) -> tuple[bool, int, tuple[float, float, float], Basis]:
        """Return whether the machine of a query is known, its runs, its speed and its source.

        The speed is a multiple of the reference machine's, as quantiles.
        """
        speeds = self.model.speeds
        if speeds is None:
            return True, 0, (1.0, 1.0, 1.0), ""
        estimate = speeds.estimate(query.host, query.sitting, query.kernel_s)
        lower, median, upper = (
            estimate.speed(quantile) for quantile in (lower_quantile, 0.5, upper_quantile)
        )
        is_known = speeds.knows(query.host, query.sitting, query.kernel_s)
        return is_known, speeds.runs(query.host), (lower, median, upper), estimate.basis

    def missing_subjects(self, quantile: float) -> int:
        """Return how many more subjects it takes to calibrate an upper bound; 0 if it is."""
        return max(calibrator.missing(quantile) for calibrator in self.calibrators.values())

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the models into ``folder`` and return everything else in a JSON-able form."""
        self.model.save(folder)
        calibrators = {name: c.to_json() for name, c in self.calibrators.items()}
        if self.trend is None:
            return {"calibrators": calibrators}
        self.trend.save(folder / TREND)
        return {"calibrators": calibrators, TREND: {}}

    @classmethod
    def load(cls, content: dict[str, Any], folder: Path) -> CalibratedModel:
        """Read what `save` wrote and returned; of a table its columns are to be added."""
        calibrators = {name: Calibrator.from_json(c) for name, c in content["calibrators"].items()}
        trend = PointModel.load(folder / TREND) if TREND in content else None
        return cls(PointModel.load(folder), calibrators, trend)


def calibrate(
    model: PointModel,
    table: pd.DataFrame,
    log_predictions: np.ndarray,
    factor: float,
    stopped: Collection[str] = (),
) -> CalibratedModel:
    """Calibrate a model fitted on ``table`` by out-of-fold predictions.

    Parameters
    ----------
    model : PointModel
        Fitted on all of ``table``.
    table : DataFrame
        Training runs. A column ``unit``, if there is one, names what gives one score instead of
        the subject.
    log_predictions : ndarray, shape (n_runs, targets)
        Out-of-fold predictions of the same recipe.
    factor : float
        See `voxcast.models.conformal.Calibrator`.
    stopped : collection of str
        Subjects or units with a run that was stopped before it completed.
    """
    logs = log_targets(table, model.targets)
    units = table["unit" if "unit" in table else "subject"].tolist()
    calibrators = {
        target: Calibrator.fit(logs[:, k], log_predictions[:, k], units, factor, stopped)
        for k, target in enumerate(model.targets)
    }
    return CalibratedModel(model, calibrators)


@dataclass(frozen=True)
class Prediction:
    """The predicted distribution of one run: three quantiles per target.

    Attributes
    ----------
    quantiles : dict of str to tuple of float
        Lower, median and upper of each target in its own unit.
    input_level : {"header", "volume"}
        Whether the voxels are known.
    family : str
        Family of the model that made the prediction.
    calibrated : bool
        Whether the history has enough subjects for the upper quantile, and the run is in range.
    out_of_range : tuple of str
        Features outside the range of the training runs, or combinations of two, see
        `voxcast.features.rows`; the prediction is then an extrapolation.
    missing_subjects : int
        Number of subjects that the upper quantile lacks to be calibrated.
    measured_subjects : int
        Number of subjects that the bounds are based on.
    host_known : bool
        Whether the machine's speed is known well enough for a calibrated bound.
    host_runs : int
        Number of runs on the machine, from which its speed is known.
    speed : tuple of float
        The machine's speed as a multiple of the reference machine's: lower, median and
        upper quantile.
    speed_basis : str
        Its source, see `voxcast.models.speeds.Basis`.
    """

    quantiles: dict[str, tuple[float, float, float]]
    input_level: InputLevel
    family: str
    calibrated: bool
    out_of_range: tuple[str, ...]
    missing_subjects: int
    measured_subjects: int
    host_known: bool = True
    host_runs: int = 0
    speed: tuple[float, float, float] = (1.0, 1.0, 1.0)
    speed_basis: Basis = ""


@dataclass(frozen=True)
class Forecaster:
    """Predicts quantiles at the input level of each query; bounds from headers are wider."""

    models_by_input_level: dict[InputLevel, CalibratedModel]

    @property
    def family(self) -> str:
        """The family that predicts when the voxels are known."""
        return self.model_at("volume").model.family

    def model_at(self, input_level: InputLevel) -> CalibratedModel:
        """Return the model of an input level, or the only model."""
        models = self.models_by_input_level
        return models[input_level] if input_level in models else next(iter(models.values()))

    def predict(
        self,
        queries: Sequence[Query],
        *,
        lower_quantile: float = 0.05,
        upper_quantile: float = 0.95,
    ) -> list[Prediction]:
        """Predict each query at the best input level that it allows.

        Parameters
        ----------
        queries : sequence of Query
            Runs to predict.
        lower_quantile, upper_quantile : float
            Probabilities of the outer quantiles, 0 < lower < 0.5 < upper < 1.
        """
        if not 0 < lower_quantile < 0.5 < upper_quantile < 1:
            raise ModelError(
                f"quantiles must satisfy 0 < {lower_quantile} < 0.5 < {upper_quantile} < 1"
            )
        predictions: dict[int, Prediction] = {}
        levels = [self.input_level(query) for query in queries]
        for input_level, model in self.models_by_input_level.items():
            positions = [n for n, level in enumerate(levels) if level == input_level]
            if not positions:
                continue
            of_level = [queries[n] for n in positions]
            out_of_range = model.model.range.outside([query.features for query in of_level])
            quantiles, calibrated = model.quantiles(
                of_level, lower_quantile, upper_quantile, out_of_range
            )
            names = model.model.targets
            for n, query, values, is_calibrated, outside_names in zip(
                positions, of_level, quantiles.tolist(), calibrated.tolist(), out_of_range,
                strict=True,
            ):  # fmt: skip
                predictions[n] = Prediction(
                    dict(zip(names, map(tuple, values), strict=True)),
                    input_level,
                    model.model.family,
                    is_calibrated,
                    outside_names,
                    model.missing_subjects(upper_quantile),
                    min(calibrator.subjects for calibrator in model.calibrators.values()),
                    *model.speed(query, lower_quantile, upper_quantile),
                )
        return [predictions[n] for n in range(len(queries))]

    @property
    def speeds(self) -> Speeds | None:
        """Speeds of machines, None where machines are not known."""
        return self.model_at("volume").model.speeds

    def with_speeds(self, speeds: Speeds) -> Forecaster:
        """Return the forecaster with other speeds of machines."""
        return Forecaster(
            {
                level: replace(model, model=replace(model.model, speeds=speeds))
                for level, model in self.models_by_input_level.items()
            }
        )

    def medians(self, query: Query) -> dict[str, float]:
        """Return the training medians of the features, at the query's input level."""
        return self.model_at(self.input_level(query)).model.medians

    def outside(self, query: Query, names: Sequence[str]) -> list[str]:
        """Describe how a query lies outside everything measured, one phrase per feature.

        Parameters
        ----------
        names : sequence of str
            ``out_of_range`` of its prediction.
        """
        ranges = self.model_at(self.input_level(query)).model.range.numbers
        phrases = []
        for name in names:
            pair = members(name)
            if len(pair) > 1:
                phrases.append(outside_together({part: query.features[part] for part in pair}))
            else:
                limits = ranges.get(name, (None, None))
                phrases.append(outside(name, query.features.get(name), *limits))
        return phrases

    def input_level(self, query: Query) -> InputLevel:
        """Return the best input level that a query allows."""
        full = self.models_by_input_level.get("volume")
        if (
            full is not None
            and (not full.model.needs_content or query.knows_content)
            and (query.volume is not None or not full.model.needs_volume)
        ):
            return "volume"
        return "header" if "header" in self.models_by_input_level else "volume"

    def save(self, folder: Path) -> None:
        """Write all models into ``folder``."""
        models = {
            input_level: model.save(folder / input_level)
            for input_level, model in self.models_by_input_level.items()
        }
        write_sealed(folder / FILE, {"format": FORMAT, "models": models})

    @classmethod
    def load(cls, folder: Path) -> Forecaster:
        """Read what `save` wrote.

        Raises
        ------
        ModelError
            If ``folder`` holds no model, it is in the format of another release, or one of
            its files is missing or damaged.
        """
        if not (folder / FILE).is_file():
            raise ModelError("contains no model", folder, "train one with `voxcast learn`")
        if read_object(folder / FILE).get("format") != FORMAT:
            raise ModelError("the model was written by another release", folder, RETRAIN)
        models: dict[InputLevel, dict[str, Any]] = read_sealed(folder / FILE)["models"]
        return cls(
            {
                input_level: CalibratedModel.load(content, subfolder(folder, input_level))
                for input_level, content in models.items()
            }
        )


def memory_at_usual_level(
    table: pd.DataFrame, volumes: np.ndarray | None, forecaster: Forecaster
) -> tuple[pd.DataFrame, float]:
    """Return runs whose memory was measured by another method, brought to the usual level.

    Slurm's MaxRSS counts other pages than a control group, and is sampled. One factor for all runs
    of an application is their ratio: the median of measured over predicted memory. Returned are
    the runs with their memory divided by the factor, and the factor.

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
