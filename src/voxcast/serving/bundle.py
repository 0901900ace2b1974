"""The registered model's files: a forecaster for each application, and the facts that it serves.

A bundle is a folder::

    bundle.json                   why it was made, and facts by application, see `ServedApp`
    forecasters/APP/              written by `voxcast.models.forecaster.Forecaster.save`
    trained_on/APP.json           cell keys and subjects of the runs it learned from

Only ``bundle.json`` is read when a bundle is opened; a forecaster is read when it is first needed.
The bytes that are hashed are the bytes that are used, even if files change meanwhile:
``bundle.json`` is read once, and a forecaster is copied to a temporary folder and read from there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.files import read_json, sha256_file, sha256_folder, write_json
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.serving.served_app import ServedApp, app_among

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from voxcast.models.forecaster import Forecaster

FORMAT = 1
INDEX = "bundle.json"
FORECASTERS = "forecasters"
TRAINED_ON = "trained_on"
REPAIR = (
    "`voxcast models rollback` returns to an older version, if any; `voxcast learn` trains again"
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


@dataclass(frozen=True)
class BundlePart:
    """One application of a bundle that is to be written.

    ``forecaster`` is the folder to copy; ``cell_keys`` and ``subjects`` belong to the runs
    that it learned from. Subjects are kept apart: they are measured again under other keys.
    """

    served: ServedApp
    forecaster: Path
    cell_keys: Sequence[str]
    subjects: Sequence[str]


@dataclass(frozen=True)
class Bundle:
    """The applications of a registered model; see `Bundle.load`.

    Attributes
    ----------
    folder : Path
        Folder of the files.
    facts : dict
        Content of ``bundle.json`` by application, as it was read.
    apps : dict of str to ServedApp
        Those applications whose facts can be read.
    damaged : dict of str to str
        Why the facts of other applications cannot.
    version : str
        Its number; empty where it is not known, as of a bare folder.
    origin : Origin
        Why it was made.
    """

    folder: Path
    facts: dict[str, Any]
    apps: dict[str, ServedApp]
    damaged: dict[str, str]
    version: str = ""
    origin: Origin = Origin()
    _forecasters: dict[str, Forecaster] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, folder: Path, sha256: str | None = None, version: str = "") -> Bundle:
        """Read ``bundle.json``; damage to one application does not affect other applications.

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
            If it is missing, not the file that was registered, of another release, or damaged as
            a whole, or there are links among the files.
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
            facts = dict(content["apps"])
            origin = Origin(**content.get("origin", {}))
        except _DAMAGE as error:
            raise ModelError(f"is damaged: {error!r}", path, REPAIR) from None
        for name in facts:
            if not _NAME.fullmatch(name):  # a name becomes a path
                raise ModelError(f"is damaged: {name[:_NAME_LIMIT]!r} is no name", path, REPAIR)
        if not facts:
            raise ModelError("is damaged: it has no application", path, REPAIR)
        apps, damaged = {}, {}
        for name, facts_of_app in facts.items():
            try:
                apps[name] = ServedApp.from_json(name, facts_of_app)
            except _DAMAGE as error:
                damaged[name] = f"its facts in {INDEX} are damaged: {error!r}"
        return cls(folder, facts, apps, damaged, version, origin)

    @property
    def lab_characteristics(self) -> tuple[str, ...]:
        """The characteristics of laboratories that its applications declare, sorted."""
        declared = {name for app in self.apps.values() for name in app.characteristics}
        return tuple(sorted(declared - set(CHARACTERISTICS)))

    def app_named(self, name: str | None) -> ServedApp:
        """Return the facts of an application; None stands for the only one.

        Raises
        ------
        UnlearnedError
            If the model lacks the application.
        ModelError
            If its facts are damaged, or none is named and there are several.
        """
        app = app_among(list(self.facts), name)
        if app in self.damaged:
            raise ModelError(f"application {app}: {self.damaged[app]}", self.folder, REPAIR)
        return self.apps[app]

    def problem_of(self, app: str) -> str | None:
        """Return the damage to an application, or None if it is intact."""
        if app in self.damaged:
            return self.damaged[app]
        if not self._is_as_registered(app):
            return "its forecaster is not the one that was registered"
        try:
            self.subjects(app)
            self.cell_keys(app)
        except ModelError:
            return "the list of the runs that it learned from cannot be read"
        return None

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
                if not self._is_as_registered(app, copy):
                    raise ModelError("is not the model that was registered", folder, REPAIR)
                try:
                    self._forecasters[app] = Forecaster.load(copy)
                except _DAMAGE as error:  # its hash is right: it was written by something else
                    raise ModelError(f"is no model: {error!r:.200}", folder, REPAIR) from None
                except ModelError as error:
                    where = (error.where or "").replace(str(copy), str(folder))
                    raise ModelError(error.problem, where, error.then) from None
        return self._forecasters[app]

    def summaries(self) -> dict[str, dict[str, Any] | None]:
        """Return `Promotion.summary` of each application; None for one that is damaged."""
        return {
            name: self.apps[name].promotion.summary() if name in self.apps else None
            for name in self.facts
        }

    def problems(self) -> dict[str, str]:
        """Return the problem of every damaged application or file, by name; reads all of them.

        Raises
        ------
        ModelError
            See `plain_files`.
        """
        wrong = {}
        for app in self.facts:
            problem = self.problem_of(app)
            try:
                if problem is None:
                    self.forecaster(app)
            except ModelError as error:
                problem = error.problem
            if problem is not None:
                wrong[f"application {app}"] = problem
        listed = {self.folder / INDEX, *(self.trained_on_path(app) for app in self.facts)}
        folders = {self.forecaster_folder(app) for app in self.facts}
        for path in plain_files(self.folder):
            if path not in listed and not folders & set(path.parents):
                wrong[str(path.relative_to(self.folder))] = "was not registered"
        return wrong

    def has_forecaster(self, app: str, recorded: str) -> bool:
        """Whether an application has the forecaster with the given hash."""
        return self.apps[app].forecaster_sha256 == recorded

    def is_intact(self, app: str) -> bool:
        """Whether nothing is damaged or missing of an application, see `problem_of`."""
        return self.problem_of(app) is None

    def _is_as_registered(self, app: str, copy: Path | None = None) -> bool:
        """Whether the forecaster's files, or a copy to be made, have the hash on record."""
        folder = self.forecaster_folder(app)
        if app not in self.apps or not folder.is_dir():
            return False
        try:
            if copy is not None:
                shutil.copytree(folder, copy)
            return sha256_folder(copy or folder) == self.apps[app].forecaster_sha256
        except (OSError, shutil.Error):  # a file that cannot be read
            return False

    def forecaster_folder(self, app: str) -> Path:
        """Return the folder of a forecaster."""
        return self.folder / FORECASTERS / app

    def trained_on_path(self, app: str) -> Path:
        """Return the file with the runs that a forecaster learned from."""
        return self.folder / TRAINED_ON / f"{app}.json"

    def cell_keys(self, app: str) -> list[str]:
        """Return the cell keys of the runs that a forecaster learned from."""
        return self._trained_on(app, "cell_keys")

    def subjects(self, app: str) -> list[str]:
        """Return the subjects that a forecaster learned from, sorted."""
        return self._trained_on(app, "subjects")

    def _trained_on(self, app: str, key: str) -> list[str]:
        path = self.trained_on_path(app)
        recorded = self.apps[app].trained_on_sha256 if app in self.apps else ""
        try:
            if recorded and sha256_file(path) != recorded:
                raise ModelError("is not the file that was registered", path, REPAIR)
            return [str(value) for value in read_json(path)[key]]
        except _DAMAGE as error:
            raise ModelError(f"is damaged: {error!r}", path, REPAIR) from None

    def part(self, app: str) -> BundlePart:
        """Return an application as a part of another bundle."""
        return BundlePart(
            self.apps[app], self.forecaster_folder(app), self.cell_keys(app), self.subjects(app)
        )


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
    pending = [folder]
    try:
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    path = Path(entry.path)
                    if entry.is_symlink():
                        problem = f"is a link, to {path.readlink()}"
                        raise ModelError(problem, path, _REMOVE)
                    if entry.is_dir():
                        pending.append(path)
                    elif not entry.is_file():
                        raise ModelError("is no plain file", path, _REMOVE)
                    elif not entry.name.startswith(HIDDEN):
                        files.append(path)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}", folder) from None
    return sorted(files)


