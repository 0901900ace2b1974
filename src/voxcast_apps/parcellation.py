"""Fits to parcellated volumes: region means, and pipelines with a hyper-parameter search.

Volumes are sampled at points of an ellipsoid about the brain, in the world coordinates of their
headers, where generated heads lie as the template does. A random parcellation cuts these points
into regions. Volumes, region means and folds are cached by content: a volume is read once for all
parcellations, and a parcellation is applied once for all fits. All fits of a fold, of each output,
candidate and inner fold, go through one parallel loop of joblib.
"""

from __future__ import annotations

import csv
import functools
import importlib.metadata
import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from scipy.spatial import cKDTree
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import ElasticNet
from sklearn.model_selection import KFold, ParameterSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.utils.parallel import Parallel, delayed

from voxcast.apps.phase_log import phase
from voxcast.content_cache import Arrays, ContentCache, cache_of_environment
from voxcast.errors import ConfigError, ImageError
from voxcast.files import sha256_file, write_json
from voxcast_apps.arguments import Arguments

PARTICIPANTS = "participants.tsv"
SPACING_MM = 3.0
# About the brain of the MNI152 template.
CENTRE_MM, SEMI_AXES_MM = (0.0, -18.0, 8.0), (68.0, 86.0, 64.0)
SAMPLED, MEANS, FOLD = "sampled_volume", "region_means", "parcel_fold"  # functions in the cache
VERSION = "1"  # of all three; raised whenever one gives other numbers
INNER_FOLDS = 3
MOST_SELECTED = 1000  # features that linear models and trees see; support vectors see all
REGRESSORS: dict[str, Callable[..., Any]] = {
    "elastic_net": functools.partial(ElasticNet, max_iter=500),
    "support_vectors": SVR,
    "boosting": functools.partial(
        GradientBoostingRegressor, n_estimators=50, max_features="sqrt", random_state=0
    ),
}
# Values of hyper-parameters; `candidates` combinations are drawn.
SPACES: dict[str, dict[str, list[float]]] = {
    "elastic_net": {"alpha": [0.01, 0.03, 0.1, 0.3], "l1_ratio": [0.1, 0.5, 0.9]},
    "support_vectors": {"C": [0.3, 1.0, 3.0, 10.0], "epsilon": [0.05, 0.1, 0.3]},
    "boosting": {"learning_rate": [0.03, 0.1], "max_depth": [1, 2, 3], "subsample": [0.5, 1.0]},
}
# The parameters of a pipeline and its search, which decide its predictions.
SETTING = ("pipeline", "features", "candidates", "folds")


@dataclass(frozen=True)
class Participant:
    """One row of ``participants.tsv``, and the volume of the participant."""

    label: str
    volume: Path
    columns: dict[str, str]


@dataclass(frozen=True)
class Regions:
    """Region means, participants x regions.

    Attributes
    ----------
    content : dict
        The inputs that decide the means, for keys of the cache.
    loads : int
        Number of raw volumes that were read.
    """

    content: dict[str, Any]
    means: np.ndarray
    loads: int


@dataclass(frozen=True)
class FoldPredictions:
    """Predictions of an outer fold, participants x outputs.

    Attributes
    ----------
    inner : ndarray
        Of the training participants, each by a model that has not seen it: out of inner fold.
    outer : ndarray
        Of the test participants, by the model fitted to all training participants.
    """

    train: np.ndarray
    test: np.ndarray
    inner: np.ndarray
    outer: np.ndarray


