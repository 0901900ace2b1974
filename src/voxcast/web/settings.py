"""Settings of a service."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from voxcast.serving.model_store import ModelStore

MAX_UPLOAD_BYTES = 2**29


@dataclass(frozen=True)
class ImageLimits:
    """What reading the images of a service may take.

    Attributes
    ----------
    voxels : int
        Number that a header may declare; 2²⁸ are a cube of 645.
    memory_bytes : int
        Memory that reading one may allocate, beyond an idle reader.
    read_s : int
        Seconds in which one must be read.
    readers : int
        Processes that read images.
    images : int
        Images that are received, wait or are read at a time; more are answered with 503.
    """

    voxels: int = 2**28
    memory_bytes: int = 240_000_000
    read_s: int = 120
    readers: int = 2
    images: int = 16


@dataclass(frozen=True)
class Settings:
    """Where a service finds its model and images, and whom it answers.

    Attributes
    ----------
    store : ModelStore
        The versions of the model.
    project : Path, optional
        Project folder, for its clusters, policies and history.
    registry : str, optional
        Address of a registry of MLflow that others write to, whose champion is fetched.
    machines : Path, optional
        File with the speeds of machines, see `voxcast.serving.machines`.
    token : str, optional
        Sent by clients as ``Authorization: Bearer TOKEN``; None for no check.
    roots : tuple of Path
        Folders whose images may be named by their path.
    poll_s : float
        Time between two looks for another champion.
    hosts : tuple of str
        Names by which clients may call the service, without port; empty for any. A page of another
        site whose name was pointed at this machine is refused by it.
    max_upload_bytes : int
        Size of the largest request with an image.
    images : ImageLimits
        What reading an image may take.
    """

    store: ModelStore
    project: Path | None = None
    registry: str | None = None
    machines: Path | None = None
    token: str | None = field(default=None, repr=False)
    roots: tuple[Path, ...] = ()
    poll_s: float = 2.0
    hosts: tuple[str, ...] = ()
    max_upload_bytes: int = MAX_UPLOAD_BYTES
    images: ImageLimits = ImageLimits()
