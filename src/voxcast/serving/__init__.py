"""The code of the registered model, and its clients: in process and over HTTP."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path


def predictor_file() -> Path:
    """Return the file that MLflow logs as the model's code."""
    return Path(__file__).with_name("predictor.py")


def requirements() -> list[str]:
    """Return the requirements of a served model, with the installed versions."""
    import voxcast

    names = ("mlflow", "nibabel", "numpy", "pandas", "scipy")
    # The tag of a local build, such as +cpu, is not part of a public release.
    torch = version("torch").split("+")[0]
    return [f"voxcast=={voxcast.__version__}", f"torch=={torch}"] + [
        f"{name}=={version(name)}" for name in names
    ]