class Study:
    """Fits of pipelines to parcellations of the same participants, in folds.

    Attributes
    ----------
    participants : list of Participant
    targets : ndarray
        Participants x outputs.
    regions : list of Regions
        Of each parcellation.
    """

    def __init__(self, options: Arguments, parcellations: Sequence[tuple[int, int]]) -> None:
        """Read the participants and their means in each parcellation: its regions and seed.

        Raises
        ------
        ConfigError
            If a parameter is invalid.
        ImageError
            If the image set lacks participants, or a volume cannot be used.
        """
        self.options, self.cache = options, cache_of_environment()
        parameters = options.parameters
        count, folds = parameters["participants"], parameters["folds"]
        self.folds = fold_numbers(parameters["fold_range"], folds)
        if folds > count // 2 or count - -(-count // folds) < 2 * INNER_FOLDS:
            raise ConfigError(f"too few for {folds} folds", "participants")
        with phase("regions"):
            self.participants = participants_of(Path(parameters["images"]), count)
            self.targets = targets_of(self.participants, parameters["target"])
            self.regions = [
                region_means(self.participants, parcels, seed, self.cache)
                for parcels, seed in parcellations
            ]

    def fits(self, *, reuse: bool) -> Iterator[tuple[int, list[FoldPredictions]]]:
        """Yield each outer fold with its predictions from each parcellation, and store them.

        Parameters
        ----------
        reuse : bool
            Whether predictions in the cache are used; a run that is timed fits all of them.
        """
        for fold in self.folds:
            with phase("fold"):
                predictions = [self._fit(regions, fold, reuse=reuse) for regions in self.regions]
            yield fold, predictions

    def _fit(self, regions: Regions, fold: int, *, reuse: bool) -> FoldPredictions:
        parameters, targets = self.options.parameters, self.targets
        key = {
            "regions": regions.content,
            "targets": targets.tolist(),
            "setting": {name: parameters[name] for name in SETTING},
            "fold": fold,
            "scikit-learn": importlib.metadata.version("scikit-learn"),
        }
        train, test = _splits(len(targets), parameters["folds"], seed=0)[fold]
        arrays = self.cache.get(FOLD, VERSION, key) if self.cache and reuse else None
        if arrays is None:
            features = features_of(regions.means, parameters["features"])
            inner, outer = _fitted(
                features, targets, parameters, train, test, self.options.threads
            )
            arrays = {"inner": inner, "outer": outer}
            if self.cache:
                self.cache.put(FOLD, VERSION, key, arrays)
        return FoldPredictions(train, test, **arrays)

    def write(self, scores: list[dict[str, Any]], **facts: Any) -> None:
        """Write ``result.json``: scores of folds and their mean, the use of the cache, facts."""
        with phase("write"):
            result = {
                "folds": scores,
                "r_squared": float(np.mean([score["r_squared"] for score in scores])),
                "volumes_read": sum(regions.loads for regions in self.regions),
                "cache": None if self.cache is None else self.cache.events(),
            }
            write_json(self.options.out / "result.json", {**result, **facts})


def fold_numbers(fold_range: str, folds: int) -> range:
    """Return the folds that ``fold_range`` chooses.

    Raises
    ------
    ConfigError
        If it is not ``FIRST:END`` within the folds.

    Examples
    --------
    >>> fold_numbers("", 5), fold_numbers("3:5", 5)
    (range(0, 5), range(3, 5))
    """
    first, _, end = (fold_range or f"0:{folds}").partition(":")
    if not (first.isdecimal() and end.isdecimal() and 0 <= int(first) < int(end) <= folds):
        then = f"write it as 0:2, at most 0:{folds}; empty for all"
        raise ConfigError(f"not a range of folds: {fold_range!r}", "fold_range", then)
    return range(int(first), int(end))


def participants_of(folder: Path, count: int) -> list[Participant]:
    """Return the first `count` participants of a BIDS dataset with one T1-weighted volume each.

    Raises
    ------
    ImageError
        If there are fewer, or a volume is missing.
    """
    table = folder / PARTICIPANTS
    try:
        with table.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))[:count]
    except OSError as error:
        then = "make the images of the campaign, or set the parameter images"
        raise ImageError(f"cannot be read ({error.strerror})", table, then) from None
    if len(rows) < count:
        then = "set the parameter participants"
        raise ImageError(f"has {len(rows)} participants, not {count}", table, then)
    participants = []
    for row in rows:
        label = row.get("participant_id") or "no label"
        volumes = list((folder / label / "anat").glob(f"{label}*_T1w.nii*"))
        if len(volumes) != 1:
            raise ImageError(f"has {len(volumes)} T1w volumes of {label}, not 1", folder)
        participants.append(Participant(label, volumes[0], row))
    return participants


