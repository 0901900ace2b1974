"""Copies of finished runs until the stage that measures them has ended.

``dvc exp run`` starts by bringing the outputs of all stages back to what ``dvc.lock`` says, also
those that persist. Runs of a stage that was interrupted are not in it, and would be measured
again. Their copies are hard links beside the output, so they take no space.
"""

from __future__ import annotations

import logging
import os
import shutil
from typing import TYPE_CHECKING

from voxcast.files import PARTIAL, remove_folder
from voxcast.history.run_folders import read_row

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)


class SafeCopies:
    """The copies of the runs of one folder.

    Parameters
    ----------
    runs : Path
        Folder of runs, the output of a stage. The copies are in a hidden folder beside it.
    """

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.folder = runs.parent / f".{runs.name}.unfinished"

    def restore(self) -> int:
        """Move copies of runs that are missing into the folder of runs; return their number."""
        missing = [copy for copy in self._copies() if not (self.runs / copy.name).exists()]
        for copy in missing:
            self.runs.mkdir(parents=True, exist_ok=True)
            copy.rename(self.runs / copy.name)
        if missing:
            logger.info("%d runs of an interrupted campaign are back on record", len(missing))
        return len(missing)

    def add(self, run: Path) -> None:
        """Copy a finished run; a failed one is to be measured again, and has no copy."""
        if read_row(run)["outcome"] == "failed":
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        partial, copy = self.folder / f"{PARTIAL}{run.name}", self.folder / run.name
        for earlier in (partial, copy):  # interrupted, or of a run that was measured again
            if earlier.exists():
                remove_folder(earlier)
        shutil.copytree(run, partial, copy_function=_link)
        partial.rename(copy)

    def discard(self) -> None:
        """Remove all copies, after the stage has ended."""
        if self.folder.exists():
            remove_folder(self.folder)

    def _copies(self) -> list[Path]:
        # Names with a leading dot are copies that were interrupted.
        return sorted(path for path in self.folder.glob("[!.]*") if path.is_dir())


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)
