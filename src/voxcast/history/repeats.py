"""Which runs are the same work done again, and which of them count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT

if TYPE_CHECKING:
    import pandas as pd

# What is done; runs that agree in it and in the allocation are the same run, made again.
TASK = ["app", "app_version", "parameters_json", "volume_id", "scale"]
WORK = [*TASK, "host_class"]
ALLOCATION = ["device", "node_type", "cpus", "gpus", "mem_limit_bytes"]
# Two machines of one kind are never quite alike: what repeats tell is told by one.
REPEATED = [*WORK, *ALLOCATION, "host_id"]


def plain_repeats(runs: pd.DataFrame) -> pd.DataFrame:
    """Leave out what says nothing of the noise of an idle machine.

    These are anchors, which lie sittings apart; runs that a busy machine disturbed; and what was
    run again for that reason, later than the repeats it stands for.
    """
    return runs[(runs["repeat"] < NOISY_REPEAT) & ~runs["noisy"]]


def anchors(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that a sitting began with."""
    return runs[runs["repeat"] >= ANCHOR_REPEAT]


def settled(runs: pd.DataFrame) -> pd.DataFrame:
    """Leave out anchors, and disturbed runs of what was also run undisturbed."""
    own = runs[runs["repeat"] < ANCHOR_REPEAT]
    quiet = ~own["noisy"]
    keys = [own[name] for name in WORK + ALLOCATION]
    return own[quiet | ~quiet.groupby(keys, dropna=False).transform("any")]


def once_each(runs: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return one row a piece of work, its ``target`` the geometric mean of the settled runs."""
    own = settled(runs)
    logs = own[target].astype(float).clip(lower=1e-9).map(np.log)
    keys = WORK + ALLOCATION
    means = logs.groupby([own[name] for name in keys], dropna=False).transform("mean")
    return own.assign(**{target: np.exp(means)}).drop_duplicates(keys)
