"""The estimates of a trunk, and its files: its weights, and beside them where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.model_files import read_arrays, read_sealed, write_arrays, write_sealed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

# Quantities from the mask's share and the grid, and estimates beside them.
SIZES = ("foreground_voxels", "foreground_ml", "foreground_fraction")
OTHERS = tuple(name for name in CHARACTERISTICS if name not in SIZES)
WEIGHTS_FILE, FACTS_FILE = "trunk.npz", "trunk.json"
HASH = "weights_sha256"


def write_trunk(folder: Path, weights: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Write ``trunk.npz``, and ``trunk.json`` with its hash and the facts."""
    sha256 = write_arrays(folder / WEIGHTS_FILE, weights)
    write_sealed(folder / FACTS_FILE, {**facts, HASH: sha256})


def read_trunk(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the weights and the facts that `write_trunk` wrote; nothing is unpickled.

    Raises
    ------
    ModelError
        If a file is missing, damaged or of something else.
    """
    facts = read_sealed(folder / FACTS_FILE)
    if HASH not in facts:
        raise ModelError("not a trunk", folder / FACTS_FILE)
    return read_arrays(folder / WEIGHTS_FILE, facts[HASH]), facts
