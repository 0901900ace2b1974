"""Cross-validation grouped by subject: training runs, their volumes, and the folds over them.

Cache of the predictions of each fold: ensembles and repeated runs refit nothing.

The code of all models and the packaged weights are part of a key: predictions of others are not
reused.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voxcast.content_cache import ContentCache
from voxcast.errors import ModelError
from voxcast.features.rows import tables_by_app, volumes_of
from voxcast.files import canonical_json, sha256_of
from voxcast.models import point_model
from voxcast.models.families.family import Params, family
from voxcast.models.point_model import queries_of
from voxcast.models.speed_estimation import speeds_of, target_by_speed
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pandas as pd

    from voxcast.models.point_model import InputLevel
    from voxcast.models.speeds import Speeds


FUNCTION = "fold_predictions"
# As the stage featurize left them.
TRAIN = Path("data/features/train.parquet")
STOPPED = Path("data/features/stopped.parquet")
VOLUMES = Path("data/features/volumes.npz")
FOLDS = Path("build/folds")  # fits of tuning


class FoldCache:
    """Cached predictions by data and settings; `fits` counts the misses.

    Parameters
    ----------
    folder : Path or None
        Folder of the cache; None keeps it in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.fits = 0
        self._stored = None if folder is None else ContentCache(folder)
        self._predictions: dict[str, np.ndarray] = {}

    def get(self, content: Mapping[str, object]) -> np.ndarray | None:
        """Return the predictions of a fold; if missing, count a fit and return None."""
        key = sha256_of(content)
        if key not in self._predictions and self._stored is not None:
            arrays = self._stored.get(FUNCTION, _code_sha256(), content)
            if arrays is not None:
                self._predictions[key] = arrays["log_predictions"]
        if key not in self._predictions:
            self.fits += 1
        return self._predictions.get(key)

    def put(self, content: Mapping[str, object], predictions: np.ndarray) -> None:
        """Store the predictions of a fold."""
        self._predictions[sha256_of(content)] = predictions
        if self._stored is not None:
            arrays = {"log_predictions": predictions}
            self._stored.put(FUNCTION, _code_sha256(), content, arrays)


