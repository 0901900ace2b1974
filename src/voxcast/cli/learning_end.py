"""What ``voxcast learn`` prints at its end: the summary, images that failed, and runs left."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.measure.campaign import failed_images
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.config.learning import DeviceOutlook

SUMMARY = Path("results/report/summary.txt")
MAX_SHOWN = 10

logger = logging.getLogger(__name__)


def show_end(devices: Sequence[DeviceOutlook], again: str, *, as_json: bool) -> None:
    """Print the end of learning.

    Parameters
    ----------
    devices : sequence of DeviceOutlook
        What would be measured now.
    again : str
        The command that continues.
    as_json : bool
        One JSON document, with all images that failed.
    """
    # Failed runs are not left to do: only a mended tool measures them.
    left = sum(entry.outlook.left - entry.outlook.failed for entry in devices)
    left_s = sum(entry.outlook.left_s - entry.outlook.failed_s for entry in devices)
    failed = [
        image for entry in devices for image in failed_images(entry.settings.runs, entry.plan)
    ]
    summary = SUMMARY.read_text(encoding="utf-8")
    if as_json:
        lines = (line.partition(" ") for line in summary.splitlines())
        content = {name: text.strip() for name, _, text in lines}
        print(json.dumps({"summary": content, "left": left, "left_s": left_s, "failed": failed},
                         indent=2))  # fmt: skip
    else:
        print(summary, end="")
        _show_failed(failed)
    if left:
        logger.info(
            "%d runs are left, about %s; `%s` continues", left, format_seconds(left_s), again
        )


def _show_failed(failed: Sequence[dict[str, Any]]) -> None:
    for image in failed[:MAX_SHOWN]:
        where = f"sub-{image['subject']}" if image["subject"] else image["image"]
        count = f"{image['runs']} runs" if image["runs"] > 1 else "1 run"
        reason = f"{image['app']}: {image['cause']}; see {image['log']}"
        print(f"{'failed':12} {where}, {count} of {reason}")
    if not failed:
        return
    if len(failed) > MAX_SHOWN:
        print(f"{'':12} and {len(failed) - MAX_SHOWN} more images, all with --json")
    print(f"{'':12} nothing was learned from these runs; the same command tries them once more")
    print(f"{'':12} mend the tool, or name the other images by --participant-label")
