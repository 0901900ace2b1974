"""Setup of all tests: shared fixtures on the path, libraries without telemetry."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import voxcast.interruptions  # noqa: F401  # stages import it, and Ctrl-C would then end pytest

signal.signal(signal.SIGINT, signal.default_int_handler)
collect_ignore = ["samples"]  # programs that tests start, not modules with examples
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")
# MLflow's server would start processes for jobs that none of ours submits.
os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
# Workers of the tests use all cores; more threads would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# On a shared machine an example may wait for seconds, which says nothing of the code.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

_STORES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
_GIVEN_STORES = {name: os.environ[name] for name in _STORES if name in os.environ}


def _restore_stores() -> None:
    for name in _STORES:
        os.environ.pop(name, None)
    os.environ.update(_GIVEN_STORES)


@pytest.fixture(autouse=True)
def environment_of_mlflow() -> Iterator[None]:
    """Take back the address of a store that MLflow leaves in the environment of the process.

    Fixtures of a session or module leave it too, and are set up before: hence also at the start.
    """
    _restore_stores()
    yield
    _restore_stores()


@pytest.fixture(scope="module")
def few_families() -> Iterator[None]:
    """Fit two families to a table: enough for tests that need a model, whatever its errors are."""
    from voxcast.models import regressor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regressor, "FAMILIES", ("median", "ridge"))
        yield


@pytest.fixture(scope="session")
def champion_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project folder with a champion of two applications."""
    from champions import write_champion

    folder = tmp_path_factory.mktemp("served")
    write_champion(folder, 20, "register", "segment")
    (folder / "params.yaml").touch()
    return folder


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a project with all inputs of the report."""
    from report_project import project_builder

    return project_builder(tmp_path)


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """Return an empty folder, of a test that runs without the rights of root."""
    nobody = 65534
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if is_root:
            os.chown(folder, nobody, nobody)
            os.seteuid(nobody)
        try:
            yield folder
        finally:
            if is_root:
                os.seteuid(0)
