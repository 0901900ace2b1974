"""Images on which an application fails: when that ends a campaign, and what it is reported as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.campaigns.recorder import log_tail
from voxcast.errors import RunError
from voxcast.history.run_folders import record_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from voxcast.campaigns.plan import CampaignPlan
    from voxcast.records import Cell

# An application that failed on so many images, and never completed, is assumed unable to run here.
# Otherwise all of its cells would be recorded as failed within minutes.
MAX_IMAGES = 5
MAX_CAUSE_CHARACTERS = 160


class Failures:
    """Counts the images on which an application failed before any run of its version completed.

    Parameters
    ----------
    rows : iterable of mapping
        The runs on record in the folder of the campaign.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._able = {
            (row["app"], row["app_version"]) for row in rows if row["outcome"] == "completed"
        }
        self._images: dict[tuple[str, str], set[str]] = {}

    def count(self, cell: Cell, outcome: str) -> None:
        """Count a run of ``cell``."""
        version = cell.app, cell.app_version
        if outcome == "completed":
            self._able.add(version)
        elif outcome == "failed":  # each run of an application without an input counts
            self._images.setdefault(version, set()).add(cell.volume_id or cell.key)

    def check(self, cell: Cell, run: Path) -> None:
        """Check that the application of ``cell`` can run here.

        Raises
        ------
        RunError
            If it failed on `MAX_IMAGES` images, and no run of it has completed.
        """
        version = cell.app, cell.app_version
        if version not in self._able and len(self._images.get(version, ())) >= MAX_IMAGES:
            then = "mend it and run the same command again: failed runs are tried again"
            raise RunError(
                f"{cell.app} failed on {MAX_IMAGES} images and never completed", run, then
            )


@dataclass(frozen=True)
class FailedImage:
    """An image with runs that failed; `cause` and `log` are of the last of them."""

    app: str
    subject: str
    image: str
    runs: int
    cause: str
    log: str


def failed_images(runs: Path, plan: CampaignPlan) -> list[FailedImage]:
    """Return the images with failed runs of ``plan``, in the order of their runs.

    Parameters
    ----------
    runs : Path
        Folder with a folder for each run.
    """
    rows = record_rows(runs)
    failed: dict[tuple[str, str], list[str]] = {}
    for key, cell in plan.cells.items():
        if key in rows and rows[key]["outcome"] == "failed":
            failed.setdefault((cell.app, cell.volume_id), []).append(key)
    return [
        FailedImage(
            app,
            plan.cells[keys[-1]].subject,
            str(plan.paths.get(volume_id, "")),
            len(keys),
            cause_of(runs / keys[-1], rows[keys[-1]]["exit_status"]),
            str(runs / keys[-1]),
        )
        for (app, volume_id), keys in failed.items()
    ]


def cause_of(run: Path, exit_status: float | None) -> str:
    """Return the last line of a run's log, and its exit status."""
    try:
        lines = log_tail(run).strip().splitlines()
    except OSError:
        lines = []
    last = "".join(c for c in lines[-1] if c.isprintable()) if lines else ""
    status = "" if exit_status is None else f"exit status {exit_status:.0f}"
    return ", ".join(part for part in (last[:MAX_CAUSE_CHARACTERS], status) if part) or "unknown"
