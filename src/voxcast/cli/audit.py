"""``voxcast audit``: requested, used and lost resources of a site's jobs, from its accounting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast import project as projects
from voxcast.cli import options

if TYPE_CHECKING:
    from voxcast.allocation.site import Cluster
    from voxcast.audit.savings import Objective

KEYS = ("user", "account", "partition", "app")
TOP = 10  # groups of each kind that are printed
APPS = 20  # whose requests are judged
EXPORT = (
    "sacct -a -D -P -S 2026-01-01 -E now --format=JobID,JobName,User,Account,Partition,State,"
    "ExitCode,Submit,Start,End,ElapsedRaw,TotalCPU,MaxRSS,ReqMem,ReqCPUS,AllocCPUS,AllocTRES,"
    "AllocNodes,NodeList,TimelimitRaw,NTasks,TRESUsageInTot,WorkDir,SubmitLine > sacct.txt"
)


def audit(
    files: Annotated[
        list[Path] | None,
        Argument(
            metavar="FILE...",
            show_default=False,
            help="What `sacct -P` writes, with any columns, packed or not; or folders of files.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        Option("--by", metavar="KEY,KEY", help=f"Group by any of {', '.join(KEYS)}."),
    ] = None,
    cluster: Annotated[
        str | None,
        Option("--cluster", metavar="NAME", help="Price the jobs by conf/cluster/NAME.yaml."),
    ] = None,
    column_map: Annotated[
        Path | None, Option("--map", metavar="FILE", help="Column map of CSV tables, in YAML.")
    ] = None,
    pattern: Annotated[
        str | None,
        Option(
            "--pattern",
            metavar="REGEX",
            help="Takes the application out of a job's name: the group `app`, or the first.",
        ),
    ] = None,
    cost: Annotated[
        str | None,
        Option("--cost", metavar="A,B,C", help="Prices of requested time, used time, request."),
    ] = None,
    picture: Annotated[
        Path | None, Option("--picture", metavar="FILE.svg", help="Write a picture, too.")
    ] = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Compare requested with used resources of a site's jobs; show savings by better requests.

    Nothing of it needs to have been submitted by voxcast.
    """
    keys = KEYS if by is None else tuple(key.strip() for key in by.split(","))
    unknown = ", ".join(repr(key) for key in keys if key not in KEYS)
    options.refuse_if(
        (not files, "is missing", "FILE", f"get one from Slurm by `{EXPORT}`"),
        (unknown != "", f"not a key: {unknown}", "--by",
         f"choose from {', '.join(KEYS)}"),
        (picture is not None and picture.suffix.lower() != ".svg", "the picture is an SVG",
         picture, "let its name end in .svg"),
    )  # fmt: skip
    site = None
    if cluster is not None:
        from voxcast import config

        conf = projects.require(project) / config.CONF_DIR
        site = config.load_cluster(conf, cluster, here=config.Here.of_this_machine)
    objective = _objective(cost, site)

    from voxcast.audit import report
    from voxcast.audit.jobs import files_of, read_jobs
    from voxcast.audit.text import audit_text
    from voxcast.log import progress
    from voxcast.runs.csv_table import load_map
    from voxcast.runs.imported import name_pattern

    columns = None if column_map is None else load_map(column_map)
    names = None if pattern is None else name_pattern(pattern, "app", "--pattern")
    paths = files_of(files or ())
    size = sum(path.stat().st_size for path in paths)
    with progress(total=size, desc="read", unit="B", unit_scale=True) as bar:
        jobs = read_jobs(paths, column_map=columns, on_read=bar.update)
    report.prepare(jobs, names)
    with progress(desc="judge requests", unit=" applications") as bar:
        result = report.audit(jobs, keys, site, objective, APPS, bar.update)
    if picture is not None:
        from voxcast.files import write_text
        from voxcast.report.canvas import standalone
        from voxcast.report.figures import requested_against_used

        write_text(picture, standalone(requested_against_used(jobs.frame[jobs.frame["long"]])))
    return options.show(result.as_json(), [audit_text(result, TOP)], as_json=as_json)


def _objective(cost: str | None, cluster: Cluster | None) -> Objective:
    from voxcast.audit.savings import Objective

    # Where all that was requested is charged, using it costs nothing more.
    charged = {node.charged for node in cluster.node_types} if cluster else {"used"}
    time = options.cost_model(cost or ("1,0,0" if charged == {"requested"} else "1,1,0"))
    if cluster is None:
        return Objective(time)
    largest = max(node.memory_bytes / node.cores for node in cluster.node_types)
    return Objective(
        time, largest, cluster.walltime_step_s, cluster.memory_step_bytes,
        cluster.memory_floor_bytes,
    )  # fmt: skip
