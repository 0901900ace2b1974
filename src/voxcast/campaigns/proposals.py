"""The proposed next runs of a campaign, as ``voxcast profile --next N`` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from voxcast.features.rows import features
from voxcast.images.catalogue import CATALOGUE, CHARACTERISTICS_TABLE
from voxcast.models.next_runs import propose

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from voxcast.campaigns.plan import CampaignPlan


def proposals(
    plan: CampaignPlan, recorded: Collection[str], catalogue: Path, count: int
) -> list[dict[str, Any]]:
    """Return the runs of a plan that would reduce uncertainty most for their time, best first.

    Parameters
    ----------
    recorded : collection of str
        Keys of the cells on record.
    catalogue : Path
        Folder with the headers and characteristics of the campaign's volumes.
    """
    headers, characteristics = (
        _by_volume(pd.read_parquet(catalogue / name))
        for name in (CATALOGUE, CHARACTERISTICS_TABLE)
    )
    rows = {
        key: features(
            headers.get(cell.volume_id),
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
        [plan.expected_s[key] for key in candidates],
        count,
    )
    return [
        {
            "app": cell.app,
            "volume_id": cell.volume_id,
            "subject": cell.subject,
            "image": str(plan.paths.get(cell.volume_id, "")),
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


def _by_volume(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    rows = table.drop_duplicates("volume_id").to_dict("records")
    return {
        str(row["volume_id"]): {str(k): v for k, v in row.items() if k != "volume_id"}
        for row in rows
    }
