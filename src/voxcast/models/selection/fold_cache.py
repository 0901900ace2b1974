"""Cache of the predictions of each fold: ensembles and repeated runs refit nothing.

The code of all models and the packaged weights are part of a key: predictions of others are not
reused.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.content_cache import ContentCache
from voxcast.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

FUNCTION = "fold_predictions"


class FoldCache:
    """Cached predictions by data and settings; `fits` counts the misses.

    Parameters
    ----------
    folder : Path or None
        Folder of the cache; None keeps it in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.fits = 0
        self._stored = None if folder is None else ContentCache(folder)
        self._predictions: dict[str, np.ndarray] = {}

    def get(self, content: Mapping[str, object]) -> np.ndarray | None:
        """Return the predictions of a fold; if missing, count a fit and return None."""
        key = sha256_of(content)
        if key not in self._predictions and self._stored is not None:
            arrays = self._stored.get(FUNCTION, _code_sha256(), content)
            if arrays is not None:
                self._predictions[key] = arrays["log_predictions"]
        if key not in self._predictions:
            self.fits += 1
        return self._predictions.get(key)

    def put(self, content: Mapping[str, object], predictions: np.ndarray) -> None:
        """Store the predictions of a fold."""
        self._predictions[sha256_of(content)] = predictions
        if self._stored is not None:
            arrays = {"log_predictions": predictions}
            self._stored.put(FUNCTION, _code_sha256(), content, arrays)


@functools.cache
def _code_sha256() -> str:
    import sklearn

    digest = hashlib.sha256(sklearn.__version__.encode())
    files = Path(__file__).parents[1].rglob("*")
    for path in sorted(path for path in files if path.suffix in (".py", ".npz")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
