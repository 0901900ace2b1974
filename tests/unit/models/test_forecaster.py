"""The forecaster: files and back, damage in one line, quantiles in order, and its reasons."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.errors import ModelError, one_line
from voxcast.features.descriptions import usual
from voxcast.files import read_json, sha256_file, write_json
from voxcast.models import point_model
from voxcast.models.explanation import explain, explain_model, law_in_words
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import CalibratedModel, Forecaster
from voxcast.models.model_files import read_arrays, read_sealed, write_arrays, write_sealed
from voxcast.models.point_model import Query, SlowdownLaw, queries_of
from voxcast.models.selection.cross_validation import Validation
from voxcast.records import TARGETS


def trained(name: str) -> tuple[Forecaster, pd.DataFrame, np.ndarray]:
    table = planted.table(10)
    return planted.fit_forecaster(10, name=name), table, planted.volumes(table)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_predicts_the_same_after_reloading(name: str, tmp_path: Path) -> None:
    forecaster, table, volumes = trained(name)
    forecaster.save(tmp_path / "model")
    again = Forecaster.load(tmp_path / "model")
    queries = queries_of(table, volumes)
    before, after = forecaster.predict(queries), again.predict(queries)
    for forecast, other in zip(before, after, strict=True):
        assert forecast.input_level == other.input_level == "volume"
        for target in TARGETS:
            assert forecast.quantiles[target] == pytest.approx(other.quantiles[target], rel=1e-6)
            low, middle, high = forecast.quantiles[target]
            assert 0 < low <= middle <= high
    assert not list((tmp_path / "model").rglob("*.pkl"))


def test_a_header_alone_uses_the_header_level() -> None:
    forecaster, table, volumes = trained("extra_trees")
    first, second = queries_of(table.head(2), volumes[:2])
    mixed = forecaster.predict([first.header_only(), second])
    assert [p.input_level for p in mixed] == ["header", "volume"]
    assert [p.family for p in mixed] == ["ridge", "extra_trees"]


def test_a_network_without_its_volume_falls_back_to_the_header_level() -> None:
    forecaster, table, _ = trained("cnn")
    assert forecaster.predict(queries_of(table.head(1)))[0].input_level == "header"


def test_quantiles_out_of_order_are_refused() -> None:
    forecaster, table, volumes = trained("median")
    with pytest.raises(ModelError, match="quantiles"):
        forecaster.predict(
            queries_of(table.head(1), volumes[:1]), lower_quantile=0.6, upper_quantile=0.9
        )


def test_a_model_of_another_format_is_refused(tmp_path: Path) -> None:
    forecaster, *_ = trained("ridge")
    forecaster.save(tmp_path)
    models = read_json(tmp_path / "forecaster.json")["models"]
    for content in ({"format": 1, "models": models}, models):  # the first releases had no format
        write_json(tmp_path / "forecaster.json", content)
        with pytest.raises(ModelError, match=r"written by another release; .*voxcast learn"):
            Forecaster.load(tmp_path)


@pytest.mark.parametrize("formulas", [[{"kind": "os.system"}], [{"kind": "linear"}]])
def test_a_formula_of_an_unknown_kind_is_refused(formulas: object, tmp_path: Path) -> None:
    forecaster, *_ = trained("ridge")
    forecaster.save(tmp_path)
    path = tmp_path / "volume" / "ridge" / "regressor.json"
    content = read_sealed(path)
    write_sealed(path, {**content, "formulas": formulas})
    with pytest.raises(ModelError, match="not a regressor"):
        Forecaster.load(tmp_path)


def test_arrays_of_objects_are_refused_and_not_unpickled(tmp_path: Path) -> None:
    forecaster, *_ = trained("ridge")
    forecaster.save(tmp_path)
    folder = tmp_path / "volume" / "ridge"
    names = list(np.load(folder / "regressor.npz"))
    objects = {name: np.array([{"any": "object"}], dtype=object) for name in names}
    np.savez(folder / "regressor.npz", **objects)
    content = read_sealed(folder / "regressor.json")
    content["arrays_sha256"] = sha256_file(folder / "regressor.npz")
    write_sealed(folder / "regressor.json", content)
    with pytest.raises(ModelError, match="contains no arrays: Object arrays"):
        Forecaster.load(tmp_path)


def test_slowdown_falls_back_to_coarser_groups() -> None:
    law = SlowdownLaw.fit([1, 1, 1, 2, 2, 2], ["h"] * 6, [1, 1, 1, 3, 3, 3], [1, 1, 1, 6, 6, 6])
    assert law.ratio(1, "h") == 1
    assert law.ratio(2, "elsewhere") == 0.5
    assert law.ratio(8) == pytest.approx(0.125)  # by the power through 1 and 2 CPUs
    assert law.ratio(4, "h") == pytest.approx(0.25)


def test_more_cpus_never_take_longer_than_measured_nor_less_cpu_time() -> None:
    def law(wall_of_two: float) -> SlowdownLaw:
        return SlowdownLaw.fit([1] * 3 + [2] * 3, [""] * 6, [1] * 3 + [wall_of_two] * 3, [1] * 6)

    assert law(1.5).ratio(8) == pytest.approx(1.5)
    assert law(0.3).ratio(4) == pytest.approx(0.15)
    one = SlowdownLaw.fit([1] * 3, [""] * 3, [2, 2, 2], [1, 1, 1])
    assert one.ratio(4) == 2  # a single number of CPUs tells no power


def test_a_host_with_two_numbers_of_cpus_has_a_line_of_its_own() -> None:
    law = SlowdownLaw.fit(
        ([1] * 3 + [2] * 3) * 2, ["g"] * 6 + ["h"] * 6,
        [2] * 3 + [1] * 3 + [1] * 3 + [0.5] * 3, [1] * 12,
    )  # fmt: skip
    assert law.ratio(4, "g") == pytest.approx(0.5)
    assert law.ratio(4, "h") == pytest.approx(0.25)


MEMBERS = ("extra_trees", "boosted", "cnn")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a blend with a network, and a trend."""
    table = planted.table(6)
    volumes = planted.volumes(table)
    members = {
        name: point_model.fit(table, volumes, name, FAMILIES[name].defaults, "volume", 0)
        for name in MEMBERS
    }
    blend = point_model.blend("voting", members, dict.fromkeys(MEMBERS, (1 / 3,) * 3))
    ridge = planted.calibrated(table)
    forecaster = Forecaster({"volume": CalibratedModel(blend, ridge.calibrators, ridge.model)})
    folder = tmp_path_factory.mktemp("model")
    forecaster.save(folder)
    queries = queries_of(table, volumes)
    predictions = zip(
        forecaster.predict(queries), Forecaster.load(folder).predict(queries), strict=True
    )
    for before, after in predictions:
        assert after.quantiles["cpu_s"] == pytest.approx(before.quantiles["cpu_s"], rel=1e-12)
    return folder


