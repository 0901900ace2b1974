"""Jobs as ``bacct -l`` and ``bhist -l`` print them, in wrapped lines of text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from voxcast.runs.delimited import text_lines
from voxcast.history.imports.scheduler_fields import amount, not_a_run
from voxcast.quantities import slurm_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.history.imports.file_records import FileRecords

_RULE = "-" * 20
_ATTRIBUTE = re.compile(r"\b(Job Name|Job|User|Project|Status|Queue|Command) <([^<>]*)>")
_RESOURCES = re.compile(r"(?:Requested Resources|Effective RES_REQ|RES_REQ) <([^>]*)>")
_HEADING = re.compile(r"CPU_T\s+WAIT\s+TURNAROUND\s+STATUS\s+HOG_FACTOR\s+MEM\s+SWAP")
_STATES = re.compile(r"PEND\s+PSUSP\s+RUN\s+USUSP\s+SSUSP\s+UNKWN\s+TOTAL")
_RUN_LIMIT = re.compile(r"RUNLIMIT\s+([\d.]+) min")
_SLOTS = re.compile(r"Allocated (\d+) Slot|(\d+) (?:Processors|Task\(s\)) (?:Requested|on Host)")
_CPU = re.compile(r"The CPU time used is ([\d.]+) seconds")
_PEAK = re.compile(r"MAX MEM: ([\d.]+) ([KMGT])bytes")
_TERM = re.compile(r"TERM_([A-Z_]+)")
_MEMORY = re.compile(r"rusage\[[^\]]*?\bmem\s*=\s*([\d.]+)\s*([KMGT]?)", re.IGNORECASE)
_REASONS = {
    "RUNLIMIT": "timeout", "DEADLINE": "timeout", "CPULIMIT": "timeout",
    "MEMLIMIT": "out_of_memory",
    "SWAP": "out_of_memory", "OWNER": "cancelled", "ADMIN": "cancelled",
    "FORCE_OWNER": "cancelled",
    "FORCE_ADMIN": "cancelled", "BUCKET_KILL": "cancelled", "PREEMPT": "preempted",
    "REQUEUE_OWNER": "preempted", "REQUEUE_ADMIN": "preempted", "ZOMBIE": "node_failure",
}  # fmt: skip


def command_name(command: str) -> str:
    """Return the name that LSF gives a job without one: its command, here the program only.

    Examples
    --------
    >>> command_name("/bin/sleep 3"), command_name("#!/bin/tcsh;date")
    ('sleep', '(no name)')
    """
    words = command.split()
    if not words or command.startswith("#"):
        return "(no name)"
    return words[0].rpartition("/")[2] or words[0]


def jobs_of(records: FileRecords) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of each job, with the number of the first."""
    block: list[str] = []
    first = 0
    for number, line in text_lines(records):
        if line.startswith(_RULE) or line.startswith("SUMMARY:"):
            if block:
                yield first, block
            block = []
        elif line.startswith("Job <"):
            if block:
                yield first, block
            block, first = [line], number
        elif block:
            block.append(line)
    if block:
        yield first, block


def run_fields(lines: list[str]) -> dict[str, str]:
    """Return the fields of a job by the names of ``lsb.acct``.

    The times of these texts have no year, so that the start of a job is not known.
    """
    # A wrapped line is continued at a fixed indent, in the middle of a word.
    text = "".join(line.strip() if line.startswith(" " * 15) else f"\n{line}" for line in lines)
    attributes: dict[str, str] = {}
    for name, value in _ATTRIBUTE.findall(text.split("\nAccounting", 1)[0]):
        attributes.setdefault(name, value)
    job = re.sub(r"\[(\d+)\]", r"_\1", attributes.get("Job", ""))
    runtime, cpu_s, memory = _usage(text, lines)
    if runtime <= 0 and "ispatched" not in text and "tarted" not in text:
        raise not_a_run(job, "was ended before its start and was never run")
    slots = next((a or b for a, b in _SLOTS.findall(text)), "")
    requested = _MEMORY.search(" ".join(_RESOURCES.findall(text)))
    requested_bytes = (
        amount(f"{requested[1]}{requested[2] or 'M'}", slurm_bytes) if requested else 0.0
    )
    limit = _RUN_LIMIT.search(text)
    completed = attributes.get("Status", "") == "DONE" or "Done successfully" in text
    term = _TERM.search(text)
    return {
        "array_job": job,
        "jobName": attributes.get("Job Name") or command_name(attributes.get("Command", "")),
        "userName": attributes.get("User", ""),
        "projectName": attributes.get("Project", ""),
        "queue": attributes.get("Queue", ""),
        "runTime": f"{runtime:.3f}",
        "cpu_s": f"{cpu_s:.6f}" if cpu_s > 0 else "",
        "maxRMem": f"{memory / 1024:.0f}" if memory > 0 else "",
        "runLimit": f"{60 * float(limit[1]):.0f}" if limit else "",
        "requested_memory": f"{requested_bytes / 1024:.0f}" if requested_bytes else "",
        "cpus": slots or "1",
        "gpus": "0",
        "device": "cpu",
        "outcome": "completed" if completed else _REASONS.get(term[1] if term else "", "failed"),
    }


def _usage(text: str, lines: list[str]) -> tuple[float, float, float]:
    """Return run time and CPU time in seconds, and peak memory in bytes."""
    for n, line in enumerate(lines[:-1]):
        cells = lines[n + 1].split()
        if _HEADING.search(line) and len(cells) >= 7:
            wait, turnaround = amount(cells[1], float), amount(cells[2], float)
            return turnaround - wait, amount(cells[0], float), _size(cells[5])
        if _STATES.search(line) and len(cells) >= 7:
            cpu, peak = _CPU.search(text), _PEAK.search(text)
            memory = _size(f"{peak[1]}{peak[2]}") if peak else 0.0
            return amount(cells[2], float), float(cpu[1]) if cpu else 0.0, memory
    return 0.0, 0.0, 0.0


def _size(text: str) -> float:
    return amount(text, slurm_bytes)
