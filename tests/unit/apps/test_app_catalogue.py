import dataclasses
import importlib
import importlib.metadata
import json
import math
import sys
from pathlib import Path

import pytest

from voxcast import config
from voxcast.apps.app import (
    THREAD_VARIABLES,
    app_version,
    command,
    environment,
    scaled_parameters,
)
from voxcast.apps.checks import check_app
from voxcast.errors import ConfigError, RunError
from voxcast.records import App, Configuration

APP = App(name="segment", module="json.tool", version="1", parameters={"classes": 3})
TOOL = App(
    name="tool",
    version="1",
    argv=("tool", "-i", "{image}", "-o={out}/a b", "-n", "{threads}", "{steps}", "{{{device}}}"),
    parameters={"steps": 10, "fast": True, "mode": "x y"},
)
CONTAINED = App(
    name="contained",
    version="1",
    argv=("/run.sh", "{image}", "{out}"),
    container={"cpu": "/images/tool.sif"},
    binds={"/INPUTS": "{inputs}", "/OUTPUTS": "{out}", "/work": "{scratch}", "/key": "/etc/key"},
)
IMAGE = Path("my data/sub-01; rm -rf {out} T1w.nii.gz")
ONE_CPU = Configuration("cpu", 1)
CONF = Path(__file__).parents[3] / "conf" / "app"


def test_a_module_keeps_the_command_line_of_the_built_in_ones():
    argv = command(APP, IMAGE, Path("out"), Configuration("gpu", 2, gpus=1), {"classes": 4})
    assert argv[:4] == [sys.executable, "-P", "-m", "json.tool"]
    options = dict(zip(argv[4::2], argv[5::2], strict=True))
    assert options["--image"] == str(IMAGE)
    assert (options["--threads"], options["--device"]) == ("2", "gpu")
    assert json.loads(options["--parameters"]) == {"classes": 4}
    without = dataclasses.replace(APP, input="none")
    assert "--image" not in command(without, None, Path("out"), ONE_CPU, {})
    with pytest.raises(ConfigError, match="segment: needs an image"):
        command(APP, None, Path("out"), ONE_CPU, {})


def test_a_placeholder_is_substituted_once():
    argv = command(TOOL, IMAGE, Path("out"), Configuration("cpu", 2), TOOL.parameters)
    assert argv == ["tool", "-i", str(IMAGE), "-o=out/a b", "-n", "2", "10", "{cpu}"]
    flags = dataclasses.replace(TOOL, argv=("tool", "{fast}", "{mode}"), input="none")
    assert command(flags, None, Path("out"), ONE_CPU, TOOL.parameters) == ["tool", "true", "x y"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("{imge}", r"tool\.argv: unknown \{imge\}; choose from bids, device, fast, image"),
        ('{"a": 1}', r"a single brace in .*; double it"),
        ("}", "a single brace"),
        ("{}", "a single brace"),
    ],
)
def test_an_unknown_placeholder_is_refused(argument, message):
    with pytest.raises(ConfigError, match=message):
        check_app(dataclasses.replace(TOOL, argv=("tool", "{image}", argument)))


def test_commands_in_a_container_use_container_paths():
    argv = command(
        CONTAINED,
        IMAGE,
        Path("/run/out"),
        Configuration("cpu", 2, container_engine="apptainer"),
        {},
    )
    assert argv[-4:] == ["/images/tool.sif", "/run.sh", f"/INPUTS/{IMAGE.name}", "/OUTPUTS"]
    assert [part for part in argv if part.startswith("--bind=")] == [
        "--bind=/run/inputs:/INPUTS:ro",
        "--bind=/run/out:/OUTPUTS:rw",
        "--bind=/run/scratch:/work:rw",
        "--bind=/etc/key:/key:ro",
    ]
    assert "--env=OMP_NUM_THREADS=2" in argv
    with pytest.raises(
        ConfigError, match=r"and none is chosen; set device\.cpu\.container_engine"
    ):
        command(CONTAINED, IMAGE, Path("/run/out"), ONE_CPU, {})
    gpu = Configuration("gpu", 1, gpus=1, container_engine="apptainer")
    with pytest.raises(ConfigError, match=r"app\.contained\.container\.gpu: no image"):
        command(CONTAINED, IMAGE, Path("/run/out"), gpu, {})


def test_environment_limits_every_library_to_its_threads_and_devices():
    variables = environment(Configuration("cpu", 3))
    fixed = {"CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": ""}
    assert variables == {**dict.fromkeys(THREAD_VARIABLES, "3"), **fixed}
    assert "CUDA_VISIBLE_DEVICES" not in environment(Configuration("gpu", 3, gpus=1))


