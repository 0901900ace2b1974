"""``voxcast recommend``: the request to make for each image, and for all as an array job."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from voxcast.api.wish import Wish
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, ConfigError
from voxcast.quantities import counted

logger = logging.getLogger(__name__)


def recommend(
    images: Annotated[list[Path], Argument(metavar="IMAGE...", show_default=False)],
    app: options.App = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    parameters: options.Parameters = None,
    model: options.Model = None,
    machine: options.Machine = None,
    header_only: options.HeaderOnly = False,
    cluster: options.Cluster = None,
    policy: options.Policy = None,
    deadline: options.Deadline = None,
    budget: options.Budget = None,
    changes: options.Set = None,
    form: Annotated[
        Literal["text", "sbatch", "csv"],
        Option(
            "--as",
            metavar="text|sbatch|csv",
            help="sbatch: #SBATCH lines, or the script of an array job; csv: time and memory of "
            "the first, second and third attempt, for workflow engines.",
        ),
    ] = "text",
    out: Annotated[
        Path | None, Option("--out", metavar="FILE", help="Write it to this file.")
    ] = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Recommend the cheapest request of each image that is safe, within deadline and budget.

    Every allocation is shown with its time, memory and cost; those that no other beats in both
    time and cost are marked.
    """
    from voxcast.allocation.recommendation_text import text_lines
    from voxcast.files import write_text
    from voxcast.jobs.script import slurm_text
    from voxcast.jobs.task import resources, write_resources

    if form == "csv" and out is None:
        raise ConfigError("is needed for a table", "--out", "give --out FILE.csv")
    question = options.question(app, cpus, gpus, parameters, model, header_only, machine, project)
    wish = Wish(question, cluster, policy, deadline, options.usd(budget), changes or ())
    wish.limits()
    site = wish.slurm_site() if form == "sbatch" else wish.site()
    recommendation = wish.recommendation(images, site)
    if recommendation is None:
        return EXIT_BAD_INPUT
    code = EXIT_BAD_INPUT if len(recommendation.images) < len(images) else 0
    refused = list(recommendation.without_request())
    text = None
    if as_json:
        text = json.dumps(recommendation.as_json(), indent=2, allow_nan=False) + "\n"
    elif form == "sbatch":
        text = slurm_text(recommendation)
    elif form == "text":
        text = "".join(f"{line}\n" for line in text_lines(recommendation))
    if text is None:
        rows = resources(recommendation)
        write_resources(rows, Path(str(out)))
        logger.info("%s: requests of %s", out, counted(len(rows), "image"))
    elif out is not None:
        write_text(out, text)
    else:
        print(text, end="")
    if form != "text" or as_json:  # which the text says itself
        for image, reason in refused:
            logger.error("%s: %s", image, reason)
    return EXIT_BAD_INPUT if refused else code
