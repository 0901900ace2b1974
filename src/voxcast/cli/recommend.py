"""``voxcast recommend IMAGE…``: recommended request for each image and for an array job.

With ``--signature`` for a parallel run, by its predicted time on several types of nodes.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from voxcast.cli.recommend_signatures import (
    add_signature_arguments,
    recommendation_by_signatures,
)
from voxcast.cli.recommendation_options import (
    add_recommendation_arguments,
    hard_limits,
    recommendation_of,
    refuse_local,
    site_of,
)
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import EXIT_BAD_INPUT
from voxcast.quantities import counted

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print every configuration with its cost and time, and the recommended one."""
    parser = VerbParser(prog="voxcast recommend", description=__doc__)
    parser.add_argument("images", nargs="*", type=Path, metavar="IMAGE")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object on stdout")
    output.add_argument(
        "--slurm", action="store_true",
        help="print #SBATCH lines, or the script of one array job for several images",
    )  # fmt: skip
    output.add_argument(
        "--resources", type=Path, metavar="FILE",
        help="write a table for workflow engines, as CSV: time and memory of each image "
        "at the first, second and third attempt",
    )  # fmt: skip
    add_signature_arguments(parser)
    add_recommendation_arguments(parser)
    args = parser.parse_intermixed_args(argv)

    from voxcast.allocation.recommendation_text import text_lines
    from voxcast.jobs.script import slurm_text
    from voxcast.jobs.task import resources, write_resources

    if not args.images and not args.signature:
        parser.error("give images, or --signature NODE=FILE")
    limits = hard_limits(args)
    site = site_of(args)
    if args.slurm:
        refuse_local(site, args)
    recommendation = (
        recommendation_by_signatures(args, site, limits)
        if args.signature
        else recommendation_of(args, args.images, site, limits)
    )
    if recommendation is None:
        return EXIT_BAD_INPUT
    code = EXIT_BAD_INPUT if len(recommendation.images) < len(args.images) else 0
    refused = list(recommendation.without_request())
    if args.json:
        print(json.dumps(recommendation.as_json(), indent=2, allow_nan=False))
    elif args.resources is not None:
        rows = resources(recommendation)
        write_resources(rows, args.resources)
        logger.info("%s: requests of %s", args.resources, counted(len(rows), "image"))
    elif args.slurm:
        print(slurm_text(recommendation), end="")
    else:
        for line in text_lines(recommendation):
            print(line)
        return EXIT_BAD_INPUT if refused else code
    for image, reason in refused:  # which the text says itself
        logger.error("%s: %s", image, reason)
    return EXIT_BAD_INPUT if refused else code
