"""A query to a model: the features of a run and its allocation.

One value per target: fitted families, their weighted mean, and what derives from it.

Where CPU time is a target, wall time is not regressed but derived from it. The regressors learn
the work, that is the CPU time on the reference machine; the speed of the machine is subtracted
from the prediction, see `voxcast.models.speed`. Logarithms are averaged, so that a blend of
families is a geometric mean.

CPU time depends on the image; the ratio of wall time to CPU time depends on the threads and the
machine. The ratio is therefore estimated separately, as a median over runs.

A run that was stopped by its limit is known to take more than it had taken by then. If it were
left out, models would learn only from the runs that the limit allowed. So its label is the mean of
a normal distribution around the prediction, given that it is above the bound, and the model is
fitted again (Schmee and Hahn, Technometrics 1979; Buckley and James, Biometrika 1979).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.phase_labels import labels_of
from voxcast.features.rows import CONTENT, KERNEL_S, SPEED_DEVIATION, TIMES, rows_of
from voxcast.models.families.encoder import Encoder
from voxcast.models.families.family import Params, Regressor
from voxcast.models.families.family import family as family_named
from voxcast.models.model_files import read_sealed, subfolder, write_sealed
from voxcast.models.out_of_range import TrainingRange
from voxcast.models.speed_estimation import log_speeds, speeds_of, target_by_speed
from voxcast.models.speeds import SpeedEstimate, Speeds, timed_or_none
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.features.rows import Row


@dataclass(frozen=True, eq=False, slots=True)
class Query:
    """A run to predict.

    Attributes
    ----------
    features : Row
        See `voxcast.features.rows.features`; with ``content.`` features when the voxels are known.
    cpus : int
        CPUs of the run, for the slowdown law.
    host_class : str or None
        Machine of the run; None if it is unknown.
    volume : ndarray or None
        Small volume of the image, for the network.
    host, sitting : str or None
        Id of the machine, and a sitting on it, see `voxcast.models.speeds.Speeds.estimate`.
    kernel_s : float or None
        CPU time of the metronome's kernels on the machine now, see the same.
    """

    features: Row
    cpus: int = 1
    host_class: str | None = None
    volume: np.ndarray | None = None
    host: str | None = None
    sitting: str | None = None
    kernel_s: float | None = None

    @property
    def app(self) -> str:
        """Name of the application, empty for a table without applications."""
        return str(self.features.get("app", ""))

    @property
    def knows_content(self) -> bool:
        """Whether the voxels' characteristics are among the features."""
        return any(name.startswith(CONTENT) for name in self.features)

    def header_only(self) -> Query:
        """Return the same query without anything that was read from the voxels."""
        features = {k: v for k, v in self.features.items() if not k.startswith(CONTENT)}
        return replace(self, features=features, volume=None)


def queries_of(
    table: pd.DataFrame, volumes: np.ndarray | None = None, *, with_readings: bool = False
) -> list[Query]:
    """Return one query for each row of a table.

    Parameters
    ----------
    table : DataFrame
        Features, and ``cpus``, ``host_class``, ``host_id`` and ``sitting`` if the table has them.
    volumes : ndarray or None, shape (n_runs,)
        Small volume of each row.
    with_readings : bool
        Whether the kernels count that were timed before each run.
    """
    count = len(table)
    cpus = table["cpus"].tolist() if "cpus" in table else [1] * count
    classes, hosts, sittings = (
        table[name].tolist() if name in table else [None] * count
        for name in ("host_class", "host_id", "sitting")
    )
    cubes = [None] * count if volumes is None else volumes
    readings = map(timed_or_none, table[KERNEL_S] if with_readings else [None] * count)
    columns = zip(rows_of(table), cpus, classes, cubes, hosts, sittings, readings, strict=True)
    return [Query(*values) for values in columns]


MINIMUM_RUNS = 3  # with fewer, the next coarser group is used
ROUNDS = 3  # of fits with labels of stopped runs from the fit before
MAD_TO_SD = 1.4826  # of a normal distribution
SMALLEST_SD = 0.1  # of a logarithm: errors on training rows are too small


