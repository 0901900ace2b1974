"""The forecaster: files and back, levels of knowledge, quantiles in order."""

from pathlib import Path

import numpy as np
import pytest

import planted
from voxcast.errors import ModelError
from voxcast.features.rows import CONTENT
from voxcast.features.table import rows_of
from voxcast.models import point_model
from voxcast.models.families.zoo import FAMILIES
from voxcast.models.forecaster import Forecaster, calibrate
from voxcast.models.selection.cross_validation import Validation
from voxcast.records import TARGETS

SMALL_NET = {**FAMILIES["cnn"].defaults, "width": 4, "epochs": 3}


def trained(name: str, subjects: int = 10) -> tuple[Forecaster, object, np.ndarray]:
    table = planted.table(subjects)
    volumes = planted.volumes(table)
    params = SMALL_NET if name == "cnn" else FAMILIES[name].defaults
    models = {}
    for input_level, family, chosen in (("header", "ridge", FAMILIES["ridge"].defaults),
                                  ("volume", name, params)):  # fmt: skip
        model = point_model.fit(table, volumes, family, chosen, input_level, 0)
        logs = Validation(table, volumes, 3, 0).out_of_fold(family, chosen, input_level)
        models[input_level] = calibrate(model, table, logs, 1.5)
    return Forecaster(models), table, volumes


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_comes_back_from_its_files_with_the_same_answers(
    name: str, tmp_path: Path
) -> None:
    forecaster, table, volumes = trained(name)
    forecaster.save(tmp_path / "model")
    again = Forecaster.load(tmp_path / "model")
    rows, cpus = rows_of(table), table["cpus"].tolist()
    before = forecaster.predict(rows, cpus, list(volumes))
    after = again.predict(rows, cpus, list(volumes))
    for one, other in zip(before, after, strict=True):
        assert one.input_level == other.input_level == "volume"
        for target in TARGETS:
            assert one.quantiles[target] == pytest.approx(other.quantiles[target], rel=1e-6)
            low, middle, high = one.quantiles[target]
            assert 0 < low <= middle <= high
    assert not list((tmp_path / "model").rglob("*.pkl"))


def test_a_header_alone_is_answered_by_the_header_level() -> None:
    forecaster, table, volumes = trained("forest")
    blind = [{k: v for k, v in r.items() if not k.startswith(CONTENT)} for r in rows_of(table)]
    seen = rows_of(table)
    mixed = forecaster.predict([blind[0], seen[1]], [1, 2], [None, volumes[1]])
    assert [p.input_level for p in mixed] == ["header", "volume"]
    assert [p.family for p in mixed] == ["ridge", "forest"]


def test_a_network_without_its_volume_falls_back_to_the_header_level() -> None:
    forecaster, table, _ = trained("cnn")
    assert forecaster.predict(rows_of(table)[:1], [1], [None])[0].input_level == "header"


def test_too_few_subjects_are_said() -> None:
    few, table, volumes = trained("ridge", 10)
    many, *_ = trained("ridge", 19)
    ask = (rows_of(table)[:1], [1], [volumes[0]])
    assert not few.predict(*ask)[0].calibrated
    assert many.predict(*ask)[0].calibrated
    assert few.predict(*ask, lower_quantile=0.2, upper_quantile=0.8)[0].calibrated


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no model"):
        Forecaster.load(tmp_path)


def test_quantiles_out_of_order_are_refused() -> None:
    forecaster, table, volumes = trained("median")
    with pytest.raises(ModelError, match="quantiles"):
        forecaster.predict(
            rows_of(table)[:1], [1], [volumes[0]], lower_quantile=0.6, upper_quantile=0.9
        )


def test_a_model_file_with_a_foreign_type_is_refused(tmp_path: Path) -> None:
    import skops.io

    forecaster, *_ = trained("ridge")
    forecaster.save(tmp_path)
    skops.io.dump({"estimators": [Path("x")], "floor": 0, "scale": "log"},
                  tmp_path / "volume" / "segment" / "tabular.skops")  # fmt: skip
    with pytest.raises(ModelError, match="untrusted"):
        Forecaster.load(tmp_path)


def test_each_application_has_a_law_of_its_own() -> None:
    rows = planted.table(16, apps=("segment", "register"))
    model = point_model.fit(rows, None, "ridge", {**FAMILIES["ridge"].defaults}, "volume", 0)
    errors = np.abs(point_model.predict_table(model, rows, None) - point_model.actual_logs(rows))
    assert set(model.models_by_app) == {"segment", "register"}
    assert errors[:, 0].mean() < 0.02


def test_an_application_never_seen_is_answered_and_said_to_be_beyond() -> None:
    rows = planted.table(12)
    model = point_model.fit(rows, None, "ridge", {**FAMILIES["ridge"].defaults}, "volume", 0)
    asked = {**rows_of(rows)[0], "app": "other"}
    assert model.out_of_range([asked]) == [("app",)]
    assert np.isfinite(model.predict([asked], [1], None)).all()
