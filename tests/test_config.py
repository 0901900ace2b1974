"""``params.yaml``: drift from ``conf/``, strict loading, the groups that people compose."""

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from voxcast import config
from voxcast.campaigns.sweeps import Sweep
from voxcast.errors import ConfigError
from voxcast.quantities import format_bytes, parse_bytes, parse_seconds, slurm_bytes
from voxcast.records import App

PROJECT = Path(__file__).parents[1]


def composed(tmp_path: Path, *overrides: str) -> config.Config:
    out = tmp_path / "params.yaml"
    config.compose(out, list(overrides), PROJECT / "conf")
    return config.load(out)


def test_params_have_not_drifted_from_conf() -> None:
    assert not config.drifts(PROJECT / "params.yaml", PROJECT / "conf"), "run `make params`"


def test_drift_is_noticed(tmp_path: Path) -> None:
    text = (
        (PROJECT / "params.yaml").read_text().replace("test_fraction: 0.25", "test_fraction: 0.3")
    )
    (tmp_path / "params.yaml").write_text(text)
    assert config.drifts(tmp_path / "params.yaml", PROJECT / "conf")


@pytest.mark.parametrize("campaign", ["smoke", "tiny", "full"])
@pytest.mark.parametrize(
    "images", ["images=cohort", "images=cohort_reference", "images=bids images.path=x"]
)
def test_every_option_of_every_group_composes(tmp_path: Path, campaign: str, images: str) -> None:
    cfg = composed(tmp_path, f"campaign={campaign}", *images.split())
    assert cfg.campaign.name == campaign
    assert cfg.apps["ants_segment"].phases


@pytest.mark.parametrize(
    ("campaign", "prefix"), [("reference", "r"), ("recorded", "r"), ("second", "s")]
)
def test_a_recorded_campaign_brings_its_images_and_applications_unless_others_are_asked_for(
    tmp_path: Path, campaign: str, prefix: str
) -> None:
    cfg = composed(tmp_path, f"campaign={campaign}")
    assert cfg.images.label_prefix == prefix
    assert {"ants_segment", "ants_register", "tile_segment"} <= set(cfg.apps)
    assert bool(cfg.campaign.history) == (campaign == "recorded")
    assert composed(tmp_path, f"campaign={campaign}", "images=cohort").images.label_prefix == ""


@pytest.mark.parametrize(
    ("base", "fields"),
    [
        ("app/_base", {field.name for field in dataclasses.fields(App)} - {"name"}),
        ("campaign/_base", set(config.CampaignConfig.model_fields)),
        ("campaign/_sweep", {field.name for field in dataclasses.fields(Sweep)} - {"name"}),
    ],
)
def test_a_base_file_holds_every_key(base: str, fields: set[str]) -> None:
    assert set(yaml.safe_load((PROJECT / "conf" / f"{base}.yaml").read_text())) == fields


