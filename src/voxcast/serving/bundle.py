"""The registered model's files: a forecaster for each application, and the facts that it serves.

A bundle is a folder::

    bundle.json                   why it was made, and facts by application, see `ServedApp`
    forecasters/APP/              written by `voxcast.models.forecaster.Forecaster.save`
    trained_on/APP.json           cell keys and subjects of the runs it learned from

Only ``bundle.json`` is read when a bundle is opened; a forecaster is read when it is first needed.
The bytes that are hashed are the bytes that are used, even if files change meanwhile:
``bundle.json`` is read once, and a forecaster is copied to a temporary folder and read from there.
Fields that this release does not know are left out, so a record of a later release can be read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import TypeAdapter

from voxcast.errors import ModelError, UnlearnedError, one_line
from voxcast.files import read_json, sha256_file, sha256_folder, write_json
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.records import Configuration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from voxcast.models.forecaster import Forecaster

FORMAT = 1
INDEX = "bundle.json"
FORECASTERS = "forecasters"
TRAINED_ON = "trained_on"
REPAIR = (
    "`voxcast models rollback` returns to an older version, if any; else move `models` away and "
    "run `voxcast learn`"
)
HIDDEN = "."  # begins the names that file managers leave in any folder; they are never read
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NAME_RULE = "at most 100 letters, digits, and . _ -"
_REMOVE = "remove it; `voxcast models rollback` returns to an older version, if any"
_NAME_LIMIT = 40  # letters of a name in a message
# Exceptions that a damaged file may raise; a deeply nested one exhausts the JSON parser's stack.
_DAMAGE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


# Facts that the list of versions shows for each application.
SUMMARY = (
    "family", "reason", "calibrated", "subjects", "runs", "cv_objective", "promoted_at",
)  # fmt: skip


@dataclass(frozen=True)
class Promotion:
    """A forecaster's recipe, its training data, and why it was promoted.

    Attributes
    ----------
    family, params
        The recipe, see `voxcast.models.selection.fitting`.
    subjects, runs : int
        Size of its training table; `noisy_runs` of the runs were disturbed.
    reason, detail : str
        See `voxcast.models.selection.promotion_rule.Decision`.
    promoted_at : str
        Time in ISO 8601.
    calibrated : bool
        Whether the bounds at `upper_quantile` are calibrated.
    cv_objective : float
        Error by cross-validation on its own training table.
    table_sha256 : str
        Hash of the training table's file.
    app_version : str
        Version of the application that was measured.
    from_version : str or None
        Version of the registered model that it replaced.
    evidence : dict
        ``law``, a formula by target, see `voxcast.models.explanation.law_in_words`. How it was
        judged: ``cross_validation``, ``risk_at_upper_quantile`` and ``comparison`` of
        the receipt; ``errors_percent`` out of fold and ``noise_floor_percent`` of repeats, with
        intervals; ``training``, its image sets and dates; ``software``. Empty where a bundle does
        not have it.
    """

    family: str
    params: dict[str, Any]
    subjects: int
    runs: int
    noisy_runs: int
    reason: str
    detail: str
    promoted_at: str
    calibrated: bool
    upper_quantile: float
    cv_objective: float
    table_sha256: str
    app_version: str
    from_version: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Return the facts that the list of versions shows."""
        return {name: getattr(self, name) for name in SUMMARY}


