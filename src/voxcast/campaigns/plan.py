"""What a campaign comes to on this machine: cells in order, and all that running them needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.campaigns.cells import (
    anchor_cells,
    draw_cells,
    expected_times,
    fitting,
    good_volumes,
)
from voxcast.profiling.host import host_class, host_facts
from voxcast.records import App, Cell, Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from voxcast.campaigns.sweeps import Sweep


@dataclass(frozen=True)
class CampaignPlan:
    """Cells by key in the order to run them; `notes` say what is left out here, and why.

    `expected_s` knows the anchors too.
    """

    cells: dict[str, Cell]
    expected_s: dict[str, float]
    anchors: list[Cell]
    paths: dict[str, Path]
    notes: list[str]


def make_plan(
    sweeps: Sequence[Sweep],
    apps: Mapping[str, App],
    rows: pd.DataFrame,
    configurations: Sequence[Configuration],
    *,
    budget_s: float | None,
    seed: int,
    anchors: int = 0,
    root: Path | None = None,
) -> CampaignPlan:
    """CampaignPlan a campaign for this machine.

    Parameters
    ----------
    rows : DataFrame
        The catalogue of the image set.
    budget_s : float, optional
        What sweeps that choose ``within_budget`` may fill.
    anchors : int
        On so many volumes each application is run at the start of every sitting.
    root : Path, optional
        Where relative paths of the catalogue begin.
    """
    facts = host_facts()
    possible, notes = fitting(configurations, facts)
    volumes, machine = good_volumes(rows), host_class(facts)
    cells = draw_cells(
        sweeps, apps, volumes, possible, budget_s=budget_s, seed=seed, host_class=machine
    )
    first = anchor_cells(sweeps, apps, volumes, possible, anchors, machine)
    timed = {**cells, **{cell.key: cell for cell in first}}
    named = zip(rows["volume_id"].astype(str), rows["path"].astype(str), strict=True)
    return CampaignPlan(
        cells=cells,
        expected_s=expected_times(timed, apps, volumes),
        anchors=first,
        paths={volume: (root or Path()) / path for volume, path in named},
        notes=notes,
    )