def write_bundle(
    folder: Path,
    parts: Iterable[BundlePart],
    carried_over: Bundle | None = None,
    origin: Origin | None = None,
) -> Bundle:
    """Write a bundle into ``folder``, sorted by application; forecasters are copied unchanged.

    Parameters
    ----------
    folder : Path
        Folder to write.
    parts : iterable of BundlePart
        Applications.
    carried_over : Bundle, optional
        Its other applications are copied as they are. Damaged or missing files of one stay so,
        and is refused when that application is used.
    origin : Origin, optional
        Why it is made.

    Raises
    ------
    ModelError
        If the name of an application cannot be the name of a file, or a file cannot be copied.
    """
    facts: dict[str, Any] = {}
    for part in parts:
        name = part.served.name
        if not _NAME.fullmatch(name):
            raise ModelError(f"needs a name of {_NAME_RULE}", name[:_NAME_LIMIT])
        shutil.copytree(part.forecaster, folder / FORECASTERS / name)
        trained_on = {"cell_keys": list(part.cell_keys), "subjects": sorted({*part.subjects})}
        path = folder / TRAINED_ON / f"{name}.json"
        write_json(path, trained_on)
        facts[name] = replace(part.served, trained_on_sha256=sha256_file(path)).to_json()
    if carried_over is not None:
        for name in carried_over.facts.keys() - facts.keys():
            _carry_over(carried_over, name, folder)
            facts[name] = carried_over.facts[name]
    content = {"format": FORMAT, "origin": asdict(origin or Origin())}
    write_json(folder / INDEX, {**content, "apps": dict(sorted(facts.items()))})
    return Bundle.load(folder)


def _carry_over(bundle: Bundle, app: str, folder: Path) -> None:
    """Copy the files of an application, as far as they exist."""
    forecaster, trained_on = bundle.forecaster_folder(app), bundle.trained_on_path(app)
    try:
        if forecaster.is_dir():
            shutil.copytree(forecaster, folder / FORECASTERS / app)
        if trained_on.is_file():
            (folder / TRAINED_ON).mkdir(exist_ok=True)
            shutil.copyfile(trained_on, folder / TRAINED_ON / trained_on.name)
    except OSError as error:
        fix = "give the right to read it, or see `voxcast models rollback --app`"
        raise ModelError(f"{app} cannot be carried over: {error}", bundle.folder, fix) from error
