"""HARP's training sets: scaled-down runs, with an increasing share of full-scale runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 2048  # of HARP's split
FULL_SCALE_ALONE = "FS"
SHARES = {"SD": 0.0, "SD+25%FS": 0.25, "SD+50%FS": 0.5, "SD+75%FS": 0.75}
VALIDATION_SHARE = 0.25


@dataclass(frozen=True)
class Mixes:
    """Positions of runs: training sets by name, and the validation runs, which none contains.

    A position is repeated where a run was drawn repeatedly.
    """

    training: dict[str, np.ndarray]
    validation: np.ndarray


def draw_mixes(
    full_scale: Sequence[bool] | np.ndarray,
    groups: Sequence[str] | None = None,
    *,
    upsample: bool = True,
    scaled_down: bool = True,
    seed: int = SEED,
) -> Mixes:
    """Draw HARP's four training sets and its validation runs.

    A quarter of the full-scale runs is held out for validation. From the rest, a quarter, half
    and three quarters of all full-scale runs are added to the scaled-down ones.

    Parameters
    ----------
    full_scale : sequence of bool, shape (n,)
        Whether each run is at full scale; otherwise it is scaled down.
    groups : sequence of str, optional
        Groups that validation does not split; HARP itself holds out single runs.
    upsample : bool
        Draw as many full-scale runs as there are scaled-down ones, with replacement, as HARP does.
        If there are more full-scale runs, this reduces their number.
    scaled_down : bool
        False gives a single training set, `FULL_SCALE_ALONE`, of all full-scale runs that are not
        held out for validation.

    Raises
    ------
    TableError
        If there are fewer than 4 full-scale runs, or groups of them, or no scaled-down run where
        they are used.
    """
    full = np.asarray(full_scale, dtype=bool)
    down_rows, full_rows = np.flatnonzero(~full), np.flatnonzero(full)
    names = full_rows if groups is None else np.asarray(groups, dtype=str)[full_rows]
    rng = np.random.default_rng(seed)
    distinct = rng.permutation(np.unique(names))
    if len(distinct) < 4 or (scaled_down and not len(down_rows)):
        have = f"{len(down_rows)} scaled-down and {len(distinct)} full-scale runs or groups"
        raise TableError(f"HARP needs some scaled-down runs and 4 at full scale, not {have}")
    held_out = distinct[: max(1, round(VALIDATION_SHARE * len(distinct)))]
    validation = np.isin(names, held_out)
    # By group, in the order drawn, so that a larger share contains every smaller one.
    order = {name: n for n, name in enumerate(distinct)}
    pool = sorted(
        full_rows[~validation], key=lambda n: order[names[np.searchsorted(full_rows, n)]]
    )
    if not scaled_down:
        return Mixes({FULL_SCALE_ALONE: np.array(pool, dtype=int)}, full_rows[validation])
    training = {}
    for name, share in SHARES.items():
        chosen = np.array(pool[: round(share * len(full_rows))], dtype=int)
        if upsample and len(chosen):
            chosen = rng.choice(chosen, size=len(down_rows), replace=True)
        training[name] = np.concatenate([down_rows, chosen])
    return Mixes(training, full_rows[validation])