@dataclass(frozen=True)
class SlowdownLaw:
    """Median ratio of runtime to CPU time, by increasingly coarse groups of runs.

    Attributes
    ----------
    ratios : mapping of str to float
        Keys are ``cpus|host_class``, ``cpus`` and the empty string for all.
    """

    ratios: Mapping[str, float]

    @classmethod
    def fit(
        cls,
        cpus: Sequence[int],
        host_classes: Sequence[str],
        runtime_s: Sequence[float],
        cpu_s: Sequence[float],
    ) -> SlowdownLaw:
        """Estimate the ratios from completed runs; all columns have one length."""
        groups: dict[str, list[float]] = {}
        for n, host, wall, cpu in zip(cpus, host_classes, runtime_s, cpu_s, strict=True):
            for key in _keys(n, host):
                groups.setdefault(key, []).append(float(wall) / float(cpu))
        groups = {k: r for k, r in sorted(groups.items()) if k == "" or len(r) >= MINIMUM_RUNS}
        return cls({key: float(np.median(ratios)) for key, ratios in groups.items()})

    def ratio(self, cpus: int, host_class: str | None = None) -> float:
        """Return runtime over CPU time.

        An unknown host uses the coarser group. A number of CPUs that was not measured lies on the
        line through its neighbours, both in logarithms, of this host if two numbers were measured
        on it; beyond the largest, the line through the last two goes on, but more CPUs never take
        longer, and never less CPU time.
        """
        for key in _keys(cpus, host_class)[:-1]:
            if key in self.ratios:
                return self.ratios[key]
        for host in (f"|{host_class}", ""):
            pattern = re.compile(rf"(\d+){re.escape(host)}")
            matches = ((pattern.fullmatch(key), ratio) for key, ratio in self.ratios.items())
            measured = sorted((int(match[1]), ratio) for match, ratio in matches if match)
            if len(measured) > 1:
                return _between(measured, cpus)
        return self.ratios[""]


def _between(measured: list[tuple[int, float]], cpus: int) -> float:
    logs = np.log(np.array(measured, dtype=float))
    at = math.log(cpus)
    if logs[0, 0] <= at <= logs[-1, 0]:
        return math.exp(np.interp(at, logs[:, 0], logs[:, 1]))
    edge, inner = (0, 1) if at < logs[0, 0] else (-1, -2)
    power = (logs[edge, 1] - logs[inner, 1]) / (logs[edge, 0] - logs[inner, 0])
    return math.exp(logs[edge, 1] + min(max(power, -1.0), 0.0) * (at - logs[edge, 0]))


def _keys(cpus: int, host_class: str | None) -> tuple[str, ...]:
    exact = () if host_class is None else (f"{int(cpus)}|{host_class}",)
    return (*exact, f"{int(cpus)}", "")


# The known part of a volume: its header alone, or its voxels too.
InputLevel = Literal["header", "volume"]
INPUT_LEVELS: tuple[InputLevel, ...] = ("header", "volume")
CPU, WALL = "cpu_s", "runtime_s"
FILE = "point_model.json"
Weights = dict[str, tuple[float, ...]]  # by family: one weight per target


@dataclass(frozen=True)
class Member:
    """A fitted family, with its weight in each target."""

    family: str
    params: Params
    encoder: Encoder
    regressor: Regressor
    weights: tuple[float, ...]


