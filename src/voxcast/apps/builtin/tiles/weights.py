"""The network's weights as a file: a state dict of torch, read without running pickled code.

The installed file is in the folder of this module. Stage `tile_weights` writes
``data/tile_weights/weights.pt``; copy it here to install it, which changes the version of the
applications that use it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ModelError, one_line
from voxcast.files import atomic_path

if TYPE_CHECKING:
    from voxcast.apps.builtin.tiles.network import TileNet

PATH = Path(__file__).with_name("weights.pt")


def save(network: TileNet, path: str | Path) -> None:
    """Write the weights as float16: half the size, and less than one label in 1000 changes."""
    import torch

    state = {
        name: value.half() if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }
    with atomic_path(path) as partial:
        torch.save(state, partial)


def load(path: str | Path = PATH) -> TileNet:
    """Read weights into a network that is ready to label.

    Raises
    ------
    ModelError
        If the file is missing, is not a state dict, or belongs to another network.
    """
    import torch

    from voxcast.apps.builtin.tiles.network import TileNet

    then = "train it again with `dvc repro tile_weights`"
    try:
        # weights_only: tensors and plain containers, no code.
        state = torch.load(path, map_location="cpu", weights_only=True)
        network = TileNet()
        network.load_state_dict(state)
    except FileNotFoundError:
        raise ModelError("no such file", path, then) from None
    except Exception as error:  # torch raises many types
        raise ModelError(
            f"is not this network's weights ({one_line(error)[:120]})", path, then
        ) from None
    return network.eval()
