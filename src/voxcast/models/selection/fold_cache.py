"""Cache of the predictions of each fold: ensembles and repeated runs refit nothing.

The code of all models and the packaged weights are part of a key: predictions of others are not
reused.
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
from voxcast.models.out_of_fold import OutOfFold

if TYPE_CHECKING:
    from collections.abc import Mapping


class FoldCache:
    """Cached predictions by data and settings; `fits` counts the misses.

    Parameters
    ----------
    folder : Path or None
        Folder of the cache; None keeps it in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.fits = 0
        self._predictions: dict[str, OutOfFold] = {}

    def _key(self, content: Mapping[str, object]) -> str:
        return sha256_of({**content, "code": _code_sha256()})

    def get(self, content: Mapping[str, object]) -> OutOfFold | None:
        """Return the predictions of a fold; if missing, count a fit and return None."""
        key = self._key(content)
        if key not in self._predictions and self.folder is not None:
            path = self.folder / f"{key}.npz"
            unreadable = contextlib.suppress(OSError, ValueError, KeyError, zipfile.BadZipFile)
            with unreadable, np.load(path, allow_pickle=False) as arrays:
                self._predictions[key] = OutOfFold(arrays["log_predictions"], arrays["spread"])
        if key not in self._predictions:
            self.fits += 1
            return None
        return self._predictions[key]

    def put(self, content: Mapping[str, object], predictions: OutOfFold) -> None:
        """Store the predictions of a fold."""
        key = self._key(content)
        self._predictions[key] = predictions
        if self.folder is not None:
            with atomic_path(self.folder / f"{key}.npz") as partial:
                np.savez(
                    partial, log_predictions=predictions.log_predictions, spread=predictions.spread
                )


@functools.cache
def _code_sha256() -> str:
    import sklearn

    digest = hashlib.sha256(sklearn.__version__.encode())
    files = Path(__file__).parents[1].rglob("*")
    for path in sorted(path for path in files if path.suffix in (".py", ".npz")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
