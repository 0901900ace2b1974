"""A whole run on a GPU that nobody made: CPU phases as measured, and one part measured on the GPU.

Some applications declare one phase as an application of its own that needs little, so that it can
be measured where the rest cannot run. A composition exchanges the phase for it. It is stated as
such wherever it is shown, and never a measured run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from voxcast.files import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd


class Composition(NamedTuple):
    """What stands for what: ``phase`` of one application for ``phases`` of another, ``app``.

    The phases of ``app`` are all that ``phase`` does, the start-up of the device among it.
    """

    phase: str
    app: str
    phases: tuple[str, ...]


# In tile_segment the network's phase reads the weights and brings them to the device as well.
COMPOSITIONS = {
    "tile_segment": Composition("network", "tile_segment_network", ("weights", "network"))
}
MACHINE = ["host_class", "cpus", "gpus"]


def composed_sides(
    cpu: pd.DataFrame, phases: pd.DataFrame, alone: pd.DataFrame, composition: Composition
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Give runs on a CPU with their compositions, by machine and CPUs of the runs and of the GPU.

    Parameters
    ----------
    cpu : DataFrame
        Whole runs on a CPU, of one scale.
    phases : DataFrame
        Of these runs and of ``alone``: ``cell_key phase runtime_s``, a phase once a run.
    alone : DataFrame
        Whole runs of the composition's application on GPUs, of that scale; of the version that
        was run last those count that have the parameters that both applications share.
    """
    if alone.empty:
        return
    newest = alone.sort_values("started_at", kind="stable")["app_version"].iloc[-1]
    alone = alone[alone["app_version"] == newest]
    part = phases[phases["phase"].isin(composition.phases)]
    spent_s = part.groupby("cell_key")["runtime_s"].sum()
    complete = part.groupby("cell_key")["phase"].nunique() == len(composition.phases)
    alone = alone.assign(part_s=alone["cell_key"].map(spent_s[complete]))
    exchanged_s = phases[phases["phase"] == composition.phase].set_index("cell_key")["runtime_s"]
    shared = _names(cpu) & _names(alone)
    cpu = cpu.assign(rest_s=cpu["runtime_s"] - cpu["cell_key"].map(exchanged_s))
    for _, there in alone[alone["part_s"] > 0].groupby(MACHINE, sort=True):
        logs = np.log(there["part_s"]).groupby(_settings(there, shared)).mean()
        for _, own in cpu.groupby(["host_class", "cpus"], sort=True):
            made = own.assign(
                runtime_s=own["rest_s"] + np.exp(_settings(own, shared).map(logs)),
                cpus=there["cpus"].iloc[0],
                gpus=there["gpus"].iloc[0],
                peak_gpu_bytes=there["peak_gpu_bytes"].astype("float64").median(),
                host_id=", ".join(sorted(there["host_id"].unique())),
                host_class=there["host_class"].iloc[0],
            )
            yield own, made[made["runtime_s"].notna()]


def _names(runs: pd.DataFrame) -> set[str]:
    return {name for text in runs["parameters_json"].unique() for name in json.loads(text)}


def _settings(runs: pd.DataFrame, names: set[str]) -> pd.Series:
    """Return what each run has for ``names``, as text."""

    def own(text: str) -> str:
        return canonical_json({k: v for k, v in json.loads(text).items() if k in names})

    return runs["parameters_json"].map({t: own(t) for t in runs["parameters_json"].unique()})
