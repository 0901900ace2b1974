"""Studies see no run that others are judged on, and judging tables are entered in the book."""

from pathlib import Path

import pytest

from voxcast import config
from voxcast.errors import TableError
from voxcast.evaluation.recorded_table import of_app, opened_table, recorded_table
from voxcast.features.phase_labels import labels_of
from voxcast.features.rows import FULL, SPEED_DEVIATION
from voxcast.features.training_table import side
from voxcast.models.openings import read_openings

ROOT = Path(__file__).parents[3]
HISTORY = ROOT / "data/history"


def is_sealed(subject: str) -> bool:
    evaluation = config.load(ROOT / "params.yaml").evaluation
    return side(subject, evaluation.split_seed, evaluation.test_fraction) == "test"


def test_the_subjects_of_the_test_side_are_sealed_from_every_study() -> None:
    everything = recorded_table([HISTORY / "reference"], lambda subject: False)
    app = config.load_app(ROOT / "conf/app", "ants_segment")
    declared, drivers = {app.name: app.characteristics}, {app.name: app.phase_drivers}
    table = recorded_table([HISTORY / "reference"], is_sealed, declared, drivers)
    on_image = table["volume_id"] != ""
    subjects = set(table.loc[on_image, "subject"])
    assert not any(map(is_sealed, subjects))
    all_subjects = set(everything.loc[everything["volume_id"] != "", "subject"])
    assert len(all_subjects - subjects) == 23
    # Runs without an image are in no test table.
    without_image = everything[everything["volume_id"] == ""]
    assert set(table.loc[~on_image, "cell_key"]) == set(without_image["cell_key"])
    assert table[SPEED_DEVIATION].std() > 0
    # Only this application says what drives its phases, and which characteristics it needs.
    assert labels_of(of_app(table, "ants_segment", FULL)) is not None
    assert labels_of(of_app(table, "tile_segment", FULL)) is None
    assert "content.noise_ratio" not in of_app(table, "ants_segment")
    assert "content.noise_ratio" in of_app(table, "tile_segment")
    assert table.index.tolist() == list(range(len(table)))


@pytest.mark.parametrize("batch", ["second", "real"])
def test_a_reserved_batch_is_opened_through_the_book_only(tmp_path: Path, batch: str) -> None:
    with pytest.raises(TableError, match=rf"{batch}: is reserved for judging"):
        recorded_table([HISTORY / batch], is_sealed)
    book = tmp_path / "openings.jsonl"
    runs = opened_table(HISTORY / batch, book, "study real", "abc")
    (opening,) = read_openings(book)
    assert (opening.table, opening.by) == (batch, "study real")
    assert set(opening.subjects) == set(runs["subject"])
    # Its runs are compared with the usual speed in the batches that are learned from.
    assert runs[SPEED_DEVIATION].std() > 0
