"""What moved a prediction, and what a model depends on, on a planted law."""

import re
from dataclasses import replace

import pytest

import planted
from voxcast.features.descriptions import usual
from voxcast.models import point_model
from voxcast.models.explanation import explain, explain_model, law_in_words
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster, calibrate
from voxcast.models.point_model import Query, queries_of
from voxcast.models.selection.cross_validation import Validation


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    table = planted.table(40)
    defaults = FAMILIES["ridge"].defaults
    model = point_model.fit(table, None, "ridge", defaults, "volume", 0)
    out_of_fold = Validation(table, None, 3, 0).out_of_fold("ridge", defaults, "volume")
    return Forecaster({"volume": calibrate(model, table, out_of_fold, 1.5)})


def test_a_law_is_written_with_its_units() -> None:
    table = planted.table(40)
    sizes = table["content.foreground_megavoxels"], 2.0 ** table["allocation.log2_cpus"]
    table["cpu_s"] = (6.0 + 2.5 * sizes[0]) * sizes[1] ** 0.1
    table["peak_rss_bytes"] = 2e8
    model = point_model.fit(table, None, "law", {}, "volume", 0)
    words = law_in_words(
        Forecaster({"volume": calibrate(model, table, model.predict(queries_of(table)), 1.5)})
    )
    assert words["cpu_s"] == "(6.00 s + 2.50 s per million voxels in the foreground) × CPUs^0.10"
    assert words["peak_rss_bytes"] == "200 MB"


def at_medians(forecaster: Forecaster) -> Query:
    query = queries_of(planted.table(40))[0]
    medians = forecaster.medians(query)
    usual_row = {column: usual(column, median) for column, median in medians.items()}
    return Query({**query.features, **usual_row}, 2)


def test_an_unusual_foreground_is_the_first_reason(forecaster: Forecaster) -> None:
    query = at_medians(forecaster)
    medians = forecaster.medians(query)
    megavoxels = medians["content.foreground_megavoxels"]
    query.features["content.foreground_megavoxels"] = 2 * megavoxels
    (first, *others) = explain(forecaster, query)
    assert first.name == "foreground_voxels"
    assert first.factor > 1.2
    assert first.value == pytest.approx(2e6 * megavoxels)
    assert first.usual == pytest.approx(1e6 * megavoxels)
    assert re.fullmatch(
        r"\+\d+ % for [\d.]+ million voxels in the foreground \(usual: [\d.]+ million\)",
        first.text,
    )
    assert not others  # nothing else is unusual


def test_wall_time_of_another_number_of_cpus_follows_the_slowdown_law(
    forecaster: Forecaster,
) -> None:
    query = at_medians(forecaster)
    fewer = {**query.features, "allocation.log2_cpus": 0.0}
    on_one_cpu = replace(query, features=fewer, cpus=1)
    (reason,) = explain(forecaster, on_one_cpu)
    slow, usual_prediction = forecaster.predict([on_one_cpu, query])
    expected = slow.quantiles["runtime_s"][1] / usual_prediction.quantiles["runtime_s"][1]
    assert (reason.name, reason.value, reason.usual) == ("cpus", 1, 2)
    assert reason.factor == pytest.approx(expected)
    assert reason.factor > 1.2
    assert reason.text == f"{100 * (expected - 1):+.0f} % for 1 CPU (usual: 2)"


def test_the_planted_feature_comes_first_and_time_grows_with_it() -> None:
    validation = Validation(planted.table(40), None, 3, 0)
    explanation = explain_model(validation, "ridge", FAMILIES["ridge"].defaults)
    first = explanation.shuffled.iloc[0]
    assert (first["app"], first["feature"]) == ("segment", "foreground_voxels")
    assert first["rise"] > 5 * max(explanation.shuffled["rise"].iloc[1], 0.1)
    dependence = explanation.dependence.query("feature == 'foreground_voxels'")
    assert dependence["factor"].is_monotonic_increasing
    assert dependence["factor"].iloc[3] == pytest.approx(1)


def test_one_run_per_fold_gives_empty_tables() -> None:
    table = planted.table(2).drop_duplicates("subject")
    validation = Validation(table.reset_index(drop=True), None, 2, 0)
    importance = explain_model(validation, "median", FAMILIES["median"].defaults)
    assert importance.shuffled.empty
    assert importance.dependence.empty
    assert list(importance.shuffled) == ["app", "feature", "rise"]
