"""A champion beside a challenger: refitted where its runs are on record, else judged as it is."""

import pytest

import planted
from champions import PROMOTION, bundle_of_apps
from voxcast.serving.bundle import Bundle
from voxcast.tracking.challengers import contender_of

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
