"""Champions beside challengers and beside each other: refitted, or judged as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import planted
from champions import PROMOTION, bundle_of_apps
from voxcast.errors import ModelError
from voxcast.models.selection.cross_validation import Validation
from voxcast.serving.bundle import Bundle, Origin, write_bundle
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.promotion import contender_of
from voxcast.tracking.registry import FOLDER
from voxcast.tracking.versions import compare_versions, roll_back

SUBJECTS = PROMOTION.subjects


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return bundle_of_apps(tmp_path_factory.mktemp("bundle"), SUBJECTS, "segment")


def test_a_champion_whose_runs_are_on_record_is_refitted(bundle: Bundle) -> None:
    table = planted.table(SUBJECTS, apps=("segment",))
    assert len(table) >= PROMOTION.runs
    contender = contender_of(bundle, "segment", table)
    assert contender.fitted is None
    assert contender.rows.all()


@pytest.mark.parametrize("runs_on_record", [0, 1])
def test_a_champion_most_of_whose_runs_are_gone_is_judged_as_it_is(
    bundle: Bundle, runs_on_record: int
) -> None:
    table = planted.table(SUBJECTS, apps=("segment",))
    position = table.groupby("subject").cumcount()
    again = position >= runs_on_record  # the same subjects, measured again under other keys
    table.loc[again, "cell_key"] = "again-" + table.loc[again, "cell_key"]
    contender = contender_of(bundle, "segment", table)
    assert contender.fitted is not None
    assert contender.seen == {*table["subject"]}


SAME, OTHER = ("1", "2"), ("3", "2")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with three versions; version 2 has the model of 1."""
    folder = tmp_path_factory.mktemp("project")
    store = ModelStore.of(folder)
    parts = {
        subjects: bundle_of_apps(folder / str(subjects), subjects, "segment").part("segment")
        for subjects in (20, 26)
    }
    for number, subjects in (("1", 20), ("2", 20), ("3", 26)):
        with store.new_folder() as work:
            origin = Origin("segment")
            store.add(number, write_bundle(Path(work, FOLDER), [parts[subjects]], origin).folder)
    (folder / "params.yaml").touch()
    return folder


def test_versions_with_one_model_are_not_judged(project: Path) -> None:
    validations = {"segment": Validation(planted.table(12, seed=3), None, 3, 0)}

    def compared(numbers: tuple[str, str]) -> Any:
        return compare_versions(project, numbers, validations.copy)["apps"]["segment"]

    assert compared(SAME) == {"same_forecaster": True}
    assert compared(SAME[::-1]) == {"same_forecaster": True}
    assert compared(OTHER) != {"same_forecaster": True}


def test_a_model_does_not_replace_itself(project: Path) -> None:
    ModelStore.of(project).point("2")
    with pytest.raises(ModelError, match="version 1: has the champion's forecaster of segment"):
        roll_back(project, "1", "segment")
