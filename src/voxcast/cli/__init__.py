"""The command line: one file per verb, each with a parser and a main."""

from __future__ import annotations

import argparse
import importlib
import sys

import voxcast
from voxcast.errors import EXIT_BAD_INPUT, exits_cleanly

# Verb to what it is for; the module of the same name is imported only when the verb is called.
VERBS = {
    "inspect": "what the catalogue knows of an image",
    "images": "list the image set; --refresh notices changed files",
    "fit": "learn a column of any table, and judge it on groups not seen",
    "predict": "runtime and memory of an application on an image, per configuration",
    "recommend": "what to ask the scheduler for: the cheapest or fastest request that is safe",
    "queue": "replay a workload trace: what changes when jobs ask for other times",
    "requests": "what to ask a scheduler for, one request after the other, and what that costs",
    "profile": "run an application here, now, and say what it took",
    "campaign": "run|status|collect NAME: measure in sittings, and record for good",
    "compare": "CPU against GPU: speed-up, noise, memory, cost, which images gain least",
    "models": "versions of the registered model, which is champion, and why",
    "serve": "answer over HTTP with the registered champion",
    "import": "other people's histories: sacct, Nextflow, Snakemake, SLANT, any CSV",
    "phases": "what each phase needs, and requests for a chain of jobs",
    "replay": "what ways of asking would have cost on runs held out",
    "variation": "how runtimes vary: distributions, modes, constancy of memory",
}
MODULES = {"import": "imports"}  # where the verb is a keyword of Python


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run a verb; the entry point ``voxcast``."""
    parser = argparse.ArgumentParser(
        prog="voxcast",
        description=voxcast.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="verbs:\n" + "\n".join(f"  {verb:10} {what}" for verb, what in VERBS.items()),
    )
    parser.add_argument("--version", action="version", version=f"voxcast {voxcast.__version__}")
    parser.add_argument("verb", choices=VERBS, metavar="verb", help="one of the verbs below")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = sys.argv[1:] if argv is None else argv
    if not given:
        parser.print_help(sys.stderr)
        return EXIT_BAD_INPUT
    args = parser.parse_args(given)
    module = importlib.import_module(f"voxcast.cli.{MODULES.get(args.verb, args.verb)}")
    code: int = module.main(args.rest)
    return code
