"""The audit as text: what was read, tables of groups, remarks, savings."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from voxcast.hpc.audit.groups import CAUSES, NOT_STATED
from voxcast.hpc.audit.savings import ASSUMPTIONS
from voxcast.quantities import format_bytes, slurm_clock
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from voxcast.hpc.audit.groups import GroupAudit
    from voxcast.hpc.audit.jobs import AuditedJobs
    from voxcast.hpc.audit.predicted_jobs import AmountErrors, PredictionErrors
    from voxcast.hpc.audit.ratio_intervals import Ratio
    from voxcast.hpc.audit.report import Audit
    from voxcast.hpc.audit.savings import AppSavings, Saving

WIDTH = 110
UNKNOWN = "-"
_HEAD = (
    "jobs", "done", "timeout", "memory", "failed", "core h", "lost", "CPU used", "time used",
    "memory used", "GPU h",
)  # fmt: skip
TITLES = {"user": "user", "account": "account", "partition": "partition", "app": "application"}
NEXT_SHOWN = 3
LONGEST_KEY = 28


def audit_text(audit: Audit, top: int) -> str:
    """Return the whole audit; ``top`` groups of each kind."""
    parts = [records_text(audit.jobs), _group_table("", [audit.total], top)]
    for key, groups in audit.groups.items():
        if [group.key for group in groups] != [NOT_STATED]:
            parts.append(_group_table(TITLES[key], groups, top))
    parts.append(_legend(audit))
    if audit.remarks:
        rows = [("with care", "jobs", "core h", "")]
        rows += [(r.kind, f"{r.jobs:,}", _hours(r.core_hours), "") for r in audit.remarks]
        parts.append(text_table([row[:3] for row in rows], "<>>"))
        parts += [_wrapped(f"{r.kind}: {r.text}") for r in audit.remarks]
    if audit.predicted is not None:
        parts.append(_predicted_text(audit.predicted))
    parts.append("\n".join(_savings_lines(audit)))
    return "\n\n".join(part for part in parts if part)


def records_text(jobs: AuditedJobs) -> str:
    """Return what became of every record."""
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
        places = jobs.examples.get(reason, [])[:3]
        lines.append(
            f"  not used: {count:,} × {reason}" + f" ({', '.join(places)})" * bool(places)
        )
    if jobs.unread:
        fields = ", ".join(f"{count:,} × {name}" for name, count in jobs.unread.most_common())
        lines.append(f"  fields that could not be read, and are unknown: {fields}")
    lines += [f"  {note}" for note in jobs.notes]
    return "\n".join(lines)


def _listed(text: str, counts: dict[str, int]) -> str:
    kinds = ", ".join(f"{count:,} {name.lower()}" for name, count in counts.items())
    return f"{text} ({kinds})"


def _group_table(title: str, groups: Sequence[GroupAudit], top: int) -> str:
    with_usd = any(group.usd for group in groups)
    rows = [(title, *_HEAD, *(("USD", "lost USD") if with_usd else ()))]
    for group in groups[:top]:
        money = (_usd(group.usd), _usd(group.lost_usd)) if with_usd else ()
        rows.append((_short(group.key), *_cells(group), *money))
    text = text_table(rows, "<" + ">" * (len(rows[0]) - 1))
    if len(groups) > top:
        text += f"\nand {len(groups) - top:,} more; --top N shows N, --json all"
    return text


def _cells(group: GroupAudit) -> tuple[str, ...]:
    lost = sum(group.lost_core_hours.values())
    other = sum(group.ended.get(name, 0) for name in CAUSES[2:])
    return (
        f"{group.jobs:,}",
        _share(group.completed / group.jobs),
        f"{group.ended.get('timeout', 0):,}",
        f"{group.ended.get('out_of_memory', 0):,}",
        f"{other:,}",
        _hours(group.core_hours),
        _share(lost / group.core_hours if group.core_hours else None),
        _share(group.cpu_efficiency),
        _share(_over(group.used_of_requested_core_hours, group.requested_core_hours)),
        _share(_over(group.used_gb_hours, group.requested_gb_hours)),
        _hours(group.gpu_hours) if group.gpu_hours else UNKNOWN,
    )


def _legend(audit: Audit) -> str:
    lines = [
        "done: share of jobs that completed; timeout, memory: killed at these limits; failed: "
        "also cancelled, preempted or lost with their node; lost: core-hours of all that did not "
        "complete",
        "CPU used: CPU time of allocated core time; time used: of requested core-hours; memory "
        "used: of requested GB-hours; each over completed jobs that state both",
    ]
    if audit.cluster is not None:
        lines.append(f"USD: by conf/cluster/{audit.cluster}.yaml")
    if audit.unpriced:
        missing = ", ".join(f"{name} ({count:,})" for name, count in audit.unpriced.items())
        lines.append(f"no price for jobs of partitions or sizes it does not have: {missing}")
    return "\n".join(_wrapped(line) for line in lines)


def _savings_lines(audit: Audit) -> Iterator[str]:
    if not audit.savings:
        yield _wrapped(
            "what other requests would have saved: not judged; it needs 40 jobs of an application "
            "with Start or End, and Timelimit or ReqMem and MaxRSS"
        )
        return
    yield "what other requests would have saved: learned from earlier jobs, judged on later ones"
    rows: list[tuple[str, ...]] = [
        ("application", "judged", "resource", "asked", "instead", "ratio (95 %)", "killed", "lost")
    ]
    for saving in audit.savings:
        for name, part, unit in (
            ("time", saving.time, "core h"),
            ("memory", saving.memory, "GB h"),
        ):
            if part is not None:
                rows.append(_saving_row(saving.app if name == "time" else "", name, part, unit))
        if saving.time is None and saving.memory is not None:
            rows[-1] = (_short(saving.app), *rows[-1][1:])
    yield text_table(rows, "<><>>>>>")
    for saving in audit.savings:
        yield _next_line(saving)
    if audit.not_judged:
        names = ", ".join(map(_short, audit.not_judged))
        yield _wrapped(f"too few jobs to judge, or no time order: {names}")
    yield _wrapped("this assumes:")
    for assumption in ASSUMPTIONS:
        yield _wrapped(f"- {assumption}")


def _saving_row(app: str, name: str, part: Saving, unit: str) -> tuple[str, ...]:
    return (
        _short(app),
        f"{part.evaluated:,}",
        f"{name}, {unit}",
        _hours(part.requested),
        _hours(part.proposed),
        _interval(part.ratio),
        f"{part.repeated:,}",
        f"{_hours(part.lost_core_hours)} core h",
    )


def _next_line(saving: AppSavings) -> str:
    texts = [f"{_short(saving.app)}: ask for"]
    if saving.time is not None:
        texts.append(
            "--time " + ", then ".join(_first(map(slurm_clock, saving.time.next_requests)))
        )
    if saving.memory is not None:
        sizes = map(format_bytes, saving.memory.next_requests)
        texts.append("--mem " + ", then ".join(_first(sizes)))
    text = " ".join(texts)
    if saving.usd_ratio is not None and saving.usd_requested is not None:
        saved = saving.usd_requested - (saving.usd_proposed or 0.0)
        text += f"; {saved:,.2f} USD saved of {saving.usd_requested:,.2f}"
    avoided = saving.too_short + saving.too_small
    if avoided:
        text += (
            f"; {avoided:,} killed jobs had asked for less than this "
            f"({_hours(saving.lost_core_hours)} core h)"
        )
    return _wrapped(text)


def _first(texts: Iterable[str]) -> list[str]:
    return list(texts)[:NEXT_SHOWN]


def _predicted_text(errors: PredictionErrors) -> str:
    lines = [f"predictions: {errors.matched:,} of {errors.predictions:,} match a job"]
    for title, amount in (("time", errors.runtime_s), ("memory", errors.peak_rss_bytes)):
        if amount is not None:
            lines.append(f"  {title}: {_errors(amount)}")
    return "\n".join(lines)


def _errors(amount: AmountErrors) -> str:
    text = (
        f"{amount.jobs:,} completed jobs, off by {_share(amount.median_error)} in the median, "
        f"{_share(amount.mean_error)} in the mean; predicted over used {amount.bias:.2f}"
    )
    if amount.with_bound:
        text += f"; {amount.above_bound:,} of {amount.with_bound:,} above their bound"
    return text


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f} (few days)"
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _hours(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _usd(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def _over(part: float | None, whole_amount: float | None) -> float | None:
    return part / whole_amount if part is not None and whole_amount else None


def _short(text: str) -> str:
    # Names are anybody's: what is no letter, digit or mark could steer a terminal.
    printable = "".join(c if c.isprintable() else "?" for c in text[:LONGEST_KEY])
    return printable if len(text) <= LONGEST_KEY else f"{printable[:-1]}…"


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="  "))
