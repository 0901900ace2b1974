"""``params.yaml``: drift from ``conf/``, strict loading, the groups that people compose."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from voxcast import config
from voxcast.errors import ConfigError
from voxcast.measure.plan import Sweep
from voxcast.quantities import (
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_seconds,
    slurm_bytes,
)
from voxcast.records import App, of_fields

PROJECT = Path(__file__).parents[2]


def composed(tmp_path: Path, *overrides: str) -> config.Config:
    out = tmp_path / "params.yaml"
    config.compose(out, list(overrides), PROJECT / "conf")
    return config.load(out)


def test_params_have_not_drifted_from_conf() -> None:
    assert not config.drifts(PROJECT / "params.yaml", PROJECT / "conf"), "run `make params`"


def test_drift_is_detected(tmp_path: Path) -> None:
    text = (
        (PROJECT / "params.yaml").read_text().replace("test_fraction: 0.25", "test_fraction: 0.3")
    )
    (tmp_path / "params.yaml").write_text(text)
    assert config.drifts(tmp_path / "params.yaml", PROJECT / "conf")


@pytest.mark.parametrize(
    ("campaign", "images"),
    [
        ("smoke", "images=cohort"),
        ("tiny", "images=cohort_reference"),
        ("tiny", "images=cohort_reference2"),
        ("full", "images=bids images.path=x"),
    ],
)
def test_every_option_of_every_group_composes(tmp_path: Path, campaign: str, images: str) -> None:
    cfg = composed(tmp_path, f"campaign={campaign}", *images.split())
    assert cfg.campaign.name == campaign
    assert cfg.apps["ants_segment"].phases


@pytest.mark.parametrize(
    ("base", "fields"),
    [
        ("app/_base", {f.name for f in dataclasses.fields(App) if not f.metadata} - {"name"}),
        ("campaign/_base", {f.name for f in dataclasses.fields(config.CampaignConfig)}),
        ("campaign/_sweep", {field.name for field in dataclasses.fields(Sweep)} - {"name"}),
    ],
)
def test_a_base_file_holds_every_key(base: str, fields: set[str]) -> None:
    assert set(yaml.safe_load((PROJECT / "conf" / f"{base}.yaml").read_text())) == fields


def test_how_an_application_is_split_is_optional_and_checked(tmp_path: Path) -> None:
    values = {
        "version": "1",
        "argv": ["tool"],
        "input": "none",
        "parameters": {"folds": 5, "some": ""},
    }
    conf = PROJECT / "conf" / "app"
    plain = config.load_app(conf, "command", values)
    assert plain.split == {}
    split = {"count": "folds", "range": "some"}
    app = config.load_app(conf, "command", {**values, "split": split})
    assert app == dataclasses.replace(plain, split=split)
    assert of_fields(App, json.loads(json.dumps(dataclasses.asdict(app)))) == app
    for wrong, message in (
        ({"count": "folds"}, "needs count and range"),
        ({**split, "range": "fold"}, "unknown parameter fold"),
    ):
        with pytest.raises(ConfigError, match=message):
            config.load_app(conf, "command", {**values, "split": wrong})


def leaf_keys(section: dict[str, Any]) -> set[str]:
    """Return the keys below which there is no section; mappings an application fills are none."""
    free = {
        "parameters", "ranges", "scaled_down", "phase_drivers", "phase_patterns",
        "container", "binds",
    }  # fmt: skip
    keys: set[str] = set()
    for key, value in section.items():
        inside = value if isinstance(value, list) else [value]
        sections = [part for part in inside if isinstance(part, dict)] if key not in free else []
        for part in sections:
            keys |= leaf_keys(part)
        keys |= set() if sections else {key}
    return keys


@pytest.mark.parametrize("path", sorted((PROJECT / "conf" / "app").glob("[!_]*.yaml")), ids=str)
def test_every_application_is_the_same_when_read_alone(tmp_path: Path, path: Path) -> None:
    values = {"version": "1", "argv": ["tool", "{image}"]} if path.stem == "command" else {}
    app = config.load_app(path.parent, path.stem, values)
    assert app.name == path.stem
    assert app.version
    if path.stem != "command":
        assert app == composed(tmp_path, f"app=[{path.stem}]").apps[path.stem]


def test_a_single_file_is_validated_as_strictly(tmp_path: Path) -> None:
    assert config.load_device(PROJECT / "conf" / "device", "gpu").gpus == 1
    with pytest.raises(ConfigError, match=r"moon: unknown application; choose from .*dnn_train"):
        config.load_app(PROJECT / "conf" / "app", "moon")
    (tmp_path / "cpu.yaml").write_text("cpu: {node_type: local, cpu: 1}")
    with pytest.raises(ConfigError, match=r"cpu\.yaml: cpu\.cpu: unknown key"):
        config.load_device(tmp_path, "cpu")
    (tmp_path / "gpu.yaml").write_text("cpu: {}")
    with pytest.raises(ConfigError, match="must have the single key gpu"):
        config.load_device(tmp_path, "gpu")


def changed(tmp_path: Path, key: str, value: object) -> Path:
    content = yaml.safe_load((PROJECT / "params.yaml").read_text())
    part = content
    *above, last = key.split(".")
    for name in above:
        part = part[name]
    part[last] = value
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tune.trails", 3, "tune.trails: unknown key"),
        ("tune.trails", 3, "did you mean trials?"),
        ("tune.trials", "many", "tune.trials: must be a whole number"),
        ("tune.trials", True, "tune.trials: must be a whole number"),
        ("tune.families", "ridge", "tune.families: must be a list"),
        ("images.path", "???", "images.path: needs a value"),
        ("tune.folds", 1, "tune.folds: must be at least 2"),
        ("campaign.stall_s", 0, "campaign.stall_s: must be above 0, not 0"),
        ("campaign.time_limit_s", -1, "campaign.time_limit_s: must be above 0"),
        ("app.ants_segment.module", "voxcast.gone", "no such module: voxcast.gone"),
        ("app.ants_segment.argv", ["tool"], "needs a module or argv, and not both"),
        ("tune.families", ["cnn"], "tune.families: needs a family that works without volumes"),
        ("evaluation.test_fraction", 1.5, "evaluation.test_fraction: must be below 1"),
        ("images.kind", "tapes", "images.kind: must be 'cohort', 'varied_cohort' or 'bids'"),
        ("app.ants_segment.characteristics", ["mass"],
         "app.ants_segment.characteristics: mass: unknown characteristic; choose from "),
        ("app", [1], "app: must be a mapping"),
        ("device.cpu.cpus", [1, "two"], "device.cpu.cpus[1]: must be a whole number"),
        ("device.cpu.container_engine", "lxc", "container_engine: must be 'none', 'apptainer'"),
        ("campaign.parallel", 0, "campaign.parallel: must be at least 1"),
        ("campaign.sweeps", {}, "campaign: needs sweeps, or a history"),
        ("campaign.sweeps", {"x": {}}, "campaign.sweeps.x.apps: key is missing"),
        ("device.cpu.runtime", "docker", "unknown key, choose from"),
        ("campaign.sweeps", [{"x": 1}], "campaign.sweeps: must be a mapping"),
        ("tune.trials", {"x": [1]}, "tune.trials: must be a whole number"),
        ("app", {"fs-7.4": {"version": "1", "argv": ["{image}"]}},
         "name of an application cannot contain a dot: fs-7.4"),
        ("app", {"nb": {}}, "app.nb.version: key is missing; run `python -m voxcast.config`"),
        ("evaluation.test_fraction", 0, "evaluation.test_fraction: must be above 0"),
        ("evaluation.lower_quantile", 0, "evaluation.lower_quantile: must be above 0"),
        ("evaluation.upper_quantile", 1, "evaluation.upper_quantile: must be below 1"),
        ("images.fixed_grids", [{"first": 1}], "images.fixed_grids[0].every: key is missing"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_and_key(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    path = changed(tmp_path, key, value)
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_missing_keys_and_files_are_reported(tmp_path: Path) -> None:
    content = yaml.safe_load((PROJECT / "params.yaml").read_text())
    del content["tune"]["seed"]
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"tune\.seed: key is missing"):
        config.load(tmp_path / "p.yaml")
    with pytest.raises(ConfigError, match="no such file"):
        config.load(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1\nc: 2\n", "params.yaml, line 3: not YAML: expected ',' or ']'"),
        ("a: 1\na: 2\n", "params.yaml, line 1: not YAML: found duplicate key a"),
        ("a: &a\n  b: *a\n", "params.yaml: has a value that JSON has not: maximum recursion"),
        ("a: \x00\n", "params.yaml: not YAML: unacceptable character"),
    ],
)
def test_a_file_that_is_not_yaml_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def app_file(folder: Path, name: str, content: str) -> Path:
    shutil.copytree(PROJECT / "conf", folder / "conf")
    path = folder / "conf" / "app" / f"{name}.yaml"
    path.write_text(f"defaults: [_base@{name}, _self_]\n{name}:\n{content}")
    return path


def test_a_reference_that_cannot_be_composed_is_one_line(tmp_path: Path) -> None:
    app_file(tmp_path, "awk", "  version: '1'\n  argv: [sh, -c, 'echo ${{x}} {image}']\n")
    with pytest.raises(ConfigError, match="without a valid reference to a key; write"):
        config.compose(tmp_path / "params.yaml", ["app=[awk]"], tmp_path / "conf")


def test_a_file_that_refers_to_itself_is_one_line(tmp_path: Path) -> None:
    path = app_file(tmp_path, "nb", "")
    path.write_text("nb: &a\n  version: *a\n")
    with pytest.raises(ConfigError, match="recursion"):
        config.load_app(path.parent, "nb")
    with pytest.raises(ConfigError, match="refers to itself, or is nested too deeply"):
        config.compose(tmp_path / "p.yaml", ["app=[nb]"], tmp_path / "conf")


def test_a_broken_file_of_conf_is_named_with_its_line(tmp_path: Path) -> None:
    path = app_file(tmp_path, "broken", "  version: [1\n  argv: 1\n")
    for read in (
        lambda: config.load_app(path.parent, "broken"),
        lambda: config.compose(tmp_path / "p.yaml", ["app=[broken]"], tmp_path / "conf"),
    ):
        with pytest.raises(ConfigError, match=r"conf/app/broken\.yaml, line \d: not YAML: exp"):
            read()


def test_units_are_parsed_and_formatted() -> None:
    assert parse_bytes("8GB") == 8_000_000_000
    assert parse_seconds("02:30") == 9000
    for duration_s in (95.0, 8040.0, 360_000.0):
        assert parse_seconds(format_seconds(duration_s)) == duration_s
    assert (parse_seconds("1h30m"), parse_seconds("5m"), parse_seconds("1D 2H")) == (
        5400,
        300,
        93_600,
    )
    for wrong in ("300", "1h30", "30min1h", "1h1h", "1h-30min", "1.5h30min"):
        with pytest.raises(ConfigError, match="write a number and a unit: 90s, 30min"):
            parse_seconds(wrong)
    assert slurm_bytes("1.5G") == 1_610_612_736
    assert format_bytes(0) == "0 B"
    for wrong in ("8", "GB", "1.5", "-1GB", "1 elephant", ""):
        with pytest.raises(ConfigError):
            parse_bytes(wrong)
    for parse, wrong in ((parse_bytes, "1e308TB"), (slurm_bytes, "1e308T"),
                         (parse_seconds, "1e306h"), (parse_seconds, "1e400s")):  # fmt: skip
        with pytest.raises(ConfigError, match="infinite"):
            parse(wrong)
