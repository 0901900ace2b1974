"""The proposed next runs of a campaign, as ``voxcast measure --next N`` lists them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.features.rows import features
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.next_runs import propose
from voxcast.runs.series import runs_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from voxcast.measure.campaign import Campaign
    from voxcast.measure.plan import CampaignPlan
    from voxcast.records import Cell


def proposed_runs(campaign: Campaign, count: int) -> list[dict[str, Any]]:
    """Return the runs of a campaign that would reduce uncertainty most, best first."""
    plan = campaign.plan()
    recorded = campaign.recorded(plan).keys() | runs_in(campaign.settings.runs).keys()
    return proposals(plan, recorded, campaign.volume_rows(), count)


def proposals(
    plan: CampaignPlan,
    recorded: Collection[str],
    volumes: Mapping[str, Mapping[str, Any]],
    count: int,
) -> list[dict[str, Any]]:
    """Return the runs of a plan that would reduce uncertainty most for their time, best first.

    Parameters
    ----------
    recorded : collection of str
        Keys of the cells on record.
    volumes : mapping
        Headers and characteristics of the campaign's volumes, by volume id.
    """
    characteristics = {
        volume_id: {name: row[name] for name in CHARACTERISTICS if name in row}
        for volume_id, row in volumes.items()
    }
    rows = {
        key: features(
            volumes.get(cell.volume_id),
            characteristics.get(cell.volume_id),
            cell.app,
            cell.parameters,
            cell.configuration,
        )
        for key, cell in plan.cells.items()
    }
    candidates = [key for key in plan.cells if key not in recorded]
    best = propose(
        [row for key, row in rows.items() if key in recorded],
        [rows[key] for key in candidates],
        [plan.expected_s[plan.cells[key].app, plan.cells[key].volume_id] for key in candidates],
        count,
    )
    return [
        {
            "app": cell.app,
            "volume_id": cell.volume_id,
            "subject": cell.subject,
            "image": _path(plan, cell),
            "cpus": cell.configuration.cpus,
            "device": cell.configuration.device,
            "scale": cell.scale,
            "parameters": cell.parameters,
            "expected_s": proposal.expected_s,
            "gain": proposal.gain,
        }
        for proposal in best
        for cell in [plan.cells[candidates[proposal.position]]]
    ]


def _path(plan: CampaignPlan, cell: Cell) -> str | None:
    """Return the file of a cell's volume; None if it has none, or it is not prepared."""
    path = plan.paths.get(cell.volume_id)
    return None if path is None or path == Path() else str(path)
