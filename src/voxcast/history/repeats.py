"""Repeats of the same run, and which of them count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT

if TYPE_CHECKING:
    import pandas as pd

# The work; runs that agree in work and allocation are repeats of one run.
TASK = ["app", "app_version", "parameters_json", "volume_id", "scale"]
WORK = [*TASK, "host_class"]
ALLOCATION = ["device", "node_type", "cpus", "gpus", "mem_limit_bytes"]
# Machines of one kind still differ, so noise is estimated from repeats on a single machine.
REPEATED = [*WORK, *ALLOCATION, "host_id"]


def plain_repeats(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the repeats that measure the noise of an idle machine.

    Left out are anchors, which are sittings apart; runs disturbed by other work; and the later
    repeats that replace disturbed ones.
    """
    return runs[(runs["repeat"] < NOISY_REPEAT) & ~runs["noisy"]]


def anchors(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs at the start of each sitting."""
    return runs[runs["repeat"] >= ANCHOR_REPEAT]


def settled(runs: pd.DataFrame) -> pd.DataFrame:
    """Leave out anchors, and disturbed runs of work that was also run undisturbed."""
    without_anchors = runs[runs["repeat"] < ANCHOR_REPEAT]
    quiet = ~without_anchors["noisy"]
    keys = [without_anchors[name] for name in WORK + ALLOCATION]
    return without_anchors[quiet | ~quiet.groupby(keys, dropna=False).transform("any")]


def once_each(runs: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return one row per piece of work, with the geometric mean of ``target`` of settled runs."""
    kept_runs = settled(runs)
    logs = kept_runs[target].astype(float).clip(lower=1e-9).map(np.log)
    keys = WORK + ALLOCATION
    means = logs.groupby([kept_runs[name] for name in keys], dropna=False).transform("mean")
    return kept_runs.assign(**{target: np.exp(means)}).drop_duplicates(keys)
