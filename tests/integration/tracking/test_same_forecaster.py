"""Two versions with one forecaster are not compared, and none replaces itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import planted
from champions import bundle_of_apps
from registries import connected
from voxcast.errors import ModelError
from voxcast.models.selection.cross_validation import Validation
from voxcast.serving.bundle import Origin, write_bundle
from voxcast.serving.model_store import ModelStore
from voxcast.tracking import registry, runs
from voxcast.tracking.registry import FOLDER
from voxcast.tracking.versions import bundles_to_compare, compare_bundles, difference, roll_back

SAME, OTHER = ("1", "2"), ("3", "2")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with three versions; version 2 has the model of 1."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        session = connected(folder)
        first, other = (
            bundle_of_apps(folder / str(subjects), subjects, "segment").part("segment")
            for subjects in (20, 26)
        )
        for part in (first, first, other):
            with runs.run(session, "final", "ridge final") as run_id:
                pass
            with ModelStore.of(folder).new_folder() as work:
                bundle = write_bundle(Path(work, FOLDER), [part], origin=Origin("segment"))
                registry.register(folder, run_id, bundle.folder)
    (folder / "params.yaml").touch()
    return folder


def changed_fields(project: Path, first: str, second: str) -> dict[str, Any]:
    versions = [ModelStore.of(project).open(number) for number in (first, second)]
    fields: dict[str, Any] = difference(*versions)["apps"]["segment"]["fields"]
    return fields


def test_versions_with_one_model_do_not_differ(project: Path) -> None:
    assert changed_fields(project, *SAME) == changed_fields(project, *reversed(SAME)) == {}
    assert list(changed_fields(project, *OTHER)) == ["forecaster_sha256"]


def test_versions_with_one_model_are_not_judged(project: Path) -> None:
    validations = {"segment": Validation(planted.table(12, seed=3), None, 3, 0)}

    def compared(numbers: tuple[str, str]) -> Any:
        bundles = bundles_to_compare(ModelStore.of(project), numbers)
        return compare_bundles(project, validations, numbers, bundles)["apps"]["segment"]

    assert compared(SAME) == {"same_forecaster": True}
    assert compared(SAME[::-1]) == {"same_forecaster": True}
    assert compared(OTHER) != {"same_forecaster": True}


def test_a_model_does_not_replace_itself(project: Path) -> None:
    registry.set_champion(project, "2")
    with pytest.raises(ModelError, match="version 1: has the champion's forecaster of segment"):
        roll_back(project, "1", "segment")
