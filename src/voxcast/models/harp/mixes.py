"""HARP's training sets: scaled-down runs, and ever more full-scale runs among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 2048  # of HARP's own split
SHARES = {"SD": 0.0, "SD+25%FS": 0.25, "SD+50%FS": 0.5, "SD+75%FS": 0.75}
VALIDATION_SHARE = 0.25


@dataclass(frozen=True)
class Mixes:
    """Positions of runs: a training set by its name, and the full-scale runs that none has.

    A position comes several times where a run was drawn several times.
    """

    training: dict[str, np.ndarray]
    validation: np.ndarray


def mix(
    full_scale: Sequence[bool] | np.ndarray,
    groups: Sequence[str] | None = None,
    *,
    upsample: bool = True,
    seed: int = SEED,
) -> Mixes:
    """Draw HARP's four training sets and its validation runs.

    A quarter of the full-scale runs is kept for validation; of the others, a quarter, half and
    three quarters of all full-scale runs join the scaled-down ones.

    Parameters
    ----------
    full_scale : sequence of bool, shape (n,)
        Of each run; the others are scaled down.
    groups : sequence of str, optional
        Validation takes whole groups then; HARP itself takes runs.
    upsample : bool
        Draw full-scale runs with replacement until there are as many as scaled-down ones, as
        HARP does (which also makes fewer of them where there were more).

    Raises
    ------
    TableError
        If there are fewer than 4 full-scale runs, or groups of them, or no scaled-down run.
    """
    whole = np.asarray(full_scale, dtype=bool)
    small, large = np.flatnonzero(~whole), np.flatnonzero(whole)
    names = large if groups is None else np.asarray(groups, dtype=str)[large]
    rng = np.random.default_rng(seed)
    distinct = rng.permutation(np.unique(names))
    if len(distinct) < 4 or not len(small):
        have = f"{len(small)} scaled-down and {len(distinct)} full-scale runs or groups"
        raise TableError(f"HARP needs some scaled-down runs and 4 at full scale, not {have}")
    kept = distinct[: max(1, round(VALIDATION_SHARE * len(distinct)))]
    validation = np.isin(names, kept)
    # By group, in the order drawn, so that a larger share holds all of a smaller one.
    order = {name: n for n, name in enumerate(distinct)}
    pool = sorted(large[~validation], key=lambda n: order[names[np.searchsorted(large, n)]])
    training = {}
    for name, share in SHARES.items():
        chosen = np.array(pool[: round(share * len(large))], dtype=int)
        if upsample and len(chosen):
            chosen = rng.choice(chosen, size=len(small), replace=True)
        training[name] = np.concatenate([small, chosen])
    return Mixes(training, large[validation])
