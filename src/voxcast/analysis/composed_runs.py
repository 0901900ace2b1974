"""Whole runs on a GPU composed of measured CPU phases and one phase measured on the GPU.

Some applications declare one phase as a separate application with few dependencies, so that it can
be measured where the other phases cannot run. A composition replaces the phase of a CPU run by
that application. It is always labelled as composed, and never counted as a measured run.
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
    """The replacement of one ``phase`` of an application by ``phases`` of another, ``app``.

    Together the phases of ``app`` do all that ``phase`` does, including start-up of the device.
    """

    phase: str
    app: str
    phases: tuple[str, ...]


# In tile_segment the phase of the network also reads the weights and copies them to the device.
COMPOSITIONS = {
    "tile_segment": Composition("network", "tile_segment_network", ("weights", "network"))
}
MACHINE = ["host_class", "cpus", "gpus"]


def composed_sides(
    cpu: pd.DataFrame, phases: pd.DataFrame, alone: pd.DataFrame, composition: Composition
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield CPU runs with their compositions, by machine and CPUs of both sides.

    Parameters
    ----------
    cpu : DataFrame
        Whole runs on a CPU, of one scale.
    phases : DataFrame
        Phases of these runs and of ``alone``: ``cell_key phase runtime_s``, each phase of a run
        once.
    alone : DataFrame
        Whole runs of the composition's application on GPUs, of that scale. Only the version that
        was run last counts; runs are matched by the parameters that both applications share.
    """
    if alone.empty:
        return
    newest = alone.sort_values("started_at", kind="stable")["app_version"].iloc[-1]
    alone = alone[alone["app_version"] == newest]
    replacing = phases[phases["phase"].isin(composition.phases)]
    replacing_s = replacing.groupby("cell_key")["runtime_s"].sum()
    complete = replacing.groupby("cell_key")["phase"].nunique() == len(composition.phases)
    alone = alone.assign(replacing_s=alone["cell_key"].map(replacing_s[complete]))
    replaced_s = phases[phases["phase"] == composition.phase].set_index("cell_key")["runtime_s"]
    shared = _parameter_names(cpu) & _parameter_names(alone)
    cpu = cpu.assign(rest_s=cpu["runtime_s"] - cpu["cell_key"].map(replaced_s))
    for _, gpu in alone[alone["replacing_s"] > 0].groupby(MACHINE, sort=True):
        logs = np.log(gpu["replacing_s"]).groupby(_settings(gpu, shared)).mean()
        for _, cpu_runs in cpu.groupby(["host_class", "cpus"], sort=True):
            composed = cpu_runs.assign(
                runtime_s=cpu_runs["rest_s"] + np.exp(_settings(cpu_runs, shared).map(logs)),
                cpus=gpu["cpus"].iloc[0],
                gpus=gpu["gpus"].iloc[0],
                peak_gpu_bytes=gpu["peak_gpu_bytes"].astype("float64").median(),
                host_id=", ".join(sorted(gpu["host_id"].unique())),
                host_class=gpu["host_class"].iloc[0],
            )
            yield cpu_runs, composed[composed["runtime_s"].notna()]


def _parameter_names(runs: pd.DataFrame) -> set[str]:
    return {name for text in runs["parameters_json"].unique() for name in json.loads(text)}


def _settings(runs: pd.DataFrame, names: set[str]) -> pd.Series:
    """Return the values of the parameters ``names`` of each run, as text."""
    settings = {
        text: canonical_json({k: v for k, v in json.loads(text).items() if k in names})
        for text in runs["parameters_json"].unique()
    }
    return runs["parameters_json"].map(settings)