def variants(content: bytes) -> list[bytes]:
    """Return a file cut short, with one byte changed, emptied, and replaced."""
    rng = np.random.default_rng(len(content))
    lengths = [0, 1, len(content) // 2, len(content) - 2]
    damaged = [content[:length] for length in lengths] + [b"null", b"[" * 100_000, b"\xff" * 40]
    for position in rng.integers(0, len(content), 5):
        changed = bytearray(content)
        changed[position] ^= 1 << int(rng.integers(0, 8))
        damaged.append(bytes(changed))
    return damaged


def test_a_file_that_is_damaged_is_named_in_one_line(model: Path) -> None:
    before = read_contents(model)
    for path, content in before.items():
        for damaged in variants(content):
            path.write_bytes(damaged)
            try:
                Forecaster.load(model)
            except ModelError as error:
                message = one_line(error)
                assert len(message) < 500
                assert str(path) in message or "another release" in message
            else:  # white space, or 1E-05 for 1e-05, is no damage
                assert path.suffix == ".json"
                assert json.loads(damaged) == json.loads(content)
        path.unlink()
        with pytest.raises(ModelError, match=r"no such file|contains no model"):
            Forecaster.load(model)
        path.write_bytes(content)
    assert read_contents(model) == before
    Forecaster.load(model)


def read_contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_equal_arrays_are_equal_bytes(tmp_path: Path) -> None:
    arrays = {"0": np.arange(5), "1": np.eye(3)[:, ::2], "2": np.float64(0.1) * np.ones(0)}
    first, second = (write_arrays(tmp_path / name, arrays) for name in ("a.npz", "b.npz"))
    assert first == second
    again = read_arrays(tmp_path / "a.npz", first)
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return Forecaster({"volume": planted.calibrated(planted.table(40))})


def test_a_law_is_written_with_its_units() -> None:
    table = planted.table(40)
    sizes = table["content.foreground_megavoxels"], 2.0 ** table["allocation.log2_cpus"]
    table["cpu_s"] = (6.0 + 2.5 * sizes[0]) * sizes[1] ** 0.1
    table["peak_rss_bytes"] = 2e8
    model = point_model.fit(table, None, "law", {}, "volume", 0)
    words = law_in_words(model)
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
    validation = Validation(planted.table(24), None, 3, 0)
    explanation = explain_model(validation, "ridge", FAMILIES["ridge"].defaults)
    first = explanation.shuffled.iloc[0]
    assert (first["app"], first["feature"]) == ("segment", "foreground_voxels")
    assert first["rise"] > 5 * max(explanation.shuffled["rise"].iloc[1], 0.1)
    dependence = explanation.dependence.query("feature == 'foreground_voxels'")
    assert dependence["factor"].is_monotonic_increasing
    assert dependence["factor"].iloc[3] == pytest.approx(1)
