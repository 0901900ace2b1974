"""The environment of projects under git and DVC, for the tests that run their commands."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def environment() -> dict[str, str]:
    """Return variables with which git, DVC and the stages of this checkout are found."""
    names = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {
        **names,
        "PATH": f"{BIN}{os.pathsep}{names['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "DVC_NO_ANALYTICS": "true",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "t",
        "GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "t@t",
    }  # fmt: skip
