"""``voxcast inspect``: header and image characteristics, or the image set of a project."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Option

from voxcast import config
from voxcast import project as projects
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, ImageError, one_line
from voxcast.images import sources
from voxcast.images.header import log_itk_refusals
from voxcast.images.volume import POINTS, Volume
from voxcast.quantities import format_voxels
from voxcast.text_table import text_table

IMAGE_LIST = Path("data/images/images.tsv")

logger = logging.getLogger(__name__)


def inspect(
    images: options.Images = None,
    header_only: options.HeaderOnly = False,
    refresh: Annotated[bool, Option("--refresh", hidden=True)] = False,  # `make repro`
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Show the header and the characteristics of images; without one, the project's image set."""
    if refresh:
        folder = projects.require(project)
        chosen = config.load(folder / config.PARAMS_FILE).images
        if changes := sources.refresh_sources(folder, chosen.path, chosen.participants):
            print(changes, file=sys.stderr)
        return 0
    if not images:
        return _show_set(projects.require(project), as_json=as_json)
    from voxcast.images.summary import Grids, summarise

    rows = []
    for path in images:
        try:
            volume = Volume.open(path)
            columns: dict[str, object] = {"path": str(path), **volume.header.columns()}
            if not header_only:
                columns |= summarise(volume, Grids(POINTS)).characteristics
        except ImageError as error:  # the other images are still shown
            logger.error("%s", one_line(error))
            continue
        log_itk_refusals([(path, volume.itk_refusal)])
        rows.append(columns)
    lines = (
        f"{name:28} {_text(name, value)}" if name else ""
        for columns in rows
        for name, value in [*columns.items(), ("", "")]
    )
    if rows:
        options.show(rows, lines, as_json=as_json)
    return 0 if len(rows) == len(images) else EXIT_BAD_INPUT


def _show_set(folder: Path, *, as_json: bool) -> int:
    path = folder / IMAGE_LIST
    files = sources.read_tsv(path) if path.is_file() else []
    rows = [
        (file.subject, file.session, file.suffix, file.path,
         f"({file.problem})" if file.problem else "")
        for file in files
    ]  # fmt: skip
    lines = [text_table(rows, "<<<<<")] if rows else []
    options.show([asdict(file) for file in files], lines, as_json=as_json)
    print(f"{len(files)} images", file=sys.stderr)
    return 0


def _text(name: str, value: object) -> str:
    from voxcast.images.characteristics import CHARACTERISTICS

    if not isinstance(value, float):
        return str(value)
    if name.endswith("_voxels"):
        return format_voxels(value)
    entry = CHARACTERISTICS.get(name)
    return f"{value:.4g} {entry.unit if entry else ''}".rstrip()
