"""The commit of a project, for provenance."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CHANGED = "+changes"  # follows the commit if the code was changed since


def commit_of(project: Path, code: tuple[str, ...] = ()) -> str:
    """Return the commit that is checked out in a project; empty if there is none.

    Parameters
    ----------
    code : tuple of str
        Paths in the project. If a tracked file below them was changed, `CHANGED` follows.
    """
    head = _git(project, "rev-parse", "HEAD")
    if head is None or head.returncode:
        return ""
    changed = _git(project, "diff", "--quiet", "HEAD", "--", *code) if code else None
    suffix = CHANGED if changed is not None and changed.returncode == 1 else ""
    return head.stdout.strip() + suffix


def _git(project: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run git in a folder; None if there is no git on this machine."""
    try:
        return subprocess.run(
            ["git", *arguments],  # noqa: S607
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
