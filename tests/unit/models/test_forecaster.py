"""The forecaster: files and back, input levels, quantiles in order."""

from pathlib import Path

import numpy as np
import pytest

import planted
from voxcast.errors import ModelError
from voxcast.files import read_json, sha256_file, write_json
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster, calibrate
from voxcast.models.model_files import read_sealed, write_sealed
from voxcast.models.point_model import SlowdownLaw, queries_of
from voxcast.models.selection.cross_validation import Validation
from voxcast.records import TARGETS


def trained(name: str, subjects: int = 10) -> tuple[Forecaster, object, np.ndarray]:
    table = planted.table(subjects)
    volumes = planted.volumes(table)
    params = FAMILIES[name].defaults
    models = {}
    for input_level, family, chosen in (("header", "ridge", FAMILIES["ridge"].defaults),
                                  ("volume", name, params)):  # fmt: skip
        model = point_model.fit(table, volumes, family, chosen, input_level, 0)
        out_of_fold = Validation(table, volumes, 3, 0).out_of_fold(family, chosen, input_level)
        models[input_level] = calibrate(model, table, out_of_fold, 1.5)
    return Forecaster(models), table, volumes


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
