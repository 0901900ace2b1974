"""The audit as text for a terminal: records, tables of groups, remarks, savings, advice."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from voxcast.audit.groups import CAUSES, NOT_STATED
from voxcast.audit.savings import ASSUMPTIONS
from voxcast.quantities import slurm_clock, slurm_memory
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from voxcast.audit.jobs import AuditedJobs
    from voxcast.audit.report import Audit
    from voxcast.audit.savings import Advice, AppSavings, Ratio

WIDTH = 110
UNKNOWN = "-"
TITLES = {"user": "user", "account": "account", "partition": "partition", "app": "application"}
MANY_STOPPED = 0.1  # of the jobs: advice that was learned from them is too little
SHOWN_REQUESTS = 3
LONGEST_KEY = 28
_HEAD = (
    "jobs", "done", "timeout", "memory", "failed", "core h", "lost", "CPU used", "time used",
    "memory used", "GPU h",
)  # fmt: skip
_LEGEND = (
    "done: share of jobs that completed; timeout, memory: killed at these limits; failed: also "
    "cancelled, preempted or lost with their node; lost: core-hours of jobs that did not complete",
    "CPU used: CPU time of allocated core time; time used: of requested core-hours; memory used: "
    "of requested GB-hours; each over completed jobs that state both",
)


def audit_text(audit: Audit, top: int) -> str:
    """Return the whole audit, with `top` groups of each kind."""
    parts = [_records(audit.jobs), _groups("", audit.total, top)]
    for key, table in audit.groups.items():
        if list(table["key"]) != [NOT_STATED]:
            parts.append(_groups(TITLES[key], table, top))
    legend = [*_LEGEND]
    if audit.cluster is not None:
        legend.append(f"USD: by conf/cluster/{audit.cluster}.yaml")
    if audit.unpriced:
        missing = ", ".join(f"{name} ({count:,})" for name, count in audit.unpriced.items())
        legend.append(f"no price for partitions or sizes it does not describe: {missing}")
    parts.append("\n".join(map(_wrapped, legend)))
    if audit.remarks:
        rows = [("with care", "jobs", "core h")]
        rows += [(r.kind, f"{r.jobs:,}", _hours(r.core_hours)) for r in audit.remarks]
        parts.append(text_table(rows, "<>>"))
        parts += [_wrapped(f"{r.kind}: {r.text}") for r in audit.remarks]
    return "\n\n".join([*parts, "\n".join(_savings(audit))])


def _records(jobs: AuditedJobs) -> str:
    counts = [
        (len(jobs.frame), "jobs that ran"),
        (jobs.not_ended.total(), _listed("not ended", jobs.not_ended)),
        (jobs.never_started.total(), _listed("never started", jobs.never_started)),
        (jobs.instant, "of 0 s"),
        (jobs.duplicates, "twice in the files"),
        (jobs.refused.total(), "that cannot be used"),
    ]
    listed = " + ".join(f"{count:,} {text}" for count, text in counts if count)
    lines = [f"{jobs.records:,} records = {listed}"]
    for reason, count in jobs.refused.most_common(10):
        places = ", ".join(jobs.examples.get(reason, [])[:3])
        lines.append(f"  not used: {count:,} × {reason}" + f" ({places})" * bool(places))
    if jobs.unread:
        fields = ", ".join(f"{count:,} × {name}" for name, count in jobs.unread.most_common())
        lines.append(f"  unreadable fields, taken as unknown: {fields}")
    return "\n".join(lines)


def _listed(text: str, counts: dict[str, int]) -> str:
    kinds = ", ".join(f"{count:,} {name.lower()}" for name, count in counts.items())
    return f"{text} ({kinds})"


def _groups(title: str, table: pd.DataFrame, top: int) -> str:
    with_usd = "usd" in table and bool(table["usd"].sum())
    rows = [(title, *_HEAD, *(("USD", "lost USD") if with_usd else ()))]
    for group in table.head(top).to_dict("records"):
        failed, hours = sum(group[cause] for cause in CAUSES[2:]), group["core_hours"]
        rows.append((
            _short(group["key"]), f"{group['jobs']:,}", _share(group["completed"] / group["jobs"]),
            f"{group['timeout']:,}", f"{group['out_of_memory']:,}", f"{failed:,}",
            _hours(hours) if hours else UNKNOWN,
            _share(group["lost_core_hours"] / hours if hours else math.nan),
            _share(group["cpu_efficiency"]), _share(group["time_used"]),
            _share(group["memory_used"]),
            _hours(group["gpu_hours"]) if group["gpu_hours"] else UNKNOWN,
            *((f"{group['usd']:,.2f}", f"{group['lost_usd']:,.2f}") if with_usd else ()),
        ))  # fmt: skip
    text = text_table(rows, "<" + ">" * (len(rows[0]) - 1))
    if len(table) > top:
        text += f"\nand {len(table) - top:,} more, all in --json"
    return text


def _savings(audit: Audit) -> Iterator[str]:
    if not audit.savings:
        yield _wrapped(
            "savings by other requests: not judged; 40 jobs of an application are needed, with "
            "Start or End, and Timelimit or ReqMem and MaxRSS"
        )
        return
    yield "savings by other requests, learned from earlier jobs and judged on later ones"
    rows: list[tuple[str, ...]] = [
        ("application", "judged", "resource", "before", "after", "ratio (95 %)", "killed", "lost")
    ]
    for saving in audit.savings:
        name = _short(saving.app)
        for resource, part in (("time, core h", saving.time), ("memory, GB h", saving.memory)):
            if part is not None:
                rows.append((
                    name, f"{part.judged_jobs:,}", resource, _hours(part.requested),
                    _hours(part.proposed), _interval(part.ratio), f"{part.killed:,}",
                    f"{_hours(part.lost_core_hours)} core h",
                ))  # fmt: skip
                name = ""
    yield text_table(rows, "<><>>>>>")
    yield ""
    yield (
        "requests for the next jobs; killed: later jobs, by requests learned in this way before"
    )
    for saving in audit.savings:
        yield from map(_wrapped, _app_advice(saving))
    if audit.not_judged:
        names = ", ".join(map(_short, audit.not_judged))
        yield _wrapped(f"too few jobs to judge, or no order in time: {names}")
    yield "assumptions:"
    for assumption in ASSUMPTIONS:
        yield _wrapped(f"- {assumption}")


def _app_advice(saving: AppSavings) -> Iterator[str]:
    name = _short(saving.app)
    if not saving.advice:
        yield f"{name}: no number of CPUs has enough jobs for advice"
    for advice in saving.advice:
        yield f"{name}, {advice_text(advice)}"
    if saving.advice and saving.not_covered:
        others = f"{saving.not_covered:,} jobs with other numbers of CPUs, or on several nodes,"
        yield f"{name}: {others} are not covered"
    if killed := saving.avoidable_jobs:
        hours = _hours(saving.avoidable_core_hours)
        yield f"{name}: {killed:,} killed jobs had requested less than this ({hours} core h)"


def advice_text(advice: Advice) -> str:
    """Return options of `sbatch` for one number of CPUs, and the later jobs they would kill.

    Examples
    --------
    >>> from voxcast.audit.savings import Advice, ResourceAdvice
    >>> time, memory = ResourceAdvice((14220.0,), 190, 4, 0), ResourceAdvice((28.7e9,), 0, 0, 0)
    >>> advice_text(Advice(1, 387, time, memory))
    '1 CPU (learned from 387 jobs): --time=03:57:00 --mem=27371M; killed: 4 of 190 by time'
    """
    first, then, killed, notes = [], [], [], []
    for cause, option, text_of, part in (
        ("time", "--time", slurm_clock, advice.time),
        ("memory", "--mem", slurm_memory, advice.memory),
    ):
        texts = [f"{option}={text_of(value)}" for value in part.requests[:SHOWN_REQUESTS]]
        first += texts[:1]
        if texts[1:]:
            then.append(f", if killed by {cause} {', then '.join(texts[1:])}")
        if part.judged_jobs:
            killed.append(f"{part.killed:,} of {part.judged_jobs:,} by {cause}")
        if part.stopped > MANY_STOPPED * advice.jobs:
            notes.append(
                f"; {part.stopped:,} of the jobs were killed at their limit of {cause} and needed "
                "more than is known: request more"
            )
    cpus = f"{advice.cpus:,} CPU" + "s" * (advice.cpus != 1)
    return (
        f"{cpus} (learned from {advice.jobs:,} jobs): "
        f"{' '.join(first) or UNKNOWN}{''.join(then)}; "
        f"killed: {', '.join(killed) or 'not judged'}{''.join(notes)}"
    )


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f} (few days)"
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _hours(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _share(value: float) -> str:
    return UNKNOWN if math.isnan(value) else f"{100 * value:.0f} %"


def _short(text: str) -> str:
    # Users choose names: a character that cannot be printed could steer a terminal.
    printable = "".join(c if c.isprintable() else "?" for c in text[:LONGEST_KEY])
    return printable if len(text) <= LONGEST_KEY else f"{printable[:-1]}…"


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="  "))
