"""``python -m voxcast.measure CELLS OUT``: measure cells on a borrowed machine.

The machine needs a Python with NumPy, the sources of voxcast (``PYTHONPATH=src``), the
requirements of the applications, and the files that ``voxcast measure --campaign NAME --lend``
wrote: a list of cells and, beside it, their volumes. Runs are recorded in OUT, one
folder each, to be copied back. The same command continues after an interruption.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from voxcast.errors import exits_cleanly
from voxcast.measure.host import host_facts
from voxcast.measure.local import run_campaign
from voxcast.measure.plan import CampaignSettings, read_cells

logger = logging.getLogger("voxcast.measure")


@exits_cleanly
def main(argv: Sequence[str] | None = None) -> int:
    """Measure the cells that have no record in the folder yet."""
    parser = argparse.ArgumentParser(
        prog="python -m voxcast.measure", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("cells", type=Path, help="list of cells, with its volumes beside it")
    parser.add_argument("out", type=Path, help="folder that gets one folder per run")
    parser.add_argument(
        "--stop-after", type=float, metavar="S", help="start nothing that would end later"
    )
    args = parser.parse_args(argv)
    if importlib.util.find_spec("pynvml") is None:  # one file of plain Python, beside the list
        sys.path.append(str(args.cells.parent))
    facts = host_facts()
    plan, apps = read_cells(args.cells, facts)
    for note in plan.notes:
        logger.info(note)
    settings = CampaignSettings(apps, args.out, stop_after_s=args.stop_after, host=facts)
    progress = run_campaign(settings, plan)
    print(f"{len(progress.runs)} runs measured, {progress.left} left of {len(plan.cells)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
