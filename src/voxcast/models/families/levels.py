"""The levels of a categorical column, the most frequent of which have a column of zeros and ones.

All levels of a column with more are kept as short hashes, which tell them from levels never seen.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAXIMUM_ENCODED = 30  # levels of one text with a column; each costs time and memory in every row
DIGEST_BYTES = 6  # two of 20,000 levels agree with a probability of 1e-6


def encoded_and_all(values: Iterable[object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the levels that get a column, and all levels, both sorted; no text is missing.

    Examples
    --------
    >>> names = [f"n{k:02d}" for k in range(40)]
    >>> encoded, levels = encoded_and_all([*names, *names[10:]])
    >>> encoded == tuple(names[10:]), len(levels)
    (True, 40)
    """
    counts = Counter(value for value in values if isinstance(value, str))
    common = sorted(counts, key=lambda text: (-counts[text], text))[:MAXIMUM_ENCODED]
    return tuple(sorted(common)), tuple(sorted(counts))


def digest(text: str) -> str:
    """Return a short hash of a level, in hexadecimal."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=DIGEST_BYTES).hexdigest()


def codes(values: Iterable[object], digests: Sequence[str]) -> np.ndarray:
    """Return the position of each value's digest, (n,); -1 for unknown values and no texts."""
    position = {key: n for n, key in enumerate(digests)}
    return np.array(
        [position.get(digest(v), -1) if isinstance(v, str) else -1 for v in values], dtype=int
    )