@dataclass(frozen=True)
class ServedApp:
    """Facts of an application that its forecaster needs to predict without the project.

    Attributes
    ----------
    name : str
        Name of the application.
    parameters : dict
        Default parameters.
    configurations : list of Configuration
        The allocations that were measured.
    coarse_points, network_points : int
        Grid sizes, see `voxcast.images.volume`.
    forecaster_sha256 : str
        Hash of the forecaster's folder, checked when it is read.
    promotion : Promotion
        The forecaster's recipe and why it was promoted.
    host_classes : tuple of str
        Machines on which the runs were measured, see `voxcast.measure.host.host_class`; empty
        where a bundle does not have them.
    measured : tuple of (device, CPUs, GPUs)
        Allocations of the runs; empty where a bundle does not have them.
    characteristics : tuple of str
        Characteristics that its model sees; all, where a bundle does not list them.
    trained_on_sha256 : str
        Hash of the list of the runs that it learned from, checked when it is read; empty where a
        bundle does not have it.
    """

    name: str
    parameters: dict[str, Any]
    configurations: list[Configuration]
    coarse_points: int
    network_points: int
    forecaster_sha256: str
    promotion: Promotion
    host_classes: tuple[str, ...] = ()
    measured: tuple[tuple[str, int, int], ...] = ()
    characteristics: tuple[str, ...] = tuple(CHARACTERISTICS)
    trained_on_sha256: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form, without the name."""
        names = ("device", "cpus", "gpus")
        configurations = [{n: getattr(c, n) for n in names} for c in self.configurations]
        content = asdict(self) | {"configurations": configurations}
        del content["name"]
        return content

    @classmethod
    def from_json(cls, name: str, content: dict[str, Any]) -> ServedApp:
        """Read what `to_json` returned.

        Raises
        ------
        ValueError, LookupError, TypeError, AttributeError, ArithmeticError
            If a field is missing, empty, or of another type.
        """
        served: ServedApp = _adapter().validate_python({**content, "name": name})
        if not served.configurations:
            raise ValueError("no configurations")
        return served


@cache
def _adapter() -> TypeAdapter[ServedApp]:
    return TypeAdapter(ServedApp)


def app_among(names: Sequence[str], name: str | None) -> str:
    """Return the name of an application of a model; None stands for the only one.

    Raises
    ------
    UnlearnedError
        If the model lacks the application.
    ModelError
        If none is named and there are several.

    Examples
    --------
    >>> app_among(["segment"], None)
    'segment'
    """
    listed = ", ".join(names)
    if name is None and len(names) > 1:
        problem = f"the model has several applications: {listed}"
        raise ModelError(problem, "app", "name one (--app)")
    app = names[0] if name is None and names else name
    if app is None or app not in names:
        raise UnlearnedError(f"unknown application; the model has {listed or 'none'}", app)
    return app


@dataclass(frozen=True)
class Origin:
    """Why a version was made.

    Attributes
    ----------
    promoted : str
        Application for which it was made.
    previous : str or None
        Number of the version that it replaced.
    git_commit : str
        Commit of the project when the model was trained; empty if it is not known.
    """

    promoted: str = ""
    previous: str | None = None
    git_commit: str = ""


NOBODY = Origin()


@dataclass(frozen=True)
class TrainedOn:
    """Keys and subjects of the runs that a forecaster learned from.

    Subjects are kept apart: they are measured again under other keys.
    """

    cell_keys: list[str]
    subjects: list[str]

    @classmethod
    def of(cls, table: pd.DataFrame) -> TrainedOn:
        """Return those of a training table."""
        return cls(table["cell_key"].tolist(), sorted({*table["subject"]}))


@dataclass(frozen=True)
class BundlePart:
    """One application of a bundle that is to be written; ``forecaster`` is the folder to copy."""

    served: ServedApp
    forecaster: Path
    trained_on: TrainedOn


@dataclass(frozen=True)
class Bundle:
    """The applications of a registered model; see `Bundle.load`.

    Attributes
    ----------
    folder : Path
        Folder of the files.
    apps : dict of str to ServedApp
        The applications by name.
    version : str
        Its number; empty where it is not known, as of a bare folder.
    origin : Origin
        Why it was made.
    """

    folder: Path
    apps: dict[str, ServedApp]
    version: str = ""
    origin: Origin = NOBODY
    _forecasters: dict[str, Forecaster] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, folder: Path, sha256: str | None = None, version: str = "") -> Bundle:
        """Read ``bundle.json``.

        Parameters
        ----------
        folder : Path
            Folder of the files.
        sha256 : str, optional
            Hash of ``bundle.json`` on record.
        version : str, optional
            Number of the version.

        Raises
        ------
        ModelError
            If it is missing, not the file that was registered, of another release, or damaged, or
            there are links among the files.
        """
        path = folder / INDEX
        if not path.is_file():
            raise ModelError("contains no model of this release", folder, "run `voxcast learn`")
        plain_files(folder)
        try:
            index = path.read_bytes()
            if sha256 is not None and hashlib.sha256(index).hexdigest() != sha256:
                raise ModelError("is not the file that was registered", path, REPAIR)
            content = json.loads(index)
            if content["format"] != FORMAT:
                raise ModelError("was written by another release", path, "run `voxcast learn`")
            for name in content["apps"]:
                if not _NAME.fullmatch(name):  # a name becomes a path
                    problem = f"is damaged: {name[:_NAME_LIMIT]!r} is no name"
                    raise ModelError(problem, path, REPAIR)
            apps = {
                name: ServedApp.from_json(name, facts) for name, facts in content["apps"].items()
            }
            origin = Origin(**content.get("origin", {}))
        except _DAMAGE as error:
            problem = f"is damaged: {type(error).__name__}: {one_line(error)}"
            raise ModelError(problem, path, REPAIR) from None
        if not apps:
            raise ModelError("is damaged: it has no application", path, REPAIR)
        return cls(folder, apps, version, origin)

    def app_named(self, name: str | None) -> ServedApp:
        """Return the facts of an application; None stands for the only one.

        Raises
        ------
        UnlearnedError
            If the model lacks the application.
        ModelError
            If none is named and there are several.
        """
        return self.apps[app_among(list(self.apps), name)]

    def check(self, app: str) -> None:
        """Check that the files of an application are those that were registered.

        Raises
        ------
        ModelError
            If a file is missing, changed or cannot be read.
        """
        self.forecaster(app)
        self.trained_on(app)

    def forecaster(self, app: str) -> Forecaster:
        """Return the forecaster of an application, read on the first call.

        Raises
        ------
        ModelError
            If its files have changed since they were registered.
        """
        if app not in self._forecasters:
            from voxcast.models.forecaster import Forecaster

            folder = self.forecaster_folder(app)
            with tempfile.TemporaryDirectory(prefix="voxcast-forecaster-") as temporary:
                copy = Path(temporary, app)
                _copy(folder, copy, self.apps[app].forecaster_sha256)
                try:
                    self._forecasters[app] = Forecaster.load(copy)
                except _DAMAGE as error:  # its hash is right: it was written by something else
                    raise ModelError(f"is no model: {error!r:.200}", folder, REPAIR) from None
                except ModelError as error:
                    where = (error.where or "").replace(str(copy), str(folder))
                    raise ModelError(error.problem, where, error.then) from None
        return self._forecasters[app]

    def summaries(self) -> dict[str, dict[str, Any]]:
        """Return `Promotion.summary` of each application."""
        return {name: app.promotion.summary() for name, app in self.apps.items()}

    def problems(self) -> dict[str, str]:
        """Return the problem of every damaged application or file, by name; reads all of them.

        Raises
        ------
        ModelError
            See `plain_files`.
        """
        wrong = {}
        registered = [self.folder / INDEX]
        for app in self.apps:
            registered += [self.forecaster_folder(app), self.trained_on_path(app)]
            try:
                self.check(app)
            except ModelError as error:
                wrong[f"application {app}"] = error.problem
        for path in plain_files(self.folder):
            if not {path, *path.parents} & {*registered}:
                wrong[str(path.relative_to(self.folder))] = "was not registered"
        return wrong

    def forecaster_folder(self, app: str) -> Path:
        """Return the folder of a forecaster."""
        return self.folder / FORECASTERS / app

    def trained_on_path(self, app: str) -> Path:
        """Return the file with the runs that a forecaster learned from."""
        return self.folder / TRAINED_ON / f"{app}.json"

    def trained_on(self, app: str) -> TrainedOn:
        """Return which runs a forecaster learned from."""
        path = self.trained_on_path(app)
        recorded = self.apps[app].trained_on_sha256
        try:
            if recorded and sha256_file(path) != recorded:
                raise ModelError("is not the file that was registered", path, REPAIR)
            content = read_json(path)
            return TrainedOn(*(list(map(str, content[key])) for key in ("cell_keys", "subjects")))
        except _DAMAGE as error:
            raise ModelError(f"is damaged: {error!r}", path, REPAIR) from None

    def part(self, app: str) -> BundlePart:
        """Return an application as a part of another bundle."""
        return BundlePart(self.apps[app], self.forecaster_folder(app), self.trained_on(app))


def plain_files(folder: Path) -> list[Path]:
    """Return the files below a folder of a model, without hidden ones, sorted.

    The folder itself may be a link. A link in it would have a file of somebody else read, or
    copied into the registry; a pipe is never read to its end.

    Raises
    ------
    ModelError
        If a link, pipe or device is among them, or a folder cannot be read.
    """
    files = []
    try:
        for root, folders, names in os.walk(folder, onerror=_fail):  # which follows no link
            for path in (Path(root, name) for name in (*folders, *names)):
                if path.is_symlink():
                    raise ModelError(f"is a link, to {path.readlink()}", path, _REMOVE)
                if not path.is_dir() and not path.is_file():
                    raise ModelError("is no plain file", path, _REMOVE)
                if path.is_file() and not path.name.startswith(HIDDEN):
                    files.append(path)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}", folder) from None
    return sorted(files)


def _fail(error: OSError) -> NoReturn:
    """Raise an error that a walk over folders would pass over."""
    raise error


def write_bundle(folder: Path, parts: Iterable[BundlePart], origin: Origin = NOBODY) -> Bundle:
    """Write a bundle into ``folder``, sorted by application; forecasters are copied unchanged.

    Raises
    ------
    ModelError
        If the name of an application cannot be the name of a file, or a forecaster is not the one
        that its facts state.
    """
    facts: dict[str, Any] = {}
    for part in sorted(parts, key=lambda part: part.served.name):
        name = part.served.name
        if not _NAME.fullmatch(name):
            raise ModelError(f"needs a name of {_NAME_RULE}", name[:_NAME_LIMIT])
        _copy(part.forecaster, folder / FORECASTERS / name, part.served.forecaster_sha256)
        path = folder / TRAINED_ON / f"{name}.json"
        write_json(path, asdict(part.trained_on))
        facts[name] = replace(part.served, trained_on_sha256=sha256_file(path)).to_json()
    write_json(folder / INDEX, {"format": FORMAT, "origin": asdict(origin), "apps": facts})
    return Bundle.load(folder)


def _copy(forecaster: Path, copy: Path, recorded: str) -> None:
    """Copy a forecaster, and check the bytes of the copy."""
    try:
        shutil.copytree(forecaster, copy)
        is_registered = sha256_folder(copy) == recorded
    except (OSError, shutil.Error):  # a file that is missing or cannot be read
        is_registered = False
    if not is_registered:
        raise ModelError("is not the model that was registered", forecaster, REPAIR)
