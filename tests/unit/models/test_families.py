"""Families of models: the encoder, formulas, laws, phases, and the pretrained network."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeRegressor

import network_trunk
import planted
from network_trunk import examples_of
from voxcast.errors import ModelError
from voxcast.features.phase_labels import COLUMN
from voxcast.features.rows import Row
from voxcast.files import sha256_file
from voxcast.images.network_volume import POINTS, read_stacked, volume_dtype
from voxcast.models import point_model
from voxcast.models.families.encoder import MAXIMUM_ENCODED, Encoder
from voxcast.models.families.family import FAMILIES
from voxcast.models.families.formulas import (
    BLOCK_ROWS,
    LogSum,
    PhaseTime,
    formula_of,
    predicted_columns,
)
from voxcast.models.families.network import FACTS_FILE, WEIGHTS_FILE, read_trunk, write_trunk
from voxcast.models.families.regressors import AdditiveLaw
from voxcast.models.families.trunk import (
    OTHERS,
    PACKAGED,
    VolumeTrunk,
    accuracy,
    pretrain,
    pretrained,
)
from voxcast.models.model_files import read_sealed, write_sealed
from voxcast.models.out_of_range import TrainingRange
from voxcast.models.point_model import PointModel, predict_table
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.learning import learn
from voxcast_apps.heads.grids import Sizes
from voxcast_apps.heads.recipe import draw_recipe, draw_varied_recipe

# Matrices recorded before scikit-learn's transformers came in.
RECORDED = json.loads(Path(__file__).with_name("encoder_matrices.json").read_text())


def test_rows_out_of_range_are_flagged() -> None:
    rows = [
        {"app": "a", "header.megavoxels": 1.0, "parameter.n": 5.0, "allocation.log2_cpus": 0.0},
        {"app": "a", "header.megavoxels": 4.0, "parameter.n": 5.0, "allocation.log2_cpus": 1.0},
    ]
    covered = TrainingRange.fit(rows, content=False)
    assert covered.outside(rows) == [()] * len(rows)
    assert covered.outside([{**rows[0], "header.megavoxels": 4.9}]) == [()]
    assert covered.outside([{**rows[0], "header.megavoxels": 5.1}]) == [("header.megavoxels",)]
    assert covered.outside([{**rows[0], "parameter.n": 6.0}]) == [("parameter.n",)]
    other = {**rows[0], "allocation.log2_cpus": 6.0, "app": "b"}
    assert covered.outside([other]) == [("allocation.log2_cpus", "app")]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"])
def test_matrices_are_those_of_the_first_encoder(case: dict, tmp_path: Path) -> None:
    encoder = Encoder.fit(case["train"], content=case["content"], only=case["only"])
    encoder.save(tmp_path)
    queries = [{k: np.inf if v == "inf" else v for k, v in row.items()} for row in case["queries"]]
    for each in (encoder, Encoder.load(tmp_path)):
        assert each.columns == case["columns"]
        assert each.transform(case["train"]).tolist() == case["train_matrix"]
        assert each.transform(queries).tolist() == case["matrix"]
    covered = TrainingRange.fit(case["train"], content=case["content"])
    for range_ in (covered, TrainingRange.from_json(json.loads(json.dumps(covered.to_json())))):
        assert [list(names) for names in range_.outside(queries)] == case["out_of_range"]


def test_of_a_heavy_tailed_column_only_the_logarithm_is_used_for_logarithms() -> None:
    sizes = [0.0] * 30 + [10.0**n for n in range(10)]
    rows = [
        {"column.size": size, "column.log size": float(np.arcsinh(size)), "column.cpus": n % 4}
        for n, size in enumerate(sizes)
    ]
    assert Encoder.fit(rows, content=False).numbers == (
        "column.cpus", "column.log size", "column.size",
    )  # fmt: skip
    encoder = Encoder.fit(rows, content=False, on_logs=True)
    assert encoder.numbers == ("column.cpus", "column.log size")
    covered = TrainingRange.fit(rows, content=False)
    assert covered.outside([{**rows[-1], "column.size": 1e10}]) == [("column.size",)]


LEVELS, ROWS = 80, 1200


def drawn(seed: int = 0, noise: float = 0.1) -> tuple[list[dict], np.ndarray, np.ndarray]:
    """Return rows, logarithms of a target, and the effect of each row's level."""
    rng = np.random.default_rng(seed)
    effects, level = rng.normal(0, 1, LEVELS), rng.integers(0, LEVELS, ROWS)
    # Rows of a level are of similar sizes: the mean of a level is not its effect.
    size = rng.normal(0, 1, LEVELS)[level] + rng.normal(0, 1, ROWS)
    logs = 2 * size + effects[level] + rng.normal(0, noise, ROWS)
    rows = [
        {"column.tool": f"t{n}", "column.size": float(x)} for n, x in zip(level, size, strict=True)
    ]
    return rows, logs[:, None], effects[level]


