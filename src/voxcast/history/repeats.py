"""Repeats of the same run, and the selection of those that count."""

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

    Anchors, which are from different sittings, runs disturbed by other work, and the later repeats
    that replace disturbed ones are left out.
    """
    return runs[(runs["repeat"] < NOISY_REPEAT) & ~runs["noisy"]]


def anchors(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs at the start of each sitting."""
    return runs[runs["repeat"] >= ANCHOR_REPEAT]


def settled(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs without anchors, and without disturbed runs of work also run undisturbed."""
    without_anchors = runs[runs["repeat"] < ANCHOR_REPEAT]
    undisturbed = ~without_anchors["noisy"]
    keys = [without_anchors[name] for name in WORK + ALLOCATION]
    return without_anchors[undisturbed | ~undisturbed.groupby(keys, dropna=False).transform("any")]


def once_each(runs: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return one row per piece of work, with the geometric mean of ``target`` of settled runs."""
    settled_runs = settled(runs)
    logs = settled_runs[target].astype(float).clip(lower=1e-9).map(np.log)
    keys = WORK + ALLOCATION
    means = logs.groupby([settled_runs[name] for name in keys], dropna=False).transform("mean")
    return settled_runs.assign(**{target: np.exp(means)}).drop_duplicates(keys)
