"""``voxcast audit``: resources that a site's jobs requested, used and lost, from its accounting.

FILE is what ``sacct -P`` writes, with any columns, packed
with gzip or not; a folder is all its files. Nothing of it needs to have been submitted by
voxcast. Export from Slurm with:

  sacct -a -D -P -S 2026-01-01 -E now --format=JobID,JobName,User,Account,Partition,State,\\
ExitCode,Submit,Start,End,ElapsedRaw,TotalCPU,MaxRSS,ReqMem,ReqCPUS,AllocCPUS,AllocTRES,AllocNodes,\\
TimelimitRaw,NTasks,TRESUsageInTot,SubmitLine > jobs.txt
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.picture_option import add_picture_argument, check_picture, write_picture
from voxcast.cli.shared_options import (
    add_project_argument,
    duration_s,
    size_of_this_machine,
    whole_number,
)
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from voxcast.allocation.site import Cluster
    from voxcast.audit.jobs import AuditedJobs
    from voxcast.audit.report import Audit
    from voxcast.audit.savings import Objective

KEYS = ("user", "account", "partition", "app")
KINDS = ("sacct", "csv")
TOP = 10


def main(argv: list[str]) -> int:
    """Print the audit of accounting files."""
    args = _parser().parse_args(argv)
    keys = _keys(args.by)
    if len(args.delimiter) != 1:
        raise ConfigError("must be one character", "--delimiter")
    check_picture(args.picture)
    cluster = None if args.cluster is None else _cluster(args.cluster, args.project)
    objective = _objective(args, cluster)

    from voxcast.audit.predicted import predicted_jobs, read_predictions
    from voxcast.audit.report import prepare
    from voxcast.runs.csv_table import load_map
    from voxcast.runs.imported import name_pattern

    column_map = None if args.map is None else load_map(args.map)
    pattern = None
    if args.app_pattern is not None:
        pattern = name_pattern(args.app_pattern, "app", "--app-pattern")
    predictions = None if args.predicted is None else read_predictions(args.predicted)
    jobs = _read(args, column_map)
    prepare(jobs, pattern, args.shortest)
    predicted = None if predictions is None else predicted_jobs(jobs.frame, predictions)
    result = _audited(jobs, keys, cluster, objective, args.apps, predicted)
    if args.picture is not None:
        from voxcast.audit.picture import picture

        write_picture(args.picture, picture(jobs.frame))
    if args.json:
        print(json.dumps(result.as_json(), indent=2, allow_nan=False))
    else:
        from voxcast.audit.text import audit_text

        print(audit_text(result, args.top))
    return 0


def _parser() -> VerbParser:
    parser = VerbParser(
        prog="voxcast audit", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE|DIR")
    parser.add_argument(
        "--by", metavar="KEY,KEY",
        help=f"group by any of {', '.join(KEYS)} (default: all four)",
    )  # fmt: skip
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        help="price the jobs by conf/cluster/NAME.yaml of the project (default: core-hours only)",
    )
    parser.add_argument(
        "--kind", choices=KINDS, help="kind of the files (default: csv with --map, else sacct)"
    )
    parser.add_argument("--map", type=Path, help="column map of CSV tables, as for `import csv`")
    parser.add_argument(
        "--delimiter", default="|", metavar="C", help="between the columns of sacct (default |)"
    )
    parser.add_argument(
        "--app-pattern", metavar="REGEX",
        help="take the application out of the job's name: the group `app`, or the first group "
        "(default: the name without numbers and subjects)",
    )  # fmt: skip
    parser.add_argument(
        "--predicted", type=Path, metavar="FILE",
        help="predictions of these jobs, one JSON object a line, to compare with",
    )  # fmt: skip
    parser.add_argument(
        "--shortest", type=duration_s, default="1min", metavar="1min",
        help="leave shorter jobs out of ratios, savings and picture (default 1min)",
    )  # fmt: skip
    parser.add_argument(
        "--apps", type=whole_number, default=20, metavar="N",
        help="judge the requests of the N applications with most core-hours (default 20)",
    )  # fmt: skip
    parser.add_argument(
        "--alpha", type=float, metavar="A",
        help="price of requested time where requests are chosen (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--beta", type=float, metavar="B", help="price of used time (default 1; 0 if not charged)"
    )
    parser.add_argument(
        "--gamma", type=float, default=0.0, metavar="G", help="price of a request, s (default 0)"
    )
    parser.add_argument(
        "--top", type=whole_number, default=TOP, metavar="N",
        help=f"groups that are printed of each kind (default {TOP})",
    )  # fmt: skip
    add_picture_argument(parser, "requested against used")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_project_argument(parser)
    return parser


def _keys(text: str | None) -> tuple[str, ...]:
    if text is None:
        return KEYS
    keys = tuple(part.strip() for part in text.split(","))
    for key in keys:
        if key not in KEYS:
            raise ConfigError(f"not a key: {key!r}", "--by", f"choose from {', '.join(KEYS)}")
    return keys


def _cluster(name: str, folder: Path | None) -> Cluster:
    from voxcast import config

    conf = project.require(folder) / config.CONF_DIR
    return config.load_cluster(conf, name, here=size_of_this_machine)


def _objective(args: argparse.Namespace, cluster: Cluster | None) -> Objective:
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.audit.savings import Objective

    # Where all that was requested is charged, using it costs nothing more.
    charged = {node.charged for node in cluster.node_types} if cluster is not None else {"used"}
    beta = 0.0 if charged == {"requested"} else 1.0
    time = CostModel(
        1.0 if args.alpha is None else args.alpha,
        beta if args.beta is None else args.beta,
        args.gamma,
    )
    if cluster is None:
        return Objective(time)
    largest = max(node.memory_bytes / node.cores for node in cluster.node_types)
    return Objective(
        time, largest, cluster.walltime_step_s, cluster.memory_step_bytes,
        cluster.memory_floor_bytes,
    )  # fmt: skip


def _read(args: argparse.Namespace, column_map: Any) -> AuditedJobs:
    from voxcast.audit.jobs import files_of, read_jobs
    from voxcast.log import progress

    files = files_of(args.files)
    size = sum(path.stat().st_size for path in files)
    with progress(total=size, desc="read", unit="B", unit_scale=True) as bar:

        def step(n_bytes: int) -> None:
            bar.update(n_bytes)

        return read_jobs(files, args.kind, column_map, args.delimiter, step)


def _audited(
    jobs: AuditedJobs,
    keys: tuple[str, ...],
    cluster: Cluster | None,
    objective: Objective,
    n_apps: int,
    predicted: Any,
) -> Audit:
    from voxcast.audit.report import audit
    from voxcast.log import progress

    with progress(total=n_apps, desc="judge requests", unit=" applications") as bar:

        def step(app: str) -> None:
            bar.set_postfix_str(app[:30])
            bar.update()

        result = audit(jobs, keys, cluster, objective, n_apps, step, predicted)
        bar.total = bar.n  # there may be fewer applications
        return result
