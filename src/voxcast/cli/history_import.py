"""Runs imported from accounting data and traces, for ``voxcast history import``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project as projects
from voxcast.errors import EXIT_BAD_INPUT, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.runs.imported import NamePattern
    from voxcast.runs.importer import Account, RunImages

KINDS = ("sacct", "nextflow", "snakemake", "slant", "csv")
LISTED_REMARKS = 20  # of a kind
DEFAULT_INTO = Path("data/history/imported")


def import_runs(
    kind: str,
    files: Sequence[Path],
    into: Path | None,
    column_map: Path | None,
    app: str | None,
    pattern: Sequence[str],
    images: Path | None,
    project: Path | None,
    *,
    as_json: bool,
) -> int:
    """Import files; return the exit code, 2 if no record could be used.

    Raises
    ------
    VoxcastError
        If the kind, a file, the map or the pattern cannot be used.
    """
    if kind not in KINDS:
        raise ConfigError("unknown kind", kind, f"choose from {', '.join(KINDS)}")
    from voxcast.runs import csv_table, importer, slant

    paths = list(files) or ([slant.folder()] if kind == "slant" else [])
    if not paths:
        raise ConfigError("no file given", kind)
    columns = csv_table.load_map(column_map) if column_map else None
    patterns = patterns_of(pattern)
    if app is not None and "app" in patterns:
        raise ConfigError("cannot be given together", "--app and a pattern with an app")
    folder = into or projects.require(project) / DEFAULT_INTO
    result = importer.import_files(
        kind, paths, folder, app, columns,
        app_pattern=patterns.get("app"), subject_pattern=patterns.get("subject"),
        images=None if images is None else run_images(images, project),
    )  # fmt: skip
    if as_json:
        print(json.dumps(asdict(result) | {"into": str(folder)}, indent=2))
    else:
        _print(result, folder, with_images=images is not None)
    if result.bad and len(result.bad) == result.read:
        print("voxcast: no record could be used", file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


def patterns_of(texts: Sequence[str]) -> dict[str, NamePattern]:
    """Return the patterns of application and subject in regular expressions.

    A group without a name is the application.

    Raises
    ------
    ConfigError
        If one is no regular expression, or has no group.
    """
    from voxcast.runs.imported import name_pattern

    patterns = {}
    for text in texts:
        pattern = name_pattern(text, "app", "--pattern")
        named = pattern.regex.groupindex
        if "app" in named or not named:
            patterns["app"] = pattern
        if "subject" in named:
            patterns["subject"] = name_pattern(text, "subject", "--pattern")
    if texts and not patterns:
        then = "e.g. (?P<app>[a-z]+)"
        raise ConfigError(f"has no group app or subject: {texts[0]!r}", "--pattern", then)
    return patterns


def run_images(folder: Path, project_folder: Path | None) -> RunImages:
    """Return the images, to be read on the grid of the project, if there is one."""
    from voxcast.images.volume import POINTS
    from voxcast.runs.importer import RunImages

    root = projects.find(project_folder)
    if root is None:
        return RunImages(folder, POINTS)
    from voxcast import config
    from voxcast.images.characteristics import load_lab_characteristics

    features = config.load(root / projects.PROJECT_FILE).features
    lab = load_lab_characteristics(features.characteristics, root)
    return RunImages(folder, features.coarse_points, lab)


def _print(account: Account, into: Path, *, with_images: bool) -> None:
    titles = (("bad", account.bad), ("skipped", account.skipped), ("unknown", account.unread))
    for title, remarks in titles:
        for remark in remarks[:LISTED_REMARKS]:
            print(f"{title:8} {remark.file}:{remark.line}: {remark.reason}")
        if (unlisted := len(remarks) - LISTED_REMARKS) > 0:
            print(f"{title:8} and {unlisted} more; --json lists all")
    if account.unread:
        fields = Counter(remark.reason.partition(":")[0] for remark in account.unread)
        listed = ", ".join(f"{count} × {name}" for name, count in fields.most_common())
        print(f"fields that could not be read and are unknown: {listed}")
    if account.unknown:
        listed = ", ".join(f"{column} of {count}" for column, count in account.unknown.items())
        print(f"of {account.imported} imported runs the source does not state: {listed}")
    if account.with_image or account.without_image:
        print(f"of {account.imported} imported runs {account.with_image} have an image")
    reasons = list(account.without_image.items())
    for reason, count in reasons[:LISTED_REMARKS]:
        print(f"no image {count} × {reason}")
    if (unlisted := len(reasons) - LISTED_REMARKS) > 0:
        print(f"no image and {unlisted} more reasons; --json lists all")
    if account.duplicates and with_images:
        print(
            f"{account.duplicates} duplicates stay as they are on record; to give runs that were "
            "imported without an image one, import them into a new folder, --into DIR"
        )
    if (
        account.source == "sacct"
        and account.unknown.get("peak_rss_bytes", 0) == account.imported > 0
    ):
        print("no job has a MaxRSS, which is on the lines of job steps: export them without -X")
    print(
        f"{account.read} read = {account.imported} imported + {account.duplicates} duplicates "
        f"+ {len(account.skipped)} skipped + {len(account.bad)} bad"
    )
    outcome = (
        "nothing new to write" if account.part is None else f"written to {into / account.part}"
    )
    print(outcome, file=sys.stderr)
