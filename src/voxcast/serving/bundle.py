"""The registered model's files: a forecaster for each application, and the facts that it serves.

A bundle is a folder::

    bundle.json                   facts by application, see `ServedApp`
    forecasters/APP/              written by `voxcast.models.forecaster.Forecaster.save`
    trained_on/APP.json           cell keys and subjects of the runs it learned from

Only ``bundle.json`` is read when a bundle is opened; a forecaster is read when it is first needed.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, UnlearnedError
from voxcast.files import read_json, sha256_folder, write_json
from voxcast.records import Configuration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from voxcast.models.forecaster import Forecaster

FORMAT = 1
FOLDER = "bundle"  # name of the folder among the model's files
INDEX = "bundle.json"
FORECASTERS = "forecasters"
TRAINED_ON = "trained_on"
REPAIR = "`voxcast models rollback` returns to an older version, `voxcast learn` trains again"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Promotion:
    """What a forecaster is, what it learned from, and why it was promoted.

    Attributes
    ----------
    family, params
        The recipe, see `voxcast.models.selection.recipes`.
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
        Grid sizes, see `voxcast.images.volumes`.
    forecaster_sha256 : str
        Hash of the forecaster's folder, checked when it is read.
    promotion : Promotion
        What the forecaster is and why it is here.
    host_classes : tuple of str
        Machines on which the runs were measured, see `voxcast.profiling.host.host_class`; empty
        where a bundle does not have them.
    measured : tuple of (device, CPUs, GPUs)
        Allocations of the runs; empty where a bundle does not have them.
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

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form, without the name."""
        return {
            "parameters": self.parameters,
            "configurations": [c.to_record() for c in self.configurations],
            "coarse_points": self.coarse_points,
            "network_points": self.network_points,
            "forecaster_sha256": self.forecaster_sha256,
            "promotion": asdict(self.promotion),
            "host_classes": list(self.host_classes),
            "measured": [list(allocation) for allocation in self.measured],
        }

    @classmethod
    def from_json(cls, name: str, content: dict[str, Any]) -> ServedApp:
        """Read what `to_json` returned."""
        configurations = [
            Configuration(c["device"], c["cpus"], c["gpus"]) for c in content["configurations"]
        ]
        promotion = Promotion(**content["promotion"])
        facts = {
            "configurations": configurations,
            "promotion": promotion,
            "host_classes": tuple(content.get("host_classes", ())),
            "measured": tuple(tuple(allocation) for allocation in content.get("measured", ())),
        }
        return cls(name, **{**content, **facts})


@dataclass(frozen=True)
class BundlePart:
    """One application of a bundle that is to be written.

    ``forecaster`` is the folder to copy; ``cell_keys`` and ``subjects`` are those of the runs that
    it learned from. Subjects are kept apart: they are measured again under other keys.
    """

    served: ServedApp
    forecaster: Path
    cell_keys: Sequence[str]
    subjects: Sequence[str]


@dataclass(frozen=True)
class Bundle:
    """The applications of a registered model; see `Bundle.load`."""

    folder: Path
    apps: dict[str, ServedApp]
    _forecasters: dict[str, Forecaster] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, folder: Path) -> Bundle:
        """Read ``bundle.json``.

        Raises
        ------
        ModelError
            If it is missing, damaged, or of another release.
        """
        path = folder / INDEX
        if not path.is_file():
            raise ModelError("contains no model of this release", folder, "run `voxcast learn`")
        try:
            content = read_json(path)
            if content["format"] != FORMAT:
                raise ModelError("was written by another release", path, "run `voxcast learn`")
            apps = {
                name: ServedApp.from_json(name, facts) for name, facts in content["apps"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"is damaged: {error!r}", path, REPAIR) from None
        for name in apps:
            if not _NAME.fullmatch(name):  # a name becomes a path
                raise ModelError(f"is damaged: {name!r} is no name", path, REPAIR)
        if not apps:
            raise ModelError("is damaged: it has no application", path, REPAIR)
        return cls(folder, apps)

    def app_named(self, name: str | None) -> ServedApp:
        """Return the facts of an application; None stands for the only one.

        Raises
        ------
        UnlearnedError
            If there is no such application.
        ModelError
            If none is named and there are several.
        """
        names = ", ".join(self.apps)
        if name is None and len(self.apps) > 1:
            raise ModelError("which application? The model has several", "app", f"one of {names}")
        served = next(iter(self.apps.values())) if name is None else self.apps.get(name)
        if served is None:
            raise UnlearnedError(f"unknown application; the model has {names}", name)
        return served

    def forecaster(self, app: str) -> Forecaster:
        """Return the forecaster of an application, read on the first call.

        Raises
        ------
        ModelError
            If its files are not those that were registered.
        """
        if app not in self._forecasters:
            from voxcast.models.forecaster import Forecaster

            if not self.is_intact(app):
                folder = self.forecaster_folder(app)
                raise ModelError("is not the model that was registered", folder, REPAIR)
            self._forecasters[app] = Forecaster.load(self.forecaster_folder(app))
        return self._forecasters[app]

    def is_intact(self, app: str) -> bool:
        """Whether the forecaster's files have the hash that was recorded."""
        folder = self.forecaster_folder(app)
        return folder.is_dir() and sha256_folder(folder) == self.apps[app].forecaster_sha256

    def forecaster_folder(self, app: str) -> Path:
        """Return the folder of a forecaster."""
        return self.folder / FORECASTERS / app

    def cell_keys(self, app: str) -> list[str]:
        """Return the cell keys of the runs that a forecaster learned from."""
        return self._trained_on(app, "cell_keys")

    def subjects(self, app: str) -> list[str]:
        """Return the subjects that a forecaster learned from, sorted."""
        return self._trained_on(app, "subjects")

    def _trained_on(self, app: str, key: str) -> list[str]:
        path = self.folder / TRAINED_ON / f"{app}.json"
        try:
            return [str(value) for value in read_json(path)[key]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"is damaged: {error!r}", path, REPAIR) from None

    def part(self, app: str) -> BundlePart:
        """Return an application as a part of another bundle."""
        return BundlePart(
            self.apps[app], self.forecaster_folder(app), self.cell_keys(app), self.subjects(app)
        )


def write_bundle(folder: Path, parts: Iterable[BundlePart]) -> Bundle:
    """Write a bundle into ``folder``, sorted by application; forecasters are copied unchanged.

    Raises
    ------
    ModelError
        If the name of an application cannot be the name of a file.
    """
    by_name = {part.served.name: part for part in parts}
    for name, part in sorted(by_name.items()):
        if not _NAME.fullmatch(name):
            raise ModelError("needs a name of letters, digits, and . _ -", name)
        shutil.copytree(part.forecaster, folder / FORECASTERS / name)
        trained_on = {"cell_keys": list(part.cell_keys), "subjects": sorted({*part.subjects})}
        write_json(folder / TRAINED_ON / f"{name}.json", trained_on)
    apps = {name: by_name[name].served.to_json() for name in sorted(by_name)}
    write_json(folder / INDEX, {"format": FORMAT, "apps": apps})
    return Bundle.load(folder)
