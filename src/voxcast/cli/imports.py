"""``voxcast import``: add runs from accounting data or traces to the history."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project
from voxcast.cli.shared_options import add_project_argument
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import EXIT_BAD_INPUT, ConfigError

if TYPE_CHECKING:
    from voxcast.runs.images import RunImages
    from voxcast.runs.importer import Account

KINDS = {
    "sacct": "Slurm: `sacct -P` with any columns",
    "nextflow": "trace.txt, raw or formatted",
    "snakemake": "benchmark files of rules",
    "slant": "the published SLANT runs; folder as FILE or in VOXCAST_SLANT_ARTIFACT",
    "csv": "any table, with --map",
}
LISTED_REMARKS = 20  # of a kind
DEFAULT_INTO = Path("data/history/imported")


def main(argv: list[str]) -> int:
    """Import files and report what became of every record."""
    parser = VerbParser(
        prog="voxcast import",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="kinds:\n"
        + "\n".join(f"  {kind:10} {description}" for kind, description in KINDS.items()),
    )
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help="one of the kinds below")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument(
        "--into", type=Path, help=f"history to add to (default: {DEFAULT_INTO} of the project)"
    )
    parser.add_argument("--map", type=Path, help="column map of a CSV table, in YAML")
    parser.add_argument("--app", help="name of the application; overrides the one in the file")
    parser.add_argument(
        "--app-pattern", metavar="REGEX",
        help="take the application out of the job's name: the group `app`, or the first group; "
        "other jobs are skipped",
    )  # fmt: skip
    parser.add_argument(
        "--subject-pattern", metavar="REGEX",
        help="take the subject out of the job's name: the group `subject`, or the first group",
    )  # fmt: skip
    parser.add_argument(
        "--images", type=Path, metavar="DIR",
        help="images of the runs, matched by subject and session, so that the runs can train: a "
        "BIDS dataset or a folder of NIfTI files",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv)

    if args.app is not None and args.app_pattern is not None:
        raise ConfigError("cannot be given together", "--app and --app-pattern")

    from voxcast.runs import csv_table, importer, slant
    from voxcast.runs.imported import name_pattern

    files = args.files or ([slant.folder()] if args.kind == "slant" else [])
    if not files:
        raise ConfigError("no file given", args.kind)
    columns = csv_table.load_map(args.map) if args.map else None
    app_pattern, subject_pattern = (
        None if text is None else name_pattern(text, group, f"--{group}-pattern")
        for text, group in ((args.app_pattern, "app"), (args.subject_pattern, "subject"))
    )
    into = args.into or project.require(args.project) / DEFAULT_INTO
    result = importer.import_files(
        args.kind, files, into, args.app, columns,
        app_pattern=app_pattern, subject_pattern=subject_pattern,
        images=None if args.images is None else _run_images(args.images, args.project),
    )  # fmt: skip
    if args.json:
        print(json.dumps(asdict(result) | {"into": str(into)}, indent=2))
    else:
        _print(result, into, with_images=args.images is not None)
    if result.bad and len(result.bad) == result.read:
        print("voxcast: no record could be used", file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


def _run_images(folder: Path, project_folder: Path | None) -> RunImages:
    """Return the images, to be read on the grid of the project, if there is one."""
    from voxcast.images.volume import POINTS
    from voxcast.runs.images import RunImages

    root = project.find(project_folder)
    if root is None:
        return RunImages(folder, POINTS)
    from voxcast import config
    from voxcast.images.lab_characteristics import load_lab_characteristics

    features = config.load(root / project.PROJECT_FILE).features
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
