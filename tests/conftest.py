"""Setup of all tests: shared fixtures on the path, libraries without telemetry."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a project with all inputs of the report."""
    from report_project import project_builder

    return project_builder(tmp_path)
