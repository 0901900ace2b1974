"""The command line: one module per verb, each with a parser and a main."""

from __future__ import annotations

import argparse
import importlib
import sys

import voxcast
from voxcast.cli.verb_parser import VerbParser, meant
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, exits_cleanly

# Help text of each verb; its module is imported only when the verb is called.
VERBS = {
    "init": "write a project into a folder, for your own images and applications",
    "app": "new|list|show: describe an application by its command line, and try it",
    "learn": "from your images and an application to a registered model, in one command",
    "inspect": "header and image characteristics of an image",
    "images": "list the image set; --refresh notices changed files",
    "fit": "train a model of any table, evaluated on held-out groups",
    "predict": "predict runtime and memory of an application on an image, per configuration",
    "recommend": "recommend a request: the cheapest or fastest that is safe",
    "submit": "run an application on a cluster: predicted requests, more after a failure",
    "status": "where a submission stands: tasks, attempts, what was asked and used",
    "drift": "whether predictions still hold for the last jobs, and if not, in what",
    "retrain": "a new model from all that is on record, if it is better on the newest jobs",
    "requests": "sequences of ever longer requests, and their expected cost",
    "profile": "run an application on this machine and measure it",
    "campaign": "run|status|collect NAME: measure a campaign in sittings and record it",
    "work": "--pool DIR: take cells of a pool that fit this machine or job, run and record them",
    "compare": "CPU and GPU compared: speed-up, noise, memory, cost, smallest gains",
    "models": "versions of the registered model, and why one is the champion",
    "serve": "serve predictions of the champion over HTTP",
    "host": "how fast this machine is; measure tells it by a few short runs",
    "doctor": "what works on this machine, and what that means for measurements",
    "audit": "what a site's jobs asked for, used and lost, from its accounting",
    "clean": "remove what killed processes left behind",
    "import": "import histories: sacct, Nextflow, Snakemake, SLANT, any CSV",
    "phases": "time and memory of each phase, and requests for a chain of jobs",
    "trace": "record the communication of an mpi4py program, or read a trace",
    "replay": "cost of request strategies on held-out runs",
    "variation": "variation of runtimes: distributions, modes, constancy of memory",
}
MODULES = {"import": "imports"}  # `import` is a Python keyword, which cannot name a module


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run a verb; the entry point ``voxcast``."""
    parser = VerbParser(
        prog="voxcast",
        description=voxcast.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="verbs:\n" + "\n".join(f"  {verb:10} {text}" for verb, text in VERBS.items()),
    )
    parser.add_argument("--version", action="version", version=f"voxcast {voxcast.__version__}")
    parser.add_argument("verb", nargs="?", metavar="verb", help="one of the verbs below")
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments:
        parser.print_help(sys.stderr)
        return EXIT_BAD_INPUT
    if arguments[0].startswith("-"):
        parser.parse_known_args(arguments[:1])  # --help and --version end here
        raise ConfigError("unknown option", arguments[0], "options of a verb follow the verb")
    verb = arguments[0]
    if verb not in VERBS:
        raise ConfigError("unknown verb", verb, meant(verb, VERBS, "see `voxcast --help`"))
    module = importlib.import_module(f"voxcast.cli.{MODULES.get(verb, verb)}")
    code: int = module.main(arguments[1:])
    return code
