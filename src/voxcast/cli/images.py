"""``voxcast images``: list the image set of the project; detect changed files of the user."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from voxcast import config, project
from voxcast.cli.shared_options import add_project_argument
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError, is_disk_full
from voxcast.images import sources
from voxcast.text_table import text_table

SOURCES = Path("data/sources.tsv")
IMAGE_LIST = Path("data/images/images.tsv")


def main(argv: list[str]) -> int:
    """List the image set, or update the tracked list of the user's images."""
    parser = VerbParser(prog="voxcast images", description=__doc__)
    parser.add_argument(
        "--refresh",
        action="store_true",
        help="update data/sources.tsv for files whose size or time changed; done by learn",
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv)
    folder = project.require(args.project)
    if args.refresh:
        return refresh_sources(folder, config.load(folder / config.PARAMS_FILE).images)
    image_list = folder / IMAGE_LIST
    files = sources.read_tsv(image_list) if image_list.is_file() else []
    if args.json:
        print(json.dumps([asdict(file) for file in files], indent=2))
    else:
        rows = [
            (file.subject, file.session, file.suffix, file.path,
             f"({file.problem})" if file.problem else "")
            for file in files
        ]  # fmt: skip
        if rows:
            print(text_table(rows, "<<<<<"))
    print(f"{len(files)} images", file=sys.stderr)
    return 0


def refresh_sources(folder: Path, images: config.ImagesConfig) -> int:
    """Update the tracked list of the user's images in the project ``folder``."""
    path = folder / SOURCES
    earlier = sources.read_tsv(path) if path.is_file() else []
    files = []
    if images.path is not None:
        files = sources.refresh(earlier, folder / images.path, images.participants)
    if files != earlier:
        try:
            sources.write_tsv(path, files)
        except OSError as error:
            if is_disk_full(error):
                raise
            then = "ask its owner to refresh it; images that are listed can be used as they are"
            reason = (error.strerror or "").lower()
            raise ConfigError(f"cannot be written ({reason})", path, then) from None
        before, now = ({(f.path, f.sha256) for f in listed} for listed in (earlier, files))
        gone = len(before - now)
        # A volume is never used in place of another: runs on the earlier one count.
        changed = (
            f", {gone} changed or no longer here; runs of these stay on record" if gone else ""
        )
        print(
            f"{SOURCES}: {len(files)} images; {len(now - before)} new or changed{changed}",
            file=sys.stderr,
        )
    return 0
