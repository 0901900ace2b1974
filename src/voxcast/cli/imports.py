"""``voxcast import``: add runs from accounting data or traces to the history."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project
from voxcast.cli.shared_options import add_project_argument
from voxcast.errors import EXIT_BAD_INPUT, ConfigError

if TYPE_CHECKING:
    from voxcast.history.imports.ledger import Ledger

KINDS = {
    "sacct": "Slurm: `sacct -P` with any columns, or `sacct --json`",
    "nextflow": "trace.txt, raw or formatted",
    "snakemake": "benchmark files of rules",
    "slant": "the published SLANT runs; folder as FILE or in VOXCAST_SLANT_ARTIFACT",
    "csv": "any table, with --map",
}
DEFAULT_INTO = Path("data/history/imported")


def main(argv: list[str]) -> int:
    """Import files and report what became of every record."""
    parser = argparse.ArgumentParser(
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
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv)

    from voxcast.history.imports import column_map, ledger, slant

    files = args.files or ([slant.folder()] if args.kind == "slant" else [])
    if not files:
        raise ConfigError("no file given", args.kind)
    columns = column_map.load_map(args.map) if args.map else None
    into = args.into or project.require(args.project) / DEFAULT_INTO
    result = ledger.import_files(args.kind, files, into, args.app, columns)
    if args.json:
        print(json.dumps(asdict(result) | {"into": str(into)}, indent=2))
    else:
        _print(result, into)
    if result.bad and len(result.bad) == result.read:
        print("voxcast: no record could be used", file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


def _print(ledger: Ledger, into: Path) -> None:
    for title, remarks in (("bad", ledger.bad), ("skipped", ledger.skipped)):
        for remark in remarks:
            print(f"{title:8} {remark.file}:{remark.line}: {remark.reason}")
    print(
        f"{ledger.read} read = {ledger.imported} imported + {ledger.duplicates} duplicates "
        f"+ {len(ledger.skipped)} skipped + {len(ledger.bad)} bad"
    )
    outcome = "nothing new to write" if ledger.part is None else f"written to {into / ledger.part}"
    print(outcome, file=sys.stderr)