def test_version_covers_all_dependencies_of_the_application(tmp_path):
    installed = importlib.metadata.version("numpy")
    app = App(name="a", module="a", version="2", packages=("numpy",))
    assert app_version(app) == f"2+numpy{installed}"
    assert app_version(APP) == "1"
    with pytest.raises(RunError, match="pip install no-such-package"):
        app_version(dataclasses.replace(app, packages=("no-such-package",)))
    weights = tmp_path / "weights"
    trained = dataclasses.replace(APP, files=(str(weights),))
    with pytest.raises(RunError, match=r"app\.segment\.files: cannot read .*weights"):
        app_version(trained)
    weights.write_bytes(b"1")
    first = app_version(trained)
    assert first.startswith("1+files")
    weights.write_bytes(b"2")
    assert app_version(trained) != first


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("steps", "five", "needs a whole number"), ("steps", 1.5, "needs a whole number"),
        ("steps", True, "whole number"), ("spacing", math.nan, "needs a number"),
        ("fast", 1, "needs bool"), ("mode", 3, "needs a text"), ("mode", "z", "one of x y, fine"),
    ],
)  # fmt: skip
def test_values_of_another_type_or_none_of_the_choices_are_refused(name, value, message):
    parameters = {**TOOL.parameters, "spacing": 0.0}
    app = dataclasses.replace(TOOL, parameters=parameters, ranges={"mode": ("x y", "fine")})
    with pytest.raises(ConfigError, match=message):
        scaled_parameters(app, "full_scale", {name: value})
    good = {"steps": 3.0, "spacing": 2, "fast": False, "mode": "fine"}
    assert scaled_parameters(app, "full_scale", good) == good


def test_requested_parameters_override_scaled_down_ones():
    app = dataclasses.replace(TOOL, scaled_down={"steps": 2, "fast": False})
    assert scaled_parameters(app, "full_scale", {})["steps"] == 10
    assert scaled_parameters(app, "scaled_down", {"fast": True}) == {
        "steps": 2,
        "fast": True,
        "mode": "x y",
    }
    with pytest.raises(
        ConfigError, match=r"cannot be scaled down; set scaled_down in conf/app/tool"
    ):
        scaled_parameters(TOOL, "scaled_down", {})


@pytest.mark.parametrize("app", [APP, TOOL, CONTAINED], ids=lambda app: app.name)
def test_a_valid_application_passes(app):
    check_app(app)


@pytest.mark.parametrize(
    ("app", "change", "message"),
    [
        (APP, {"argv": ("tool", "{image}")}, "a module or argv, and not both"),
        (APP, {"module": None}, "a module or argv"),
        (APP, {"module": "no.such.module"}, r"app\.segment\.module: no such module"),
        (APP, {"module": "a b"}, "no such module"),
        (APP, {"devices": ()}, "at least one device"),
        (APP, {"verify_gpu": True}, "verify_gpu"),
        (TOOL, {"argv": ("tool",)}, "does not name the image"),
        (TOOL, {"argv": ("tool", "{{image}}")}, "does not name the image"),
        (TOOL, {"input": "none"}, "input: none but names an image"),
        (APP, {"parameters": {"image": 1}}, r"parameters\.image: cannot be a parameter"),
        (APP, {"parameters": {"a-b": 1}}, r"parameters\.a-b: cannot be a parameter"),
        (APP, {"ranges": {"clases": (1, 2)}}, r"ranges\.clases.*choose from classes"),
        (APP, {"ranges": {"classes": (2,)}}, "a low and a higher number"),
        (APP, {"ranges": {"classes": (3, 2)}}, "a low and a higher number"),
        (APP, {"scaled_down": {"clases": 2}}, r"scaled_down\.clases.*choose from"),
        (APP, {"phase_patterns": {"a": "("}}, "not a regular expression"),
        (APP, {"phase_patterns": {"a": "a"}}, "needs a group"),
        (APP, {"phase_patterns": {"a": "(?P<seconds>.)"}}, "not among the phases"),
        (APP, {"binds": {"/a": "{out}"}}, "need a container"),
        (APP, {"container": {"cpu": "image"}}, "a module cannot run in a container"),
        (CONTAINED, {"devices": ("cpu", "gpu")}, "an image for each of cpu, gpu"),
        (CONTAINED, {"binds": {"/a": "{inputs}"}}, r"one path for \{out\}"),
        (CONTAINED, {"binds": {"/a": "{out}"}}, r"one path for \{inputs\}"),
        (CONTAINED, {"binds": {"a": "{out}"}}, "an absolute path in the container"),
        (CONTAINED, {"binds": {"/a": "{outs}"}}, r"unknown \{outs\}; choose from"),
    ],
)
def test_invalid_applications_are_reported(app, change, message):
    with pytest.raises(ConfigError, match=message):
        check_app(dataclasses.replace(app, **change))


BUILT_IN = [path.stem for path in CONF.glob("[a-z]*.yaml") if "module:" in path.read_text()]


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_file_holds_the_defaults_of_its_module_and_ranges_that_it_accepts(name):
    app = config.load_app(CONF, name)
    defaults = importlib.import_module(app.module).DEFAULTS
    assert app.parameters == defaults
    assert {*app.ranges, *app.scaled_down} <= set(defaults)
    for parameter, values in app.ranges.items():
        assert {type(value) for value in values} == {type(defaults[parameter])}


@pytest.mark.parametrize(
    ("name", "values"),
    [("slant", None), ("command", {"argv": ["my_tool", "{image}", "{out}"], "version": "1"})],
)
def test_applications_without_a_module_are_valid(name, values):
    assert config.load_app(CONF, name, values).argv