@pytest.mark.parametrize("seed", range(3))
def test_effects_are_apart_from_those_of_other_columns(seed: int) -> None:
    rows, logs, effects = drawn(seed)
    encoder, matrix = Encoder.fit(rows, content=False).with_effects(rows, logs, list(range(ROWS)))
    assert encoder.columns[-1] == "column.tool effect 0"
    assert matrix.shape == (ROWS, len(encoder.columns)) == encoder.transform(rows).shape
    for column in (matrix[:, -1], encoder.transform(rows)[:, -1]):
        difference = column - effects
        assert np.std(difference) < 0.15
        assert np.corrcoef(column, effects)[0, 1] > 0.98


def test_a_row_has_no_effect_of_its_own_label_or_group() -> None:
    rows, logs, _ = drawn(2)
    groups = np.arange(ROWS) // 2
    changed = logs.copy()
    changed[groups == 7] += 50.0
    before, after = (
        Encoder.fit(rows, content=False).with_effects(rows, y, groups.tolist())[1][:, -1]
        for y in (logs, changed)
    )
    np.testing.assert_array_equal(before[groups == 7], after[groups == 7])


def test_an_effect_that_only_its_group_tells_is_not_used_in_other_rows() -> None:
    rows, logs, _ = drawn(3)
    encoder, matrix = Encoder.fit(rows, content=False).with_effects(
        rows, logs, [row["column.tool"] for row in rows]
    )
    assert not matrix[:, -1].any()
    assert not encoder.transform(rows)[:, -1].any()


def test_levels_without_a_column_are_seen_and_others_are_not(tmp_path: Path) -> None:
    rows, logs, _ = drawn()
    encoder, _ = Encoder.fit(rows, content=False).with_effects(rows, logs, list(range(ROWS)))
    assert len(encoder.categories[0]) == MAXIMUM_ENCODED
    encoder.save(tmp_path)
    new = {**rows[0], "column.tool": "bought later"}
    assert TrainingRange.fit(rows, content=False).outside([*rows, new]) == [
        *[()] * ROWS, ("column.tool",),
    ]  # fmt: skip
    for each in (encoder, Encoder.load(tmp_path)):
        assert each.transform([new])[0, -1] == 0.0
        np.testing.assert_array_equal(each.transform(rows), encoder.transform(rows))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    Encoder.fit(drawn()[0], content=False).save(tmp_path)
    content = read_sealed(tmp_path / "encoder.json")
    write_sealed(tmp_path / "encoder.json", {**content, "unheard_of": 1})
    with pytest.raises(ModelError, match="not an encoder"):
        Encoder.load(tmp_path)


def test_what_no_training_row_lacks_is_out_of_range_where_it_is_missing() -> None:
    rows = [
        {"column.size": 1.0 + n, "column.gap": None if n == 3 else 1.0, "column.tool": "ab"[n % 2],
         "column.note": None if n == 4 else "x", "column.fixed": 2.0,
         "content.foreground_megavoxels": 1.0 + n, "content.noise_ratio": 0.1 * n}
        for n in range(12)
    ]  # fmt: skip
    lacking = [{**rows[0], name: None} for name in rows[0]]
    missing = [(name,) for name in rows[0]]
    volume = TrainingRange.fit(rows, content=True).outside(lacking)
    assert volume == [
        names if names[0] not in ("column.gap", "column.note", "content.noise_ratio") else ()
        for names in missing
    ]
    # At the level of the header no question has content.
    header = TrainingRange.fit(rows, content=False).outside(lacking)
    assert header == [
        names if names[0] in ("column.size", "column.tool", "column.fixed") else ()
        for names in missing
    ]


RELATIVE_ERROR = 1e-9
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ridge": [{"products": True}, {"scale": "log", "columns": "all"}],
    "boosted": [{"alpha": 1e4}, {"max_leaf_nodes": 31, "min_samples_leaf": 2}],
    "mlp": [{"layers": 2}],
    "gaussian_process": [{"linear": False}, {"noise": 1e-3}, {"linear": False, "each": True}],
    "extra_trees": [{"max_features": 0.3, "min_samples_leaf": 3}],
}
CASES = [
    (name, {**family.defaults, **changes})
    for name, family in FAMILIES.items()
    if family.estimator is not None and name != "law"  # which is a formula itself
    for changes in ({}, *VARIANTS.get(name, []))
]


