"""The train/test split: a hash of the subject's name determines its side."""

from __future__ import annotations

import hashlib
from typing import Literal

Side = Literal["train", "test"]


def side(subject: str, split_seed: int, test_fraction: float) -> Side:
    """Return the side of ``subject``; it never changes as the history grows.

    Examples
    --------
    >>> side("0001", 5, 0.25) == side("0001", 5, 0.25)
    True
    """
    digest = hashlib.sha256(f"{split_seed}:{subject}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if position < test_fraction else "train"
