"""The network's weights as a file: a state dict in torch's own format, read without pickle's code.

The file beside this module is what stage `tile_weights` wrote when it was last adopted. The stage
writes ``data/tile_weights/weights.pt``; copy that here to adopt it, which makes another version
of the applications that name the file.
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
    """Write the weights as float16: half the bytes, and no label in a thousand changes."""
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
        # weights_only: tensors and plain containers, nothing that runs when it is read.
        state = torch.load(path, map_location="cpu", weights_only=True)
        network = TileNet()
        network.load_state_dict(state)
    except FileNotFoundError:
        raise ModelError("no such file", path, then) from None
    except Exception as error:  # torch raises whatever its reader stumbles over
        raise ModelError(
            f"is not this network's weights ({one_line(error)[:120]})", path, then
        ) from None
    return network.eval()
