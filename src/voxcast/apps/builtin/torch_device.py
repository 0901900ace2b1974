"""The torch device of an application: ``cpu`` or ``gpu``."""

from __future__ import annotations

import torch

from voxcast.errors import RunError


def torch_device(name: str) -> torch.device:
    """Return the torch device of ``cpu`` or ``gpu``.

    Raises
    ------
    RunError
        If a GPU is requested and torch finds none: a run on the CPU would be mislabelled.
    """
    if name == "gpu" and not torch.cuda.is_available():
        raise RunError("torch finds no CUDA device", "--device gpu", "run it with --device cpu")
    return torch.device("cuda" if name == "gpu" else "cpu")
