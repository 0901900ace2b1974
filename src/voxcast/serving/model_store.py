"""The versions of a project's model: folders that never change, and a pointer to the champion.

::

    models/champion.json    number of the champion; hash and applications of each version
    models/v3/              a bundle, see `voxcast.serving.bundle`

A folder is complete before the file names it, and the file is replaced in one step: a reader gets
the former champion or the new one. Predictions need nothing else; MLflow keeps a copy of each
version, see `voxcast.tracking.registry`. The hashes reveal damaged and planted files; a person who
may write to the whole folder can change both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from voxcast.errors import ModelError, UnlearnedError
from voxcast.files import (
    PARTIAL,
    commit_folder,
    locked,
    remove_folder,
    sha256_file,
    sync_all,
    write_json,
)
from voxcast.models.model_files import read_record
from voxcast.serving.bundle import INDEX, Bundle

MODELS = "models"  # folder of a project
POINTER = "champion.json"
FORMAT = 1
LISTED = "`voxcast models` lists the versions"
REPAIR = "bring back a copy, or fetch the champion from MLflow by `voxcast models pull`"
TRAIN = "train a model with `voxcast learn`"


@dataclass(frozen=True)
class VersionRecord:
    """The record of a version: hash of its ``bundle.json``, and its applications."""

    sha256: str
    apps: tuple[str, ...]


@dataclass(frozen=True)
class Pointer:
    """Content of ``champion.json``: number of the champion, and all versions by number."""

    champion: str | None = None
    versions: dict[str, VersionRecord] = field(default_factory=dict)

    @property
    def numbers(self) -> list[str]:
        """The numbers of all versions, newest first."""
        return sorted(self.versions, key=int, reverse=True)

    def record_of(self, number: str) -> VersionRecord:
        """Return the record of a version.

        Raises
        ------
        ModelError
            If the version does not exist.
        """
        if number not in self.versions:
            listed = ", ".join(self.numbers) or "none"
            raise ModelError(f"no such version; the model has {listed}", f"version {number}")
        return self.versions[number]


@dataclass(frozen=True)
class ModelStore:
    """The versions in a folder ``models``.

    Attributes
    ----------
    folder : Path
        The folder; it need not exist yet.
    """

    folder: Path

    @classmethod
    def of(cls, project: Path) -> ModelStore:
        """Return the store of a project."""
        return cls(project / MODELS)

    def pointer(self) -> Pointer:
        """Read which versions there are; none where nothing was registered yet.

        Raises
        ------
        ModelError
            If the file cannot be read or is damaged.
        """
        return read_record(self.folder / POINTER, FORMAT, _pointer, REPAIR) or Pointer()

    def champion(self) -> str:
        """Return the number of the champion.

        Raises
        ------
        UnlearnedError
            If no version has been registered.
        ModelError
            As `pointer`.
        """
        number = self.pointer().champion
        if number is None:
            raise UnlearnedError("has no champion yet", self.folder, TRAIN)
        return number

    def folder_of(self, number: str) -> Path:
        """Return the folder of a version."""
        return self.folder / f"v{number}"

    def open(self, number: str | None = None) -> Bundle:
        """Open a version, by default the champion; its forecasters are read when they are asked.

        Raises
        ------
        ModelError
            If the version does not exist, or was changed since it was registered.
        """
        number = self.champion() if number is None else number
        sha256 = self.pointer().record_of(number).sha256
        return Bundle.load(self.folder_of(number), sha256, number)

    def current(self) -> Bundle | None:
        """Open the champion; None where nothing was registered yet. Errors as `open`."""
        return None if self.pointer().champion is None else self.open()

    def listed(self) -> list[dict[str, Any]]:
        """Return all versions and their facts, newest first; errors as `pointer`.

        A version that cannot be read has its applications alone, without their facts.
        """
        pointer, rows = self.pointer(), []
        for number in pointer.numbers:
            row: dict[str, Any] = {"version": number, "champion": number == pointer.champion}
            try:
                bundle = self.open(number)
                rows.append({**row, **asdict(bundle.origin), "apps": bundle.summaries()})
            except ModelError:
                rows.append({**row, "apps": dict.fromkeys(pointer.versions[number].apps)})
        return rows

    def new_folder(self) -> TemporaryDirectory[str]:
        """Return a folder in which a bundle is written that `add` moves into its place."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return TemporaryDirectory(dir=self.folder, prefix=PARTIAL)

    def add(self, number: str, bundle: Path) -> None:
        """Make a bundle a version, and that the champion.

        Parameters
        ----------
        number : str
            A number that no version has.
        bundle : Path
            A folder of `new_folder`, which is moved.

        Raises
        ------
        ModelError
            If the bundle cannot be read.
        """
        record = VersionRecord(sha256_file(bundle / INDEX), tuple(Bundle.load(bundle).apps))
        target = self.folder_of(number)
        sync_all(bundle.rglob("*"))
        with locked(self.folder):
            versions = self.pointer().versions
            if number not in versions and target.exists():  # of a process that was killed here
                remove_folder(target)
            commit_folder(bundle, target)
            self._write(Pointer(number, {**versions, number: record}))

    def point(self, number: str) -> None:
        """Make a version the champion; errors as `Pointer.record_of`."""
        with locked(self.folder):
            pointer = self.pointer()
            pointer.record_of(number)
            self._write(Pointer(number, pointer.versions))

    def _write(self, pointer: Pointer) -> None:
        write_json(self.folder / POINTER, {"format": FORMAT, **asdict(pointer)})


def _pointer(content: dict[str, Any]) -> Pointer:
    versions = {
        str(int(number)): VersionRecord(str(record["sha256"]), tuple(record["apps"]))
        for number, record in content["versions"].items()
    }
    champion = None if content["champion"] is None else str(content["champion"])
    if champion not in (None, *versions):
        raise ValueError(f"no version {champion}")
    return Pointer(champion, versions)
