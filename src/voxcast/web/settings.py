"""What a service is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Where a service finds its model and images, and whom it answers.

    Attributes
    ----------
    registry : str
        Tracking address of the registry.
    project : Path, optional
        Project folder, for its clusters, policies and history.
    machines : Path, optional
        File with the speeds of machines, see `voxcast.serving.machine_file`.
    token : str, optional
        What a client sends as ``Authorization: Bearer TOKEN``; None for no check.
    roots : tuple of Path
        Folders whose images may be named by their path.
    poll_s : float
        Time between two looks for another champion.
    """

    registry: str
    project: Path | None = None
    machines: Path | None = None
    token: str | None = None
    roots: tuple[Path, ...] = ()
    poll_s: float = 2.0
