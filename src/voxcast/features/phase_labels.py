"""CPU time by phase, as labels of a run: which share of it each phase took.

The labels are one column of text in the training table, with the drivers that the application
declares for its phases. They are measured during the run, so they are never features.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.files import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

COLUMN = "phases_json"
# The CPU time outside of all phases: the interpreter, reading of modules, the end.
REST = "rest"
# Phases together cannot take more CPU time than the run, but for the resolution of clocks.
TOLERANCE = 1.02


@dataclass(frozen=True)
class PhaseLabels:
    """Shares of the CPU time by phase.

    Attributes
    ----------
    names : tuple of str
        The phases, and `REST`.
    shares : ndarray, shape (n_runs, phases)
        From 0 to 1, and 1 together; NaN where they are unknown.
    drivers : dict of str to tuple of str
        What decides the time of a phase, see `voxcast.records.App`; none for a constant one.
    """

    names: tuple[str, ...]
    shares: np.ndarray
    drivers: dict[str, tuple[str, ...]]

    @property
    def is_known(self) -> np.ndarray:
        """Which runs have labels, shape (n_runs,)."""
        complete: np.ndarray = np.isfinite(self.shares).all(axis=1)
        return complete


def phase_texts(
    phases: pd.DataFrame, cpu_s: Mapping[str, float], drivers: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the labels of runs as text, by cell key; only of runs whose phases are all known.

    Parameters
    ----------
    phases : DataFrame
        Columns ``cell_key``, ``phase`` and ``cpu_s``.
    cpu_s : mapping
        CPU time of each run by cell key.
    drivers : mapping
        Drivers by phase; without any there are none.
    """
    if not drivers or phases.empty:
        return {}
    runs = phases[phases["cell_key"].isin(list(cpu_s))]
    # An unknown time of one phase makes the sum unknown.
    seconds = runs.groupby(["cell_key", "phase"])["cpu_s"].sum(min_count=1, skipna=False)
    texts = {}
    by_run: dict[str, dict[str, float]] = {}
    keys = seconds.index.tolist()
    for (cell_key, phase), of_phase_s in zip(keys, seconds.to_numpy(float), strict=True):
        by_run.setdefault(str(cell_key), {})[str(phase)] = float(of_phase_s)
    for cell_key, by_phase in by_run.items():
        total_s, in_phases_s = cpu_s[cell_key], sum(by_phase.values())
        if not 0 < in_phases_s <= TOLERANCE * total_s:  # false for an unknown time, too
            continue
        by_phase[REST] = by_phase.get(REST, 0.0) + max(total_s - in_phases_s, 0.0)
        whole_s = sum(by_phase.values())
        shares = {name: value / whole_s for name, value in by_phase.items()}
        declared = {name: list(drivers[name]) for name in shares if name in drivers}
        texts[cell_key] = canonical_json({"shares": shares, "drivers": declared})
    return texts


def labels_of(table: pd.DataFrame) -> PhaseLabels | None:
    """Return the labels of a table's runs; None where no run has any."""
    if COLUMN not in table:
        return None
    contents = [json.loads(text) if text else {} for text in table[COLUMN].fillna("")]
    labelled = [content for content in contents if content]
    if not labelled:
        return None
    names = tuple(sorted({name for content in labelled for name in content["shares"]}))
    shares = np.full((len(contents), len(names)), np.nan)
    for row, content in enumerate(contents):
        if content:
            shares[row] = [content["shares"].get(name, 0.0) for name in names]
    drivers = {
        name: tuple(of_phase)
        for content in labelled
        for name, of_phase in content["drivers"].items()
    }
    return PhaseLabels(names, shares, drivers)
