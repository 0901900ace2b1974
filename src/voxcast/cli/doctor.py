"""``voxcast doctor``: what works on this machine and in this project, and what that means.

What killed processes left behind, removed: ``voxcast doctor --clean``.

These are processes, control groups and temporary folders of runs whose ``voxcast`` was killed, and
unfinished files and folders of the project that nothing has written to for an hour. The cached
fits in ``build/folds`` are not leftovers: they make learning faster. Measurements, results, and
registered models are never removed.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from voxcast import project as projects
from voxcast.cli import options
from voxcast.cli.machine_checks import machine_checks
from voxcast.cli.project_checks import installation_checks, project_checks
from voxcast.errors import EXIT_BAD_INPUT, VoxcastError, one_line
from voxcast.files import PARTIAL
from voxcast.measure.processes import Kind, Leftover, abandoned, remove, size_bytes
from voxcast.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator


def doctor(
    clean: Annotated[
        bool, Option("--clean", help="Remove what killed processes left behind.")
    ] = False,
    cached_fits: Annotated[
        bool, Option("--cached-fits", help="--clean: also fits that make learning faster.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="--clean: show what would be removed.")
    ] = False,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Show what works on this machine and in this project, and what that means.

    Each line is `works`; `limited`, if a worse method is used; `absent`, if something optional is
    not here; or `broken`, and then the exit code is 2. Measurements, results and models are never
    removed by --clean.
    """
    folder = projects.find(project)
    if clean:
        return remove_leftovers(folder, cached_fits=cached_fits, dry_run=dry_run, as_json=as_json)
    checks = []
    for check in itertools.chain(
        installation_checks(folder), machine_checks(), project_checks(folder)
    ):
        checks.append(check)
        if not as_json:
            print(f"{check.status:8} {check.name:17} {check.fact}")
            if check.meaning and check.status != "works":
                print(f"{'':26} {check.meaning}")
    if as_json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    return EXIT_BAD_INPUT if any(check.status == "broken" for check in checks) else 0


FOLDS = Path("build/folds")
QUIET_S = 3600.0  # a file that is being written is touched more often
SKIPPED = {".git", ".venv", "mlruns", "node_modules"}

logger = logging.getLogger(__name__)


def remove_leftovers(
    folder: Path | None, *, cached_fits: bool, dry_run: bool, as_json: bool
) -> int:
    """Show and remove leftovers; what cannot be removed is named and ends in exit code 2."""
    leftovers = [*abandoned(), *([] if folder is None else project_leftovers(folder))]
    cache = None if folder is None else folder / FOLDS
    if cache is not None and cache.is_dir() and cached_fits:
        leftovers.append(Leftover("folder", str(cache), size_bytes=size_bytes(cache)))
    rows = []
    for leftover in leftovers:
        removed = False
        if not dry_run:
            try:
                remove(leftover)
                removed = True
            except VoxcastError as error:  # the rest is still removed
                logger.error("%s", one_line(error))
        rows.append({
            "kind": leftover.kind, "name": leftover.name, "pids": list(leftover.pids),
            "bytes": leftover.size_bytes, "removed": removed,
        })  # fmt: skip
        if not as_json:
            size = f" ({format_bytes(leftover.size_bytes)})" if leftover.size_bytes else ""
            verb = "removed" if removed else "would remove" if dry_run else "left"
            print(f"{verb} {leftover}{size}")
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("nothing to remove")
    else:
        print(f"{len(rows)} in total, {format_bytes(sum(left.size_bytes for left in leftovers))}")
    if cache is not None and cache.is_dir() and not cached_fits:
        size = format_bytes(size_bytes(cache))
        then = "`voxcast doctor --clean --cached-fits` removes them"
        logger.info("cached fits: %s in %s; %s", size, FOLDS, then)
    return 0 if dry_run or all(row["removed"] for row in rows) else EXIT_BAD_INPUT


def project_leftovers(folder: Path, now_s: float | None = None) -> Iterator[Leftover]:
    """Yield unfinished files and folders of a project.

    Parameters
    ----------
    now_s : float, optional
        Seconds since 1970, from which `QUIET_S` is counted back; the present by default.
    """
    from voxcast.measure.local import is_locked
    from voxcast.measure.processes import was_abandoned

    quiet_since_s = (time.time() if now_s is None else now_s) - QUIET_S
    for path in _partial(folder):
        is_quiet = _changed_s(path) < quiet_since_s and not is_locked(path.parent)
        if is_quiet or was_abandoned(path):
            kind: Kind = "folder" if path.is_dir() else "file"
            yield Leftover(kind, str(path), size_bytes=size_bytes(path))


def _partial(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        unfinished = [name for name in (*folders, *files) if name.startswith(PARTIAL)]
        yield from (Path(parent, name) for name in sorted(unfinished))
        folders[:] = [name for name in folders if name not in {*unfinished, *SKIPPED}]


def _changed_s(path: Path) -> float:
    """Return when a file, or anything in a folder, was changed last, in seconds since 1970."""
    times = [path.lstat().st_mtime]
    for parent, folders, files in os.walk(path):
        times += [Path(parent, name).lstat().st_mtime for name in (*folders, *files)]
    return max(times)
