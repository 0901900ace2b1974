"""Checkpoints of built-in trainings: weights and optimiser after a number of steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import RunError
from voxcast.files import atomic_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

CHECKPOINT_FILE = "checkpoint.pt"
# Of a run that ends with a checkpoint, and of one that starts from it.
DEFAULTS: dict[str, Any] = {"checkpoint": False, "restart": ""}


def save(
    path: Path,
    network: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    steps: int,
    identity: Mapping[str, Any],
) -> None:
    """Write a checkpoint, atomically.

    Parameters
    ----------
    steps : int
        Epochs or iterations so far.
    identity : mapping
        Parameters that a run which continues must have too.
    """
    import torch

    content = {
        "network": network.state_dict(),
        "optimiser": optimiser.state_dict(),
        "steps": steps,
        "identity": dict(identity),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial:
        torch.save(content, partial)


def restore(
    path: str,
    network: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    identity: Mapping[str, Any],
) -> int:
    """Restore weights and optimiser, and return the steps so far; 0 for an empty path.

    Raises
    ------
    RunError
        If there is no checkpoint, or it is one of other parameters.
    """
    import torch

    if not path:
        return 0
    if not Path(path).is_file():
        then = "start a run with checkpoint=true first, or remove restart"
        raise RunError("no such checkpoint", path, then)
    try:
        content = torch.load(path, weights_only=True)  # runs no code of the file
        differing = [name for name in identity if content["identity"].get(name) != identity[name]]
        if not differing:
            network.load_state_dict(content["network"])
            optimiser.load_state_dict(content["optimiser"])
            return int(content["steps"])
    except Exception:  # of torch, zipfile and pickle, depending on the damage
        raise RunError("is not a checkpoint of this application", path) from None
    name = differing[0]
    before = content["identity"].get(name)
    raise RunError(f"was made with {name} {before}, not {identity[name]}", path)
