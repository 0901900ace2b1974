import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from voxcast.apps.catalogue import (
    THREAD_VARIABLES,
    app_version,
    choose,
    command,
    environment,
    merged_parameters,
)
from voxcast.errors import ConfigError, RunError
from voxcast.records import App, Configuration

APP = App(name="segment", module="some.segment", version="1", parameters={"classes": 3})


def test_command_is_an_argument_list_that_takes_any_name():
    image = Path("my data/sub-01; rm -rf T1w.nii.gz")
    made = command(APP, image, Path("out"), Configuration("cpu", 2), {"classes": 4})
    assert made[:4] == [sys.executable, "-P", "-m", "some.segment"]
    given = dict(zip(made[4::2], made[5::2], strict=True))
    assert given["--image"] == str(image)
    assert given["--threads"] == "2"
    assert json.loads(given["--parameters"]) == {"classes": 4}


def test_environment_holds_every_library_to_its_threads():
    assert environment(Configuration("cpu", 3)) == dict.fromkeys(THREAD_VARIABLES, "3")


def test_version_names_the_packages():
    installed = importlib.metadata.version("numpy")
    app = App(name="a", module="a", version="2", packages=("numpy",))
    assert app_version(app) == f"2+numpy{installed}"
    assert app_version(APP) == "1"
    with pytest.raises(RunError, match="pip install no-such-package"):
        app_version(App(name="a", module="a", version="2", packages=("no-such-package",)))


def test_unknown_names_are_answered_with_the_known_ones():
    assert choose({"segment": APP}, "segment") is APP
    with pytest.raises(ConfigError, match=r"sgment.*known are: segment"):
        choose({"segment": APP}, "sgment")
    assert merged_parameters(APP, {"classes": 5}) == {"classes": 5}
    with pytest.raises(ConfigError, match=r"segment\.clases.*known are: classes"):
        merged_parameters(APP, {"clases": 5})