def random_rows(seed: int, count: int) -> list[Row]:
    """Return rows of very different scales, with missing numbers and categories."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for _ in range(count):
        size = float(rng.uniform(0.5, 40))
        row: Row = {
            "app": "segment",
            "parameter.mode": str(rng.choice(["fast", "slow", "exact"])),
            "header.megavoxels": size,
            "header.log_voxels": float(np.log(1e6 * size)),
            "content.foreground_megavoxels": size * float(rng.uniform(0.1, 0.6)),
            "allocation.log2_cpus": float(rng.integers(0, 4)),
            "parameter.bytes": float(rng.integers(1, 10)) * 1e9,
        }
        if rng.random() < 0.7:
            row["content.noise_ratio"] = float(rng.uniform(0.001, 0.1))
        rows.append(row)
    return rows


def matrices() -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Return columns, training matrix, two outputs, and queries of several blocks."""
    rows = random_rows(0, 90)
    encoder = Encoder.fit(rows, content=True)
    x = encoder.transform(rows)
    rng = np.random.default_rng(1)
    size = x[:, encoder.columns.index("header.megavoxels")]
    y = np.log(np.column_stack([1 + 3 * size, 2e8 + 8e7 * size])) + rng.normal(0, 0.1, (90, 2))
    queries = random_rows(2, 2 * BLOCK_ROWS + 7)
    queries[0] = {"app": "unheard", "header.megavoxels": 1e3}  # nearly all of it is missing
    queries[1] = {**queries[1], "parameter.mode": "of another release"}
    return encoder.columns, x, y, encoder.transform(queries)


@pytest.mark.parametrize(("name", "params"), CASES, ids=lambda case: str(case))
def test_formulas_predict_what_the_estimators_predict(name: str, params: dict[str, Any]) -> None:
    columns, x, y, queries = matrices()
    family = FAMILIES[name]
    assert family.estimator is not None
    if family.scale(params) != "log":
        y = np.exp(y)
    for output in y.T:
        estimator = family.estimator(params, 0, columns).fit(x, output)
        formula = formula_of(estimator)
        for matrix in (x, queries, queries[:1]):
            if name == "boosted":
                expected = estimator.line_.predict(matrix) + estimator.trees_.predict(matrix)
            elif name == "gaussian_process":
                scaler, process = (step for _, step in estimator.steps)
                expected = process.predict(scaler.transform(matrix))
            else:
                expected = estimator.predict(matrix)
            np.testing.assert_allclose(
                predicted_columns((formula,), matrix)[:, 0], expected, rtol=RELATIVE_ERROR
            )
            np.testing.assert_allclose(formula.predict(matrix[:3]), expected[:3], rtol=1e-9)


def test_the_median_of_no_columns_is_a_constant() -> None:
    estimator = FAMILIES["median"].estimator
    assert estimator is not None
    formula = formula_of(estimator({}, 0, []).fit(np.empty((3, 0)), np.array([1.0, 4.0, 2.0])))
    assert formula.predict(np.empty((2, 0))).tolist() == [2.0, 2.0]


def test_a_tree_of_one_leaf_and_a_value_on_a_threshold() -> None:
    leaf = formula_of(DecisionTreeRegressor().fit(np.zeros((4, 1)), np.full(4, 3.0)))
    assert leaf.predict(np.array([[5.0]])).tolist() == [3.0]
    x = np.array([[0.1], [0.3], [0.7], [0.9]])
    tree = DecisionTreeRegressor(random_state=0).fit(x, np.arange(4.0))
    on_thresholds = tree.tree_.threshold[tree.tree_.children_left >= 0][:, None]
    around = np.vstack([on_thresholds, on_thresholds + 1e-9, on_thresholds - 1e-9])
    assert formula_of(tree).predict(around).tolist() == tree.predict(around).tolist()


COLUMNS = ["allocation.log2_cpus", "content.foreground_megavoxels", "header.megavoxels"]


