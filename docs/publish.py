"""Copy results of this machine into ``published/``, which git tracks and pages are made from.

``python docs/publish.py [FOLDER...]`` takes the folders of ``results/`` that have been published,
or the ones named.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from voxcast.errors import ConfigError, exits_cleanly

PROJECT = Path(__file__).resolve().parents[1]


def publish(project: Path, names: Sequence[str] = ()) -> list[Path]:
    """Copy folders of results, and return the files that were written.

    Raises
    ------
    ConfigError
        If there are no results of a name.
    """
    results, published = project / "results", project / "published"
    for name in names:
        if not (results / name).is_dir():
            raise ConfigError("no results of this name", results / name, "make them first")
    present = [path.name for path in sorted(published.iterdir()) if path.is_dir()]
    written = []
    for name in names or present:
        for source in sorted(path for path in (results / name).rglob("*") if path.is_file()):
            target = published / source.relative_to(results)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            written.append(target)
    return written


@exits_cleanly
def main() -> int:
    """Publish the folders named on the command line."""
    for path in publish(PROJECT, sys.argv[1:]):
        print(path.relative_to(PROJECT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