def targets_of(participants: list[Participant], name: str) -> np.ndarray:
    """Return a column of numbers, or of lists of numbers, as participants x outputs.

    Raises
    ------
    ConfigError
        If the column is missing, or it holds anything else.
    """
    where = f"target {name!r}"
    try:
        values = [json.loads(participant.columns[name]) for participant in participants]
        targets = np.array(values, float).reshape(len(values), -1)
    except KeyError:
        raise ConfigError(f"no column of {PARTICIPANTS}", where) from None
    except (TypeError, ValueError):
        targets = np.full((1, 1), np.nan)
    if not np.isfinite(targets).all() or (np.ptp(targets, axis=0) == 0).any():
        reason = f"not a number, or as many, in each row of {PARTICIPANTS}; or the same for all"
        raise ConfigError(reason, where)
    return targets


def region_means(
    participants: list[Participant], parcels: int, seed: int, cache: ContentCache | None
) -> Regions:
    """Return the mean of each participant's volume in each region, over the mean of all regions.

    Parameters
    ----------
    parcels : int
        Number of regions.
    seed : int
        Of the random parcellation.
    """
    # The bytes of a volume are hashed in any case; they are decompressed where nothing is cached.
    hashes = [sha256_file(participant.volume) for participant in participants]
    content = {"volumes": hashes, "parcels": parcels, "seed": seed}
    loads = 0

    def read(volume: Path) -> Arrays:
        nonlocal loads
        loads += 1
        return {"values": sampled_volume(volume)}

    def means() -> Arrays:
        labels = parcellation(parcels, seed)
        sizes = np.bincount(labels, minlength=parcels)
        rows = []
        for participant, sha256 in zip(participants, hashes, strict=True):
            sample = functools.partial(read, participant.volume)
            values = _cached(cache, SAMPLED, {"volume": sha256}, sample)["values"]
            rows.append(np.bincount(labels, values, parcels) / sizes / values.mean(dtype=float))
        return {"means": np.array(rows, np.float32)}

    return Regions(content, _cached(cache, MEANS, content, means)["means"], loads)


def _cached(
    cache: ContentCache | None,
    function: str,
    content: dict[str, Any],
    compute: Callable[[], Arrays],
) -> Arrays:
    return compute() if cache is None else cache.arrays(function, VERSION, content, compute)


def parcellation(parcels: int, seed: int) -> np.ndarray:
    """Return the region of each point of the grid, the nearest of random points.

    Examples
    --------
    >>> labels = parcellation(20, seed=1)
    >>> sorted(set(labels.tolist())) == list(range(20))
    True
    """
    points = grid_points()
    rng = np.random.default_rng([seed, parcels])
    centres = points[rng.choice(len(points), parcels, replace=False)]
    return np.asarray(cKDTree(centres).query(points)[1])


def grid_points() -> np.ndarray:
    """Return the points of the ellipsoid in millimetres, points x 3."""
    centre, semi_axes = np.array(CENTRE_MM), np.array(SEMI_AXES_MM)
    steps = [np.arange(-axis, axis + SPACING_MM / 2, SPACING_MM) for axis in semi_axes]
    offsets = np.stack(np.meshgrid(*steps, indexing="ij"), -1).reshape(-1, 3)
    points: np.ndarray = offsets[((offsets / semi_axes) ** 2).sum(1) <= 1] + centre
    return points


