"""Applications run in this process, with one thread of each library."""

import json
from pathlib import Path

import pytest

from voxcast.apps.app import THREAD_VARIABLES
from voxcast_apps.arguments import NO_IMAGE


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    with pytest.MonkeyPatch.context() as patch:
        for name in THREAD_VARIABLES:  # an application sets what is not set, for its process
            patch.setenv(name, "1")
        yield


@pytest.fixture
def refused(tmp_path, capsys):
    """Return a function that runs an application and returns the one line of its refusal."""

    def run(main, image: Path = NO_IMAGE, **parameters):
        out = tmp_path / "out"
        arguments = ["--image", str(image), "--out", str(out)]
        assert main([*arguments, "--parameters", json.dumps(parameters)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert not out.exists()
        return line

    return run