def rows(count: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return columns, and seconds of 5 + 2 voxels + 8 voxels of the mask, less with more CPUs."""
    rng = np.random.default_rng(seed)
    cpus, voxels = rng.integers(0, 3, count), rng.uniform(0.5, 20, count)
    mask = voxels * rng.uniform(0.1, 0.5, count)
    seconds = (5 + 8 * mask + 2 * voxels) * np.exp(-0.3 * cpus)
    return np.column_stack([cpus, mask, voxels]), seconds * rng.lognormal(0, 0.02, count)


@pytest.mark.parametrize("outliers", [0, 20])
def test_planted_coefficients_are_found_in_spite_of_outliers(outliers: int) -> None:
    x, y = rows()
    y[:outliers] *= 4
    law = AdditiveLaw(COLUMNS).fit(x, y).law_
    assert law.constant == pytest.approx(5, rel=0.1)
    assert law.weights == pytest.approx([8, 2], rel=0.1)
    assert law.powers == pytest.approx([-0.3], abs=0.02)
    far = np.array([[0.0, 100.0, 500.0]])
    assert law.predict(far) == pytest.approx([5 + 800 + 1000], rel=0.05)


def test_no_coefficient_is_negative_and_columns_that_lack_are_left_out() -> None:
    x, y = rows()
    falling = AdditiveLaw(COLUMNS).fit(x, 50 - x[:, 2]).law_
    assert min(falling.constant, *falling.weights) >= 0
    constant = AdditiveLaw(["parameter.steps"]).fit(x[:, :1], y)
    assert constant.law_.predict(x[:5, :1]) == pytest.approx(np.full(5, constant.law_.constant))
    assert y.min() < constant.law_.constant < y.max()


def test_a_size_of_zero_has_a_finite_answer() -> None:
    x, y = rows(20)
    x[0], y = 0.0, x[:, 2]
    law = AdditiveLaw(COLUMNS).fit(x, np.maximum(y, 1e-6)).law_
    assert np.isfinite(law.predict(x)).all()


TARGETS = ("cpu_s", "peak_rss_bytes")


def fitted(table, input_level="volume", **params) -> PointModel:
    params = {**FAMILIES["phases"].defaults, **params}
    return point_model.fit(table, None, "phases", params, input_level, 0, TARGETS)


def terms(model: PointModel) -> dict[str, PhaseTime]:
    regressor = model.members[0].regressor
    formula = regressor.formulas_[0]
    assert isinstance(formula, LogSum)
    return dict(zip(("rest", "segment", "start"), formula.terms, strict=True))


@pytest.mark.parametrize("powers", [True, False])
def test_the_time_of_each_phase_is_found(powers: bool) -> None:
    table = planted.table(40, noise=0.01)
    by_phase = terms(fitted(table, powers=powers))
    assert by_phase["start"].constant == pytest.approx(0.75, rel=0.05)
    assert by_phase["rest"].constant == pytest.approx(0.25, rel=0.05)
    segment = by_phase["segment"]
    usual = np.exp(np.median(table["content.log_foreground_voxels"]))
    assert segment.constant + segment.seconds.sum() == pytest.approx(4e-6 * usual, rel=0.05)
    assert segment.power == pytest.approx(1.0, abs=0.05)


def test_the_sum_continues_far_beyond_the_sizes_that_were_measured() -> None:
    table = planted.table(60)
    size = table["content.foreground_megavoxels"]
    small, large = table[size < size.quantile(0.6)], table[size > size.quantile(0.9)]
    model = fitted(small.reset_index(drop=True))
    errors = predict_table(model, large, None) - np.log(large[list(TARGETS)])
    assert np.abs(errors["cpu_s"]).mean() < 0.03
    ridge = FAMILIES["ridge"].defaults
    assert np.abs(errors["peak_rss_bytes"]).mean() < 0.1
    plain = point_model.fit(small, None, "ridge", {**ridge, "scale": "log"}, "volume", 0, TARGETS)
    others = predict_table(plain, large, None)[:, 0] - np.log(large["cpu_s"])
    assert np.abs(errors["cpu_s"]).mean() < np.abs(others).mean()


def test_runs_without_labels_count_for_the_sum_only() -> None:
    table = planted.table(40)
    table.loc[::3, COLUMN] = ""
    errors = predict_table(fitted(table), table, None) - np.log(table[list(TARGETS)])
    assert np.abs(errors["cpu_s"]).mean() < 0.02


def test_from_the_header_alone_the_grid_stands_for_the_mask() -> None:
    table = planted.table(40)
    model = fitted(table, "header")
    columns = model.members[0].encoder.columns
    segment = terms(model)["segment"]
    assert [columns[n] for n in segment.sizes] == ["header.log_voxels"]


def test_without_labels_the_family_is_left_out_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = planted.table(12)
    families = ("median", "phases")
    with caplog.at_level(logging.INFO):
        validation = Validation(table.drop(columns=COLUMN), None, 3, 0)
        board = learn(validation, families, trials=1)
    assert "phases" not in board.params
    assert "segment: no model by phase" in caplog.text
    assert "phases" in learn(Validation(table, None, 3, 0), families, trials=1).params
    with pytest.raises(ModelError, match="no CPU times by phase"):
        fitted(table.drop(columns=COLUMN))


ROOT = Path(__file__).parents[3]
SIZES = Sizes((30_000, 40_000, 60_000), (24, 96))
REFERENCE = ROOT / "data/history/reference"


@pytest.fixture(scope="module")
def examples():
    recipes = [draw_recipe(3, n, SIZES) for n in range(1, 6)]
    varied = Sizes((30_000, 60_000), (24, 96))
    recipes += [draw_varied_recipe(3, n, varied) for n in range(1, 4)]
    return examples_of(recipes, 16)


def test_the_trunk_of_the_package_is_what_the_stage_writes() -> None:
    weights, facts = read_trunk(PACKAGED)
    assert facts["weights_sha256"] == sha256_file(PACKAGED / WEIGHTS_FILE)
    assert set(facts["images"]) == set(network_trunk.IMAGES)
    for name, images in facts["images"].items():
        choice = network_trunk._images(name)
        assert images["kind"] == choice.kind
        assert images["seed"] == choice.seed
    assert facts["points"] == POINTS
    assert facts["trained_on"] > 200
    expected = {
        name: np.shape(np.atleast_1d(value)) for name, value in VolumeTrunk().weights().items()
    }
    assert {name: array.shape for name, array in weights.items()} == expected
    size_bytes = sum((PACKAGED / name).stat().st_size for name in (WEIGHTS_FILE, FACTS_FILE))
    assert size_bytes < 2e6


def test_no_measured_image_set_has_the_seeds_of_the_trunk() -> None:
    _, facts = read_trunk(PACKAGED)
    seeds = {images["seed"] for images in facts["images"].values()}
    for path in (ROOT / "conf/images").glob("*.yaml"):
        if path.stem not in facts["images"]:
            assert not seeds & {int(line.split()[1]) for line in path.read_text().splitlines()
                                if line.startswith("seed:")}  # fmt: skip


def test_the_mask_of_recorded_volumes_is_estimated() -> None:
    """Half of them within 5 %; the share above the mean alone misses by a sixth."""
    import pandas as pd

    ids, volumes = read_stacked(REFERENCE / "volumes.npz", "")
    images = pd.read_parquet(REFERENCE / "images.parquet").set_index("volume_id").loc[ids]
    assert len(images) == 128
    assert volumes["shape"].prod(axis=1) == pytest.approx(
        images["foreground_voxels"] / images["foreground_fraction"]
    )
    some = slice(None, None, 4)
    estimates = pretrained().estimates(volumes[some])
    errors = 1e6 * estimates["content.foreground_megavoxels"] / images["foreground_voxels"][some]
    assert np.median(np.abs(errors - 1)) < 0.05


def test_examples_know_the_native_mask(examples) -> None:
    assert len(examples.volumes) >= 6
    assert examples.others.shape[1] == len(OTHERS)
    # Blocks of cells hold the whole mask: their mean is its share.
    assert examples.masks.mean(axis=(1, 2, 3)) / 255 == pytest.approx(examples.shares, rel=0.02)


def test_a_tiny_trunk_is_trained_written_and_read(examples, tmp_path: Path) -> None:
    trunk = pretrain(examples, epochs=60, seed=0)
    torch.manual_seed(0)
    before = accuracy(VolumeTrunk().eval(), examples)["spread"]
    assert accuracy(trunk, examples)["spread"] < 0.5 * before
    write_trunk(tmp_path, trunk.weights(), {"seed": 0})
    weights, facts = read_trunk(tmp_path)
    again = VolumeTrunk.of_weights(weights)
    assert facts["seed"] == 0
    for name, values in trunk.estimates(examples.volumes).items():
        # Weights are stored in half precision.
        assert again.estimates(examples.volumes)[name] == pytest.approx(values, rel=0.05, abs=0.05)
    del weights["mask.bias"]
    with pytest.raises(ModelError, match="weights of another network"):
        VolumeTrunk.of_weights(weights)
    (tmp_path / FACTS_FILE).write_text(json.dumps({"seed": 0}))
    with pytest.raises(ModelError, match="damaged"):
        read_trunk(tmp_path)


def test_an_unknown_volume_has_no_estimate(examples) -> None:
    volumes = np.concatenate([examples.volumes[:2], np.zeros(1, volume_dtype(16))])
    for values in pretrained().estimates(volumes).values():
        assert np.isfinite(values).tolist() == [True, True, False]