def test_every_key_of_the_configuration_is_read(tmp_path: Path) -> None:
    composed(tmp_path, "campaign=reference")
    content = yaml.safe_load((tmp_path / "params.yaml").read_text())
    sources = [*(PROJECT / "pipelines").glob("*.py"), *(PROJECT / "src").rglob("*.py")]
    read = {
        node.attr
        for path in sources
        if path.parent.name != "config"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    fields = {"memory": "mem_limit_bytes"}
    assert not {key for key in leaf_keys(content) if fields.get(key, key) not in read}


def leaf_keys(section: dict[str, Any]) -> set[str]:
    """Return the keys below which there is no section; mappings an application fills are none."""
    free = {"parameters", "ranges", "scaled_down", "phase_patterns", "container", "binds"}
    keys: set[str] = set()
    for key, value in section.items():
        inside = value if isinstance(value, list) else [value]
        sections = [part for part in inside if isinstance(part, dict)] if key not in free else []
        for part in sections:
            keys |= leaf_keys(part)
        keys |= set() if sections else {key}
    return keys


@pytest.mark.parametrize("path", sorted((PROJECT / "conf" / "app").glob("[!_]*.yaml")), ids=str)
def test_every_application_can_be_read_alone(path: Path) -> None:
    values = {"version": "1", "argv": ["tool", "{image}"]} if path.stem == "command" else {}
    app = config.load_app(path.parent, path.stem, values)
    assert app.name == path.stem
    assert app.version


def test_one_alone_is_read_as_strictly(tmp_path: Path) -> None:
    assert config.load_device(PROJECT / "conf" / "device", "gpu").gpus == 1
    with pytest.raises(ConfigError, match=r"moon: unknown application; choose from .*dnn_train"):
        config.load_app(PROJECT / "conf" / "app", "moon")
    (tmp_path / "cpu.yaml").write_text("cpu: {node_type: local, cpu: 1}")
    with pytest.raises(ConfigError, match=r"cpu\.yaml: cpu\.cpu: unknown key"):
        config.load_device(tmp_path, "cpu")
    (tmp_path / "gpu.yaml").write_text("cpu: {}")
    with pytest.raises(ConfigError, match="must have the single key gpu"):
        config.load_device(tmp_path, "gpu")


def test_a_budget_is_a_stop_unless_the_cells_were_drawn_to_fill_it(tmp_path: Path) -> None:
    assert composed(tmp_path).campaign.stop_after_s is None
    cfg = composed(tmp_path, "campaign=second", "campaign.budget_s=60")
    assert cfg.campaign.stop_after_s == 60


def test_list_groups_choose_devices(tmp_path: Path) -> None:
    cfg = composed(tmp_path, "device=[cpu]")
    assert {c.device for c in cfg.configurations()} == {"cpu"}
    assert cfg.configurations("gpu") == []


def changed(tmp_path: Path, key: str, value: object) -> Path:
    composed(tmp_path)
    content = yaml.safe_load((tmp_path / "params.yaml").read_text())
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
        ("tune.trials", "many", "tune.trials: needs int"),
        ("tune.trials", True, "tune.trials: needs int"),
        ("tune.families", "ridge", "tune.families: needs a list"),
        ("images.path", "???", "images.path: needs a value"),
        ("tune.folds", 1, "tune.folds: must be at least 2"),
        ("campaign.stall_s", 0, "campaign.stall_s: must be above 0; null for none"),
        ("campaign.time_limit_s", -1, "campaign.time_limit_s: must be above 0"),
        ("app.ants_segment.module", "voxcast.gone", "no such module: voxcast.gone"),
        ("app.ants_segment.argv", ["tool"], "needs a module or argv, and not both"),
        ("tune.families", ["cnn"], "tune.families: needs a family that works without volumes"),
        ("evaluation.test_fraction", 1.5, "evaluation.test_fraction: must be between 0 and 1"),
        ("images.kind", "tapes", "images.kind: 'tapes' is not one of"),
        ("app", [1], "app: needs a mapping"),
        ("device.cpu.cpus", [1, "two"], "device.cpu.cpus[1]: needs int"),
        ("device.cpu.container_engine", "lxc", "device.cpu.container_engine: 'lxc' is not one of"),
        ("campaign.parallel", 0, "campaign.parallel: must be at least 1"),
        ("campaign.budget_s", None, "campaign.sweeps.all.choose: within_budget needs"),
        ("campaign.sweeps", {}, "campaign.sweeps: needs one, or a history"),
        ("campaign.sweeps", {"x": {}}, "campaign.sweeps.x.apps: key is missing"),
        ("images.fixed_grids", [{"first": 1}], "images.fixed_grids[0].every: key is missing"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    path = changed(tmp_path, key, value)
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_key_and_a_missing_file_are_named(tmp_path: Path) -> None:
    composed(tmp_path)
    content = yaml.safe_load((tmp_path / "params.yaml").read_text())
    del content["tune"]["seed"]
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"tune\.seed: key is missing"):
        config.load(tmp_path / "p.yaml")
    with pytest.raises(ConfigError, match="no such file"):
        config.load(tmp_path / "none.yaml")


@pytest.mark.parametrize("override", ["campaign=moon", "tune.trails=3", "nonsense"])
def test_hydra_s_refusals_are_one_line(
    tmp_path: Path,
    override: str,
) -> None:
    with pytest.raises(ConfigError):
        composed(tmp_path, override)


def test_units_are_read_once_and_for_all() -> None:
    assert parse_bytes("8GB") == 8_000_000_000
    assert parse_seconds("02:30") == 9000
    assert slurm_bytes("1.5G") == 1_610_612_736
    assert format_bytes(0) == "0 B"
    for wrong in ("8", "GB", "1.5", "-1GB", "1 elephant", ""):
        with pytest.raises(ConfigError):
            parse_bytes(wrong)
    for parse, wrong in ((parse_bytes, "1e308TB"), (slurm_bytes, "1e308T"),
                         (parse_seconds, "1e306h"), (parse_seconds, "1e400s")):  # fmt: skip
        with pytest.raises(ConfigError, match="infinite"):
            parse(wrong)
