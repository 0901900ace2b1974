"""The plan of a campaign on this machine: its cells in order, and what is needed to run them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.campaigns.cells import (
    anchor_cells,
    draw_cells,
    expected_times,
    fitting,
    good_volumes,
    with_programs,
)
from voxcast.profiling.host import host_class, host_facts
from voxcast.records import Cell

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.campaigns.settings import CampaignSettings


@dataclass(frozen=True)
class CampaignPlan:
    """The cells of a campaign and what is needed to run them.

    Attributes
    ----------
    cells : dict
        By key, in the order to run them.
    paths : dict
        The file of each volume, by volume id.
    expected_s : dict
        Expected seconds of a cell by key, of the anchors too; 1 where it is missing.
    anchors : list of Cell
        Run at the start of every sitting that has anything to measure.
    recipes : mapping
        Recipes of generated volumes by volume id, for the records.
    notes : list of str
        What is left out on this machine, and why.
    """

    cells: dict[str, Cell]
    paths: dict[str, Path]
    expected_s: dict[str, float] = field(default_factory=dict)
    anchors: list[Cell] = field(default_factory=list)
    recipes: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def make_plan(
    settings: CampaignSettings,
    catalogue: pd.DataFrame,
    recipes: Mapping[str, dict[str, Any]] | None = None,
    root: Path | None = None,
) -> CampaignPlan:
    """Plan a campaign for this machine.

    Parameters
    ----------
    settings : CampaignSettings
        Sweeps, configurations, seed and budget decide the cells.
    catalogue : DataFrame
        The catalogue of the image set.
    recipes : mapping, optional
        Recipes of generated volumes by volume id.
    root : Path, optional
        Base of relative paths in the catalogue.
    """
    facts = settings.host or host_facts()
    configurations, notes = fitting(settings.configurations, facts)
    apps, missing = with_programs(settings.apps)
    volumes, machine = good_volumes(catalogue), host_class(facts)
    cells = draw_cells(
        settings.sweeps,
        apps,
        volumes,
        configurations,
        budget_s=settings.budget_s,
        seed=settings.seed,
        host_class=machine,
    )
    anchors = anchor_cells(
        settings.sweeps, apps, volumes, configurations, settings.anchors, machine
    )
    timed = {**cells, **{cell.key: cell for cell in anchors}}
    volume_ids, paths = catalogue["volume_id"].astype(str), catalogue["path"].astype(str)
    return CampaignPlan(
        cells=cells,
        paths={v: (root or Path()) / p for v, p in zip(volume_ids, paths, strict=True)},
        expected_s=expected_times(timed, apps, volumes),
        anchors=anchors,
        recipes=recipes or {},
        notes=[*notes, *missing],
    )