def sampled_volume(path: Path) -> np.ndarray:
    """Return the voxels nearest to the points of the grid; 0 outside of the volume.

    Raises
    ------
    ImageError
        If it cannot be read, is not one 3-D volume, or lies elsewhere.
    """
    try:
        image: Any = nibabel.load(path)
        voxels = np.asanyarray(image.dataobj)
        inverse = np.linalg.inv(image.affine)
    except (OSError, ValueError, EOFError, nibabel.filebasedimages.ImageFileError) as error:
        raise ImageError(f"cannot be read ({error})", path) from None
    if voxels.ndim != 3:
        raise ImageError(f"needs one 3-D volume, not shape {voxels.shape}", path)
    indices = np.rint(grid_points() @ inverse[:3, :3].T + inverse[:3, 3]).astype(int)
    inside = ((indices >= 0) & (indices < voxels.shape)).all(1)
    values = np.zeros(len(indices), np.float32)
    values[inside] = voxels[tuple(indices[inside].T)]
    if not np.isfinite(values).all() or values.mean() <= 0:
        raise ImageError("has no brain where the template has it", path)
    return values


def features_of(means: np.ndarray, features: str) -> np.ndarray:
    """Return the region means, or the differences of all pairs of them.

    Examples
    --------
    >>> features_of(np.array([[1.0, 2.0, 4.0]]), "pairs").tolist()
    [[-1.0, -3.0, -2.0]]
    """
    if features == "means":
        return means
    first, second = np.triu_indices(means.shape[1], 1)
    differences: np.ndarray = means[:, first] - means[:, second]
    return differences


def r_squared(actual: np.ndarray, predicted: np.ndarray, reference: np.ndarray) -> float:
    """Return the share of squared error saved over the mean of `reference`, over all outputs.

    All are participants x outputs; the reference is the training participants.
    """
    spread = ((actual - reference.mean(0)) ** 2).sum(0)
    return float((1 - ((actual - predicted) ** 2).sum(0) / spread).mean())


def _fitted(
    features: np.ndarray,
    targets: np.ndarray,
    parameters: Mapping[str, Any],
    train: np.ndarray,
    test: np.ndarray,
    threads: int,
) -> tuple[np.ndarray, np.ndarray]:
    pipeline, count = parameters["pipeline"], parameters["candidates"]
    candidates = list(ParameterSampler(SPACES[pipeline], count, random_state=0))
    splits = _splits(len(train), INNER_FOLDS, seed=1)
    outputs = range(targets.shape[1])
    fit = delayed(functools.partial(_predicted, pipeline, features))
    jobs = list(itertools.product(outputs, range(len(candidates)), splits))
    with Parallel(n_jobs=threads) as parallel:
        fits = parallel(
            fit(targets[train[rows], output], candidates[number], train[rows], train[others])
            for output, number, (rows, others) in jobs
        )
        by_candidate = np.empty((len(outputs), len(candidates), len(train)))
        for (output, number, (_, others)), predicted in zip(jobs, fits, strict=True):
            by_candidate[output, number, others] = predicted
        errors = ((by_candidate - targets[train].T[:, None]) ** 2).mean(2)
        best = errors.argmin(1)
        outer = parallel(
            fit(targets[train, output], candidates[best[output]], train, test)
            for output in outputs
        )
    return by_candidate[outputs, best].T, np.array(outer).T


def _predicted(
    pipeline: str,
    features: np.ndarray,
    target: np.ndarray,
    candidate: dict[str, float],
    train: np.ndarray,
    test: np.ndarray,
) -> np.ndarray:
    """Fit to the rows `train`, whose target is given, and predict the rows `test`."""
    steps: list[Any] = [StandardScaler(), REGRESSORS[pipeline](**candidate)]
    if features.shape[1] > MOST_SELECTED and pipeline != "support_vectors":
        steps.insert(1, SelectKBest(f_regression, k=MOST_SELECTED))
    model, mean, scale = make_pipeline(*steps), target.mean(), target.std() or 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of candidates that are not chosen
        model.fit(features[train], (target - mean) / scale)
    return np.asarray(model.predict(features[test]) * scale + mean)


def _splits(rows: int, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(KFold(folds, shuffle=True, random_state=seed).split(range(rows)))
