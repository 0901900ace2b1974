"""``voxcast phases recommend``: which machine for a parallel run with a predicted time on each.

``voxcast phases transfer``: the time of a parallel run on another machine.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from voxcast.api.question import Question
from voxcast.api.wish import Wish
from voxcast.cli import options
from voxcast.cli.phases_predict import Level, Trace, checked_share, read_logical_trace
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, RunError
from voxcast.quantities import format_seconds, format_short_seconds, parse_bytes
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.allocation.recommendation import Recommendation
    from voxcast.allocation.site import Candidate, Cluster


THEN = "give the output of `voxcast phases predict` or `transfer` with --json"


def recommend(
    runs: Annotated[
        list[str],
        Argument(
            metavar="NODE=FILE...",
            show_default=False,
            help="A type of node, and what `voxcast phases predict` or `transfer` printed with "
            "--json for it.",
        ),
    ],
    memory: Annotated[
        str, Option("--memory", metavar="SIZE", help="Of all processes, e.g. 24GB.")
    ],
    outside: Annotated[
        str, Option("--outside", metavar="TIME", help="Of the job before and after the trace.")
    ] = "0s",
    cluster: options.Cluster = None,
    policy: options.Policy = None,
    deadline: options.Deadline = None,
    budget: options.Budget = None,
    changes: options.Set = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Recommend the type of node for a parallel run whose time is predicted on several."""
    from voxcast.allocation.recommendation_text import text_lines

    wish = Wish(
        Question(project=project), cluster, policy, deadline, options.usd(budget), changes or ()
    )
    outside_s = options.seconds(outside, "--outside") or 0.0
    recommendation = _recommendation(runs, parse_bytes(memory), outside_s, wish)
    if as_json:
        print(json.dumps(recommendation.as_json(), indent=2, allow_nan=False))
    else:
        for line in text_lines(recommendation):
            print(line)
    return EXIT_BAD_INPUT if list(recommendation.without_request()) else 0


def _recommendation(
    runs: Sequence[str], memory_bytes: int, outside_s: float, wish: Wish
) -> Recommendation:
    """Return the recommendation among nodes on which the time of a run is predicted.

    Raises
    ------
    ConfigError, RunError
        If the cluster lacks a node, or a file is not a prediction that the policy can use.
    """
    from voxcast.allocation.recommendation import ImagePredictions, Recommendation

    site = wish.site()
    candidates, rows, files = [], [], []
    for text in runs:
        node, path = _node_and_file(text)
        prediction = _prediction(path, site.policy.confidence)
        candidates.append(_candidate(site.cluster, node, int(prediction["processes"]), path))
        files.append(path.name)
        rows.append({
            "app": "parallel run",
            "family": "signature",
            "input_level": "signature",
            "runtime_s_median": prediction["total_s"] + outside_s,
            "runtime_s_upper": prediction["upper_s"] + outside_s,
            "peak_rss_bytes_median": memory_bytes,
            "peak_rss_bytes_upper": memory_bytes,
            # An interval by batch means is of the noise during the trace alone.
            "calibrated": str(prediction.get("method", "")).startswith("conformal"),
            "out_of_range": "",
        })  # fmt: skip
    allocations = frozenset(
        (c.configuration.device, c.configuration.cpus, c.configuration.gpus) for c in candidates
    )
    run = ImagePredictions(Path(runs[0].partition("=")[2]).stem, rows)
    return Recommendation.of(
        site.cluster, site.policy, wish.limits(), candidates, [run], tuple(files), allocations
    )


def _node_and_file(text: str) -> tuple[str, Path]:
    node, _, file = text.partition("=")
    if not node or not file:
        raise ConfigError(f"is not NODE=FILE: {text}", "NODE=FILE", "e.g. pitzer=there.json")
    return node, Path(file)