@dataclass(frozen=True)
class PointModel:
    """A fitted model of one application, or of a table; see `fit` and `blend`.

    Attributes
    ----------
    family : str
        Name of the family, or of the ensemble.
    members : tuple of Member
        One, or the members of an ensemble.
    input_level : {"header", "volume"}
        Whether the voxels' characteristics may be used.
    range : TrainingRange
        The ranges of the training rows.
    law : SlowdownLaw or None
        Wall time from CPU time.
    targets : tuple of str
        Names of the targets.
    speeds : Speeds or None
        Speeds of machines; None where machines are not known.
    """

    family: str
    members: tuple[Member, ...]
    input_level: InputLevel
    range: TrainingRange
    law: SlowdownLaw | None = None
    targets: tuple[str, ...] = TARGETS
    speeds: Speeds | None = None

    @property
    def params(self) -> Params:
        """Parameters of the family or of the blend, see `voxcast.models.selection.fitting`."""
        if len(self.members) == 1 and self.family == self.members[0].family:
            return self.members[0].params
        params = {member.family: member.params for member in self.members}
        return blend_params(params, {member.family: member.weights for member in self.members})

    @property
    def needs_volume(self) -> bool:
        """Whether every query must have its small volume."""
        return any(family_named(member.family).needs_volume for member in self.members)

    @cached_property
    def needs_content(self) -> bool:
        """Whether it learned from characteristics of the voxels, or checks them."""
        return any(name.startswith(CONTENT) for name in (*self.medians, *self.range.numbers))

    @cached_property
    def medians(self) -> dict[str, float]:
        """Training medians of the features."""
        encoders = [member.encoder for member in self.members]
        return {k: v for e in encoders for k, v in zip(e.numbers, e.medians, strict=True)}

    def predict(self, queries: Sequence[Query]) -> np.ndarray:
        """Return natural logarithms, shape (n, targets)."""
        columns = [self.targets.index(target) for target in regressed(self.targets)]
        rows = [query.features for query in queries]
        logs = np.zeros((len(queries), len(self.targets)))
        for member in self.members:
            x = member.encoder.transform(rows)
            volumes = None
            if family_named(member.family).needs_volume:
                cubes = [query.volume for query in queries if query.volume is not None]
                if len(cubes) < len(queries):
                    raise ModelError("the network needs one volume per row")
                volumes = np.stack(cubes)
            weights = np.array(member.weights)[columns]
            logs[:, columns] += member.regressor.predict(x, volumes) * weights
        if self.speeds is not None:
            log_speed = [estimate.log_speed for estimate in self.speed_estimates(queries)]
            logs[:, self.targets.index(target_by_speed(self.targets))] -= log_speed
        if self.law is not None:
            ratios = [self.law.ratio(query.cpus, query.host_class) for query in queries]
            logs[:, self.targets.index(WALL)] = logs[:, self.targets.index(CPU)] + np.log(ratios)
        return logs

    def speed_estimates(self, queries: Sequence[Query]) -> list[SpeedEstimate]:
        """Return the speed of the machine of each query; 0, and known, without machines."""
        if self.speeds is None:
            return [SpeedEstimate(0.0, 0.0)] * len(queries)
        return [self.speeds.estimate(q.host, q.sitting, q.kernel_s) for q in queries]

    def save(self, folder: Path) -> None:
        """Write the model into ``folder``, with a subfolder for each member."""
        members = []
        for member in self.members:
            (folder / member.family).mkdir(parents=True, exist_ok=True)
            member.encoder.save(folder / member.family)
            member.regressor.save(folder / member.family)
            members.append({k: getattr(member, k) for k in ("family", "params", "weights")})
        content = {
            "family": self.family, "members": members, "input_level": self.input_level,
            "range": self.range.to_json(), "targets": self.targets,
            "law": None if self.law is None else dict(self.law.ratios),
            "speeds": None if self.speeds is None else self.speeds.to_json(),
        }  # fmt: skip
        write_sealed(folder / FILE, content)

    @classmethod
    def load(cls, folder: Path) -> PointModel:
        """Read what `save` wrote.

        Raises
        ------
        ModelError
            If a file is missing, damaged or of something else.
        """
        content = read_sealed(folder / FILE)
        try:
            law, speeds = content["law"], content["speeds"]
            members = []
            for member in content["members"]:
                name, of_member = member["family"], subfolder(folder, member["family"])
                regressor = family_named(name).load(of_member)
                weights = tuple(member["weights"])
                encoder = Encoder.load(of_member)
                members.append(Member(name, member["params"], encoder, regressor, weights))
            return cls(
                content["family"],
                tuple(members),
                content["input_level"],
                TrainingRange.from_json(content["range"]),
                None if law is None else SlowdownLaw(law),
                tuple(content["targets"]),
                None if speeds is None else Speeds.from_json(speeds),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelError(f"not a model: {error!r}", folder / FILE) from None


def fit(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    name: str,
    params: Params,
    input_level: InputLevel,
    seed: int,
    targets: tuple[str, ...] = TARGETS,
    speeds: Speeds | None = None,
    stopped: pd.DataFrame | None = None,
) -> PointModel:
    """Fit a family on a training table.

    Parameters
    ----------
    table : DataFrame
        Completed runs of one application as returned by
        `voxcast.features.training_table.build_table`, or any rows with columns of features and
        targets.
    volumes : ndarray or None, shape (n_runs,)
        Small volume of each run, for a family that needs it.
    name : str
        Family.
    params : dict
        Its parameters.
    input_level : {"header", "volume"}
        Whether the voxels' characteristics may be used.
    seed : int
        Seed of the fit.
    targets : tuple of str
        Columns to predict, all above zero.
    speeds : Speeds, optional
        Estimated from these runs alone; by default they are estimated here.
    stopped : DataFrame, optional
        Runs that were stopped, with lower bounds of the targets. Families of volumes do not use
        them.
    """
    import pandas as pd

    regressor_family, outputs = family_named(name), regressed(targets)
    timed = target_by_speed(targets)
    if speeds is None:
        speeds = speeds_of(table, timed)
    content = input_level == "volume"

    def work_logs(runs: pd.DataFrame) -> np.ndarray:
        logs: np.ndarray = np.log(runs[list(outputs)].to_numpy(dtype=float))
        if speeds is not None:
            logs[:, outputs.index(timed)] += log_speeds(runs, speeds)
        return logs

    def fitted(runs: pd.DataFrame, logs: np.ndarray) -> tuple[Member, np.ndarray]:
        encoder, x = Encoder.fit_transform(
            runs, logs, regressor_family.only(params), content=content,
            on_logs=regressor_family.scale(params) == "log",
        )  # fmt: skip
        labels = labels_of(runs) if regressor_family.needs_phases and CPU in targets else None
        position = outputs.index(timed)
        regressor = regressor_family.build(params, seed, encoder.columns, labels, position)
        small = volumes if regressor_family.needs_volume else None
        regressor.fit(x, logs, small)
        return Member(name, params, encoder, regressor, (1.0,) * len(targets)), x

    logs = work_logs(table)
    member, x = fitted(table, logs)
    bounds = None if regressor_family.needs_volume else _bounds_of(stopped, outputs)
    if bounds is not None:
        bounds = bounds.reindex(columns=table.columns)
        runs, bound_logs, count = pd.concat([table, bounds]), work_logs(bounds), len(table)
        x = np.vstack([x, member.encoder.transform(rows_of(bounds))])
        for _ in range(ROUNDS):
            predicted = member.regressor.predict(x, None)
            errors = logs - predicted[:count]
            labels = expected_labels(bound_logs, predicted[count:], errors)
            member, x = fitted(runs, np.vstack([logs, labels]))
    law = None
    if CPU in targets and WALL in targets:
        law = SlowdownLaw.fit(*(table[c].tolist() for c in ("cpus", "host_class", WALL, CPU)))
    subjects = table["subject"].astype(str).tolist() if "subject" in table else []
    training_range = TrainingRange.fit(rows_of(table), content=content, subjects=subjects)
    return PointModel(name, (member,), input_level, training_range, law, targets, speeds)


def _bounds_of(stopped: pd.DataFrame | None, targets: Sequence[str]) -> pd.DataFrame | None:
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
    return np.asarray(predictions + sd * np.exp(norm.logpdf(z) - norm.logsf(z)))


def blend(name: str, models: Mapping[str, PointModel], weights: Weights) -> PointModel:
    """Return the weighted mean of families that were fitted to the same runs."""
    members = tuple(
        replace(models[family_name].members[0], weights=by_target)
        for family_name, by_target in weights.items()
    )
    return replace(models[members[0].family], family=name, members=members)


def blend_params(members: Mapping[str, Params], weights: Weights) -> Params:
    """Return the parameters of a blend, as `voxcast.models.selection.fitting` reads them."""
    return {
        "members": {name: dict(members[name]) for name in weights},
        "weights": {name: list(by_target) for name, by_target in weights.items()},
    }


def weights_of(params: Mapping[str, Any]) -> Weights:
    """Return the weights among the parameters of a blend."""
    return {name: tuple(by_target) for name, by_target in params["weights"].items()}


def weighted_mean(logs: Mapping[str, np.ndarray], weights: Weights) -> np.ndarray:
    """Return the weighted mean of the members' logarithms, each of shape (n, targets)."""
    terms = [logs[name] * np.array(by_target) for name, by_target in weights.items()]
    return np.asarray(np.sum(terms, axis=0))


def regressed(targets: Sequence[str]) -> tuple[str, ...]:
    """Return the targets that are regressed; wall time is derived if CPU time is among them."""
    return tuple(t for t in targets if not (t == WALL and CPU in targets))


def predict_table(
    model: PointModel, table: pd.DataFrame, volumes: np.ndarray | None
) -> np.ndarray:
    """Return the logarithms that ``model`` predicts for the rows of a table, (n, targets)."""
    return model.predict(queries_of(table, volumes))


def log_targets(table: pd.DataFrame, targets: Sequence[str] = TARGETS) -> np.ndarray:
    """Return the logarithms of the measured targets, shape (n, targets)."""
    return np.asarray(np.log(table[list(targets)].to_numpy(dtype=float)))


def log_targets_at_usual_speed(table: pd.DataFrame, targets: Sequence[str]) -> np.ndarray:
    """Return the same with the times that runs would have taken at the usual speed of a machine.

    Of runs of applications, as far as it is known; see `voxcast.features.rows`.
    """
    logs = log_targets(table, targets)
    if "app" in table and SPEED_DEVIATION in table:
        deviations = table[SPEED_DEVIATION].to_numpy(dtype=float)
        logs[:, np.isin(targets, TIMES)] += deviations[:, None]
    return logs
