"""The registered model from the inside, and a client that asks it over HTTP."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path


def predictor_file() -> Path:
    """Return the file that MLflow logs as the model's code."""
    return Path(__file__).with_name("predictor.py")


def requirements() -> list[str]:
    """Return what a served model needs, with the versions it was made with."""
    import voxcast

    names = ("mlflow", "nibabel", "numpy", "pandas", "scikit-learn", "scipy", "skops", "torchio")
    # A local build's tag, such as +cpu, names no public release.
    torch = version("torch").split("+")[0]
    return [f"voxcast=={voxcast.__version__}", f"torch=={torch}"] + [
        f"{name}=={version(name)}" for name in names
    ]