def _prediction(path: Path, confidence: float) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError("no such file", path, THEN) from None
    except (ValueError, UnicodeDecodeError):
        raise RunError("is no JSON", path, THEN) from None
    names = ("total_s", "upper_s", "level", "processes")
    if not isinstance(content, dict) or any(name not in content for name in names):
        raise RunError("is no prediction of a run", path, THEN)
    if content["upper_s"] is None:
        if content.get("trend"):
            problem = "has no interval, since the cycles of the run get longer or shorter"
            raise RunError(problem, path, "predict with --past, whole runs that did the same")
        raise RunError("has no interval", path, "trace more of the run")
    if not all(type(content[n]) in (int, float) and 0 < content[n] < math.inf for n in names):
        raise RunError(f"{', '.join(names)} must be numbers above zero", path, THEN)
    if (
        content["level"] >= 1
        or content["upper_s"] < content["total_s"]
        or content["processes"] % 1
    ):
        raise RunError("level, upper_s or processes is out of its range", path, THEN)
    # An interval leaves as much out above as below.
    bound = (1 + content["level"]) / 2
    if bound < confidence - 1e-9:
        raise RunError(
            f"its upper end is a {100 * bound:g} % bound, the policy asks for "
            f"{100 * confidence:g} %", path, f"predict with --level {2 * confidence - 1:g}",
        )  # fmt: skip
    return content


def _candidate(cluster: Cluster, name: str, processes: int, path: Path) -> Candidate:
    from voxcast.allocation.site import Candidate
    from voxcast.records import Configuration

    nodes = {node.name: node for node in cluster.node_types}
    if name not in nodes:
        names = ", ".join(nodes)
        raise ConfigError(
            "no such type of node", name, f"cluster {cluster.name} has {names}; see --cluster"
        )
    node = nodes[name]
    if processes > node.cores:
        problem = f"its {processes} processes do not fit the {node.cores} cores of {name}"
        raise RunError(problem, path, "trace it with as many processes as a node has cores")
    partition = next(p for p in cluster.partitions if p.name == node.partition)
    measured = replace(node, host_class=path.name)
    return Candidate(Configuration("cpu", processes), measured, partition)


NO_SAMPLE = 0.1  # what the same ticks of the base may miss of its time before it is said


def transfer(
    base_path: Trace,
    short: Annotated[
        Path, Option("--run", metavar="TRACE", help="A short run on the other machine.")
    ],
    level: Level = 0.9,
    as_json: options.Json = False,
) -> int:
    """Predict the time of a whole run on another machine, from a short run there.

    The short run is of the same program with fewer iterations or epochs, and all else the same.
    Each phase takes the time that it took there.
    """
    checked_share(level, "--level")

    from voxcast.phases.predict import transfer as transferred

    base, run = read_logical_trace(base_path), read_logical_trace(short)
    result = transferred(base, run, level)
    if as_json:
        content = {
            name: None if isinstance(value, float) and math.isinf(value) else value
            for name, value in asdict(result).items()
        }
        content |= {"processes": len(base.events.processes), "source": run.events.source}
        print(json.dumps(content, indent=2, allow_nan=False))
        return 0
    interval = (
        "too few cycles for an interval" if math.isinf(result.upper_s) else
        f"{100 * result.level:.3g}% interval {format_seconds(result.lower_s)} to "
        f"{format_seconds(result.upper_s)} (batch means of the short run)"
    )  # fmt: skip
    print(
        f"{base.events.source} took {format_seconds(result.base_elapsed_s)}; on the machine of "
        f"{run.events.source} it takes {format_seconds(result.total_s)}, {interval}"
    )
    if abs(result.base_by_same_ticks - 1) > NO_SAMPLE:
        print(
            f"  the iterations of {run.events.source} are no sample of the base: by its own same "
            f"ticks the base takes {result.base_by_same_ticks:.0%} of what it took"
        )
    rows = [("operations", "weight", "time", "weight there", "time there", "ratio")]
    for phase in result.phases:
        ratio = f"{phase.time_s / phase.base_s:.2f}" if phase.base_s else ""
        base_cells = str(phase.weight), format_short_seconds(phase.base_s)
        run_cells = str(phase.passes), format_short_seconds(phase.time_s)
        rows.append((phase.communication, *base_cells, *run_cells, ratio))
    print(text_table(rows, "<>>>>>", indent="  "))
    return 0