@functools.cache
def _code_sha256() -> str:
    import sklearn

    digest = hashlib.sha256(sklearn.__version__.encode())
    files = Path(__file__).parents[1].rglob("*")
    for path in sorted(path for path in files if path.suffix in (".py", ".npz")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Validation:
    """Training runs with the folds on which every family is evaluated.

    Attributes
    ----------
    table : DataFrame
        Completed runs of the training side.
    volumes : ndarray or None, shape (n_runs,)
        Small volume of each run.
    n_folds : int
        Maximum number of folds; there are never more than subjects.
    seed : int
        Seed of the folds and of the fits.
    targets : tuple of str
        Columns to predict.
    cache : FoldCache
        Cached predictions of earlier fits.
    stopped : DataFrame, optional
        Runs that were stopped before they completed, with lower bounds of their targets: models
        learn from them, and they count as above every bound where bounds are calibrated.
    """

    table: pd.DataFrame
    volumes: np.ndarray | None
    n_folds: int
    seed: int
    targets: tuple[str, ...] = TARGETS
    cache: FoldCache = field(default_factory=FoldCache)
    stopped: pd.DataFrame | None = None

    def part(self, rows: np.ndarray) -> Validation:
        """Return the validation of a subset of the runs, by position, for nested folds."""
        volumes = None if self.volumes is None else self.volumes[rows]
        table = self.table.iloc[rows].reset_index(drop=True)
        removed = set(self.table["subject"]) - set(table["subject"])
        rows_of_part = replace(self, table=table, volumes=volumes)
        return rows_of_part.without_stopped(removed)

    def without_stopped(self, subjects: Collection[str]) -> Validation:
        """Return the validation without the stopped runs of some subjects."""
        if self.stopped is None:
            return self
        is_left = ~self.stopped["subject"].isin(list(subjects))
        return replace(self, stopped=self.stopped[is_left])

    def sampled(self, rows: int) -> Validation:
        """Return complete subjects of at most ``rows`` runs, or at least two subjects.

        Subjects whose runs were all stopped are as likely to be left out as any.
        """
        runs, rng = self.table, np.random.default_rng
        if len(runs) <= rows:
            return self
        names = rng(self.seed).permutation(runs["subject"].unique())
        sizes = runs["subject"].value_counts().loc[names].cumsum()
        count = max(2, int((sizes <= rows).sum()))
        part = self.part(np.flatnonzero(runs["subject"].isin(set(names[:count]))))
        stopped = set() if self.stopped is None else set(self.stopped["subject"])
        others = sorted(stopped - set(names))
        order = rng(self.seed).permutation(len(others))
        return part.without_stopped(
            {others[n] for n in order[round(len(others) * count / len(names)) :]}
        )

    @property
    def stopped_units(self) -> set[str]:
        """Subjects with a stopped run, or rows, where they give the scores of bounds."""
        if self.stopped is None:
            return set()
        return set(self.stopped["unit" if "unit" in self.stopped else "subject"].astype(str))

    @property
    def has_one_subject(self) -> bool:
        """Whether all runs are of one subject, so that folds are over runs."""
        return bool(self.table["subject"].nunique() < 2)

    def actual(self) -> np.ndarray:
        """Return the logarithms of the measured targets, shape (n_runs, targets)."""
        return point_model.log_targets(self.table, self.targets)

    def actual_at_usual_speed(self) -> np.ndarray:
        """Return the same at the usual speed of machines: which is how families are compared."""
        return point_model.log_targets_at_usual_speed(self.table, self.targets)

    def folds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (train, held out) positions; a subject is never on both sides of a fold.

        With one subject there is nothing to hold out but runs: the folds are over runs, and a
        single run is on both sides. Nothing is then known of other subjects.
        """
        from sklearn.model_selection import GroupKFold

        subjects = self.table["subject"].to_numpy()
        if self.has_one_subject:
            subjects = np.arange(len(subjects))
        if len(subjects) == 1:
            return [(np.array([0]), np.array([0]))]
        count = min(self.n_folds, len(np.unique(subjects)))
        splitter = GroupKFold(n_splits=count, shuffle=True, random_state=self.seed)
        return list(splitter.split(np.zeros(len(subjects)), groups=subjects))

    @functools.cached_property
    def data_sha256(self) -> str:
        """Hash of the table and of the volumes: the data that fits depend on."""
        digest = hashlib.sha256()
        frames = [self.table]
        if self.stopped is not None and len(self.stopped):
            frames.append(self.stopped)
        for frame in frames:
            for name in sorted(frame.columns):
                values = [_json_value(value) for value in frame[name]]
                digest.update(name.encode() + b"\0" + canonical_json(values).encode())
        if self.volumes is not None:
            digest.update(np.ascontiguousarray(self.volumes).tobytes())
        return digest.hexdigest()

    @functools.cached_property
    def speeds(self) -> Speeds | None:
        """The speeds of machines, estimated from all runs."""
        return self._speeds_from(np.arange(len(self.table)))

    @functools.cached_property
    def fold_speeds(self) -> dict[bytes, Speeds | None]:
        """The same from the training runs of each fold alone, by the bytes of their positions."""
        return {train.tobytes(): self._speeds_from(train) for train, _ in self.folds()}

    def _speeds_from(self, positions: np.ndarray) -> Speeds | None:
        return speeds_of(self.table.iloc[positions], target_by_speed(self.targets))

    def predictions(
        self, name: str, params: Params, input_level: InputLevel
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, fold by fold, the held-out positions and their logarithms, (n, targets)."""
        key: dict[str, object] = {"data": self.data_sha256, "family": name, "params": params}
        key |= {"input_level": input_level, "folds": self.n_folds, "seed": self.seed}
        key |= {"targets": list(self.targets)}
        for number, (train, held_out) in enumerate(self.folds()):
            predictions = self.cache.get({**key, "fold": number})
            if predictions is None:
                predictions = self._fit(name, params, input_level, train, held_out)
                self.cache.put({**key, "fold": number}, predictions)
            yield held_out, predictions

    def _fit(
        self,
        name: str,
        params: Params,
        input_level: InputLevel,
        train: np.ndarray,
        held_out: np.ndarray,
    ) -> np.ndarray:
        volumes = self.volumes if family(name).needs_volume else None
        model = point_model.fit(
            self.table.iloc[train],
            None if volumes is None else volumes[train],
            name,
            params,
            input_level,
            self.seed,
            self.targets,
            self.fold_speeds[train.tobytes()],
            self.without_stopped(set(self.table["subject"].iloc[held_out])).stopped,
        )
        queries = queries_of(
            self.table.iloc[held_out], None if volumes is None else volumes[held_out]
        )
        return model.predict(queries)

    def out_of_fold(self, name: str, params: Params, input_level: InputLevel) -> np.ndarray:
        """Return the logarithms, (n_runs, targets), by models fitted without a run's subject."""
        out_of_fold = self.no_predictions()
        for held_out, predictions in self.predictions(name, params, input_level):
            out_of_fold[held_out] = predictions
        return out_of_fold

    def no_predictions(self) -> np.ndarray:
        """Return out-of-fold predictions to be filled fold by fold."""
        return np.full((len(self.table), len(self.targets)), np.nan)


def _json_value(value: object) -> object:
    """Return a cell as a JSON value; floats are exact."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value.hex()
    return str(value)


def validations(project: Path, folds: int, seed: int) -> dict[str, Validation]:
    """Return the training runs of each application on record, with their folds.

    Raises
    ------
    ModelError
        If nothing was learned in this project.
    """
    import pandas as pd

    if not (project / TRAIN).is_file():
        raise ModelError("no training table", project / TRAIN, "run `voxcast learn`")
    stopped, cache = pd.read_parquet(project / STOPPED), FoldCache(project / FOLDS)
    return {
        app: Validation(
            table,
            volumes_of(table, project / VOLUMES),
            folds,
            seed,
            cache=cache,
            stopped=stopped[stopped["app"] == app],
        )
        for app, table in tables_by_app(pd.read_parquet(project / TRAIN)).items()
    }
