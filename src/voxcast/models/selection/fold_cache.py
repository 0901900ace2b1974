"""What a family said of each fold, kept: an ensemble or a second run fits nothing again.

A key holds the code of all models, too: what an older release has fitted is not reused.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voxcast.files import atomic_path, sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class FoldCache:
    """Answers by what they depend on; `fits` counts those that were not there.

    Parameters
    ----------
    folder : Path or None
        Where to keep them; None for this process alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.fits = 0
        self._known: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def _key(self, of: Mapping[str, object]) -> str:
        return sha256_of({**of, "code": _code_sha256()})

    def get(self, of: Mapping[str, object]) -> tuple[np.ndarray, np.ndarray] | None:
        """Return logarithms and spreads of a fold, or None and count a fit."""
        key = self._key(of)
        if key not in self._known and self.folder is not None:
            path = self.folder / f"{key}.npz"
            unreadable = contextlib.suppress(OSError, ValueError, KeyError, zipfile.BadZipFile)
            with unreadable, np.load(path, allow_pickle=False) as content:
                self._known[key] = content["logs"], content["spread"]
        if key not in self._known:
            self.fits += 1
            return None
        return self._known[key]

    def put(self, of: Mapping[str, object], logs: np.ndarray, spread: np.ndarray) -> None:
        """Keep what was just fitted."""
        key = self._key(of)
        self._known[key] = logs, spread
        if self.folder is not None:
            with atomic_path(self.folder / f"{key}.npz") as partial:
                np.savez(partial, logs=logs, spread=spread)


@functools.cache
def _code_sha256() -> str:
    import sklearn

    digest = hashlib.sha256(sklearn.__version__.encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
