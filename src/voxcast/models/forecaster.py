"""The registered model: a calibrated model for each input level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.features.descriptions import outside, outside_together
from voxcast.features.rows import members
from voxcast.models.calibrated_model import CalibratedModel
from voxcast.models.model_files import (
    RETRAIN,
    read_object,
    read_sealed,
    subfolder,
    write_sealed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.models.point_model import InputLevel
    from voxcast.models.query import Query
    from voxcast.models.speed.speeds import Speeds

FILE = "forecaster.json"
# Of the files; models of other formats are not read. Format 5 had models by application.
FORMAT = 6


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
                    model.measured_subjects,
                    *model.speed(query, lower_quantile, upper_quantile),
                )
        return [predictions[n] for n in range(len(queries))]

    @property
    def speeds(self) -> Speeds | None:
        """Speeds of machines, None where machines are not known."""
        return self.model_at("volume").model.speeds

    def with_speeds(self, speeds: Speeds) -> Forecaster:
        """Return the forecaster with other speeds of machines."""
        models = self.models_by_input_level.items()
        return Forecaster({level: model.with_speeds(speeds) for level, model in models})

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
            and (query.knows_content or not full.model.needs_content)
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
