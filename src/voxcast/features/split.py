"""The train/test split: a hash of the subject's name determines its side."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

Side = Literal["train", "test"]
# Of fewer subjects a quarter would be less than ten. Those tell little, and would be missed where
# models learn and bounds are calibrated: cross-validation then judges on all.
MIN_SUBJECTS = 40


@dataclass(frozen=True)
class Sides:
    """The two sides of the table.

    Attributes
    ----------
    train, test : DataFrame
        Rows of the table.
    not_judged : frozenset of str
        Applications with so few subjects that all are on the training side.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    not_judged: frozenset[str]


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


def split(table: pd.DataFrame, split_seed: int, test_fraction: float) -> Sides:
    """Split the table by subject, for each application by itself.

    Subjects of different image sets that share a label are one group: they may be the same person,
    and a person on both sides would make the test too easy. An application with fewer than
    `MIN_SUBJECTS` has all of them on the training side, and is judged by cross-validation alone.
    When more subjects are on record, each is on its own side.

    Parameters
    ----------
    table : DataFrame
        Runs with ``app`` and ``subject``.
    """
    sides = table["subject"].map(lambda s: side(str(s), split_seed, test_fraction))
    subjects = table["subject"].groupby(table["app"]).nunique()
    few = subjects[subjects < MIN_SUBJECTS].index
    sides = sides.mask(table["app"].isin(few), "train")
    train, test = (table[sides == name].reset_index(drop=True) for name in ("train", "test"))
    return Sides(train, test, frozenset(map(str, few)))
