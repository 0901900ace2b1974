from pathlib import Path

import pytest
import yaml

from voxcast import config
from voxcast.config.campaigns import LearningRequest, compose_request
from voxcast.config.project_files import create_project
from voxcast.errors import ConfigError
from voxcast.images.sources import ImageSelection

TOOL = """
defaults: [_base@tool, _self_]
tool:
  version: "1"
  argv: [tool, "{image}", "{out}"]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    create_project(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    Path("conf/app/tool.yaml").write_text(TOOL)
    return tmp_path / "project"


def learned(**values):
    request = LearningRequest(app="tool", **values)
    return compose_request(request, Path("params.yaml"), Path("params.yaml"))


def test_images_application_time_and_cpus_of_a_request_are_composed(project):
    images = ImageSelection(project.parent / "heads", ("01", "3T"))
    composed = learned(images=images, budget_s=1800.0, cpus=(1, 4))
    assert config.load() == composed
    assert (composed.images.kind, composed.images.participants) == ("bids", ("01", "3T"))
    assert composed.images.path == str(project.parent / "heads")
    assert list(composed.apps) == ["tool"]
    assert [c.label for c in composed.configurations()] == ["cpu, 1 CPU", "cpu, 4 CPUs"]
    assert composed.campaign.budget_s == 1800
    assert composed.campaign.time_limit_s == 3600


def test_without_images_those_of_the_present_configuration_are_used(project):
    present = config.load().images
    assert learned().images == present
    chosen = learned(images=ImageSelection(project, ("a",))).images
    assert learned(budget_s=7200.0).images == chosen


@pytest.mark.parametrize(
    "name", ["a b", "it's", 'a"b', "back\\", "01", "1e3", "null", "a,b", "[x]", "k=v", "ü#!"]
)
def test_any_name_of_a_folder_is_read_as_it_is(project, name):
    folder = project.parent / name
    assert learned(images=ImageSelection(folder, (name,))).images.path == str(folder)
    assert yaml.safe_load(Path("params.yaml").read_text())["images"]["participants"] == [name]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"app": "unheard"}, "unheard: unknown application; choose from"),
        ({"app": "dnn_train"}, "takes no image"),
        ({"budget_s": 0.0}, "must be above zero"),
        ({"budget_s": float("nan")}, "must be above zero"),
        ({"images": ImageSelection(Path("/a/${b}"))}, "holds ${"),
        ({"changes": ("tune.unheard=1",)}, "unheard"),
    ],
)
def test_a_request_that_cannot_be_composed_leaves_the_configuration(project, values, message):
    before = Path("params.yaml").read_bytes()
    with pytest.raises(ConfigError) as refused:
        compose_request(
            LearningRequest(**{"app": "tool"} | values), Path("params.yaml"), Path("params.yaml")
        )
    assert message in str(refused.value)
    assert Path("params.yaml").read_bytes() == before
