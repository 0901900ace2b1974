"""The stage that measures what is missing of a campaign on one device, and lists its profiles."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from voxcast.campaigns.driver import run_campaign
from voxcast.campaigns.plan import make_plan
from voxcast.history.parts import PHASES, TRACES
from voxcast.history.run_folders import write_profiles
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.campaigns.recorder import Conditions
    from voxcast.campaigns.sweeps import Sweep
    from voxcast.records import App, Configuration


def profile_device(
    device: str,
    apps: Mapping[str, App],
    rows: pd.DataFrame,
    configurations: Sequence[Configuration],
    folder: Path,
    *,
    sweeps: Sequence[Sweep],
    conditions: Conditions,
    recipes: Mapping[str, dict[str, Any]],
    budget_s: float | None,
    stop_after_s: float | None,
    seed: int,
    parallel: int = 1,
    anchors: int = 0,
) -> pd.DataFrame:
    """Measure what is missing of the campaign on ``device`` and write its table of profiles.

    Where nothing can be measured the table is empty and carries the reason in its notes. For the
    other arguments see `make_plan` and `run_campaign`. Noisy runs are repeated within the budget.
    """
    plan = make_plan(
        sweeps, apps, rows, configurations, budget_s=budget_s, seed=seed, anchors=anchors
    )
    notes = list(plan.notes)
    if not configurations:
        notes.append(f"{device}: not among the devices of this campaign")
    elif not any(device in app.devices for app in apps.values()):
        notes.append(f"{device}: no application of this campaign can use it")
    for note in notes:
        print(f"voxcast: {note}", file=sys.stderr)
    progress = run_campaign(
        plan.cells,
        plan.paths,
        folder,
        apps=apps,
        conditions=conditions,
        recipes=recipes,
        expected_s=plan.expected_s,
        anchors=plan.anchors,
        stop_after_s=stop_after_s,
        repeat_noisy_s=budget_s,
        parallel=parallel,
    )
    if progress.left:
        notes.append(
            f"{device}: stopped at its budget with {progress.left} runs left, about "
            f"{format_seconds(progress.left_s)}; go on by dvc repro -f -s profile@{device}"
        )
        print(f"voxcast: {notes[-1]}", file=sys.stderr)
    for name in (PHASES, TRACES):  # of a recorded history that was here before
        (folder / name).unlink(missing_ok=True)
    return write_profiles(folder, notes)
