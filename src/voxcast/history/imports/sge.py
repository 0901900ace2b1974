"""Accounting of Grid Engine: the file ``accounting``, and the text of ``qacct -j``."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.history.imports.file_records import FileRecords
from voxcast.runs.delimited import text_lines
from voxcast.history.imports.scheduler_fields import (
    NEAR_LIMIT,
    amount,
    not_a_run,
    ready_map,
    record_run,
    utc,
)
from voxcast.quantities import sge_bytes, sge_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = "sge"
# accounting(5), in order.
FIELDS = (
    "qname", "hostname", "group", "owner", "jobname", "jobnumber", "account", "priority",
    "qsub_time", "start_time", "end_time", "failed", "exit_status", "ru_wallclock", "ru_utime",
    "ru_stime", "ru_maxrss", "ru_ixrss", "ru_ismrss", "ru_idrss", "ru_isrss", "ru_minflt",
    "ru_majflt", "ru_nswap", "ru_inblock", "ru_oublock", "ru_msgsnd", "ru_msgrcv", "ru_nsignals",
    "ru_nvcsw", "ru_nivcsw", "project", "department", "granted_pe", "slots", "taskid", "cpu",
    "mem",
    "io", "category", "iow", "pe_taskid", "maxvmem", "arid", "ar_sub_time",
)  # fmt: skip
LEAST_FIELDS = FIELDS.index("category") + 1  # of versions without the later ones
_ABSENT = ("NONE", "undefined", "-/-", "")
_MILLISECONDS = 1e11  # Univa writes milliseconds since 1970
# Before the job was started, by sge_status(5); 100 and more are after it.
_BEFORE_THE_JOB = frozenset((*range(1, 12), *range(13, 25), 26, 27, 28, 29, 30))
_RESCHEDULED = (24, 25)
_TIME_LIMIT, _ANY_LIMIT = (44, 45), 37
_REQUEST = re.compile(r"-l\s+(\S+)")
_CLOCKS = ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S",
           "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y%m%d-%H:%M:%S")  # fmt: skip


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read the file ``accounting`` of a cell, or what ``qacct -j`` prints.

    Raises
    ------
    TableError
        If the file is neither.
    """
    records = FileRecords(SOURCE, path)
    columns = ready_map(SOURCE)
    n_records = 0
    for number, fields in _records(records):
        n_records += 1
        record_run(records, number, partial(_run_fields, fields), columns, app)
    if not n_records:
        then = "name the file `accounting` of the cell, or what `qacct -j` prints"
        raise TableError("is no accounting of Grid Engine", path, then)
    return records


def _records(records: FileRecords) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the fields of each job, with its first line."""
    block: dict[str, str] = {}
    first = 0
    for number, line in text_lines(records):
        if line.startswith("#"):
            continue
        name, _, value = line.partition(" ")
        if line.startswith("=" * 20):
            if block:
                yield first, block
            block, first = {}, number + 1
        elif line.count(":") >= LEAST_FIELDS - 1 and name not in FIELDS:
            # The requests may hold colons, so the fields before and after them are counted.
            cells = line.split(":")
            extra = max(len(cells) - len(FIELDS), 0)
            place = FIELDS.index("category")
            cells[place : place + extra + 1] = [":".join(cells[place : place + extra + 1])]
            yield number, dict(zip(FIELDS, cells, strict=False))
        elif first or name in FIELDS:
            first = first or number
            block[name] = value.strip()
        else:
            records.refuse(number, "not a record of Grid Engine's accounting")
    if "jobnumber" in block:
        yield first, block


def _run_fields(record: dict[str, str]) -> dict[str, str]:
    fields = {name: "" if text in _ABSENT else text for name, text in record.items()}
    task = fields.get("taskid", "")
    job = fields.get("jobnumber", "") + (f"_{task}" if task not in ("", "0") else "")
    code = int(amount(fields.get("failed", "").split(" ")[0].rstrip(":"), float))
    start, end = _seconds(fields.get("start_time", "")), _seconds(fields.get("end_time", ""))
    if code in _BEFORE_THE_JOB or not start:
        raise not_a_run(job, f"failed before its start (code {code}) and was never run")
    wall = fields.get("ru_wallclock") or fields.get("wallclock", "")
    runtime = amount(wall, sge_seconds) or max(end - start, 0.0)
    slots = int(amount(fields.get("slots", ""), float)) or 1
    requests = _requests(fields.get("category", "") or fields.get("submit_cmd", ""))
    limit = amount(requests.get("h_rt", "") or requests.get("s_rt", ""), sge_seconds)
    per_slot = next((requests[n] for n in ("h_vmem", "mem_free", "m_mem_free", "h_rss")
                     if n in requests), "")  # fmt: skip
    requested = round(amount(per_slot, sge_bytes) * slots)
    gpus = int(amount(requests.get("gpu", "") or requests.get("ngpus", ""), float))
    has_rss = amount(fields.get("maxrss", ""), sge_bytes) > 0
    peak = fields.get("maxrss", "") if has_rss else fields.get("maxvmem", "")
    return fields | {
        "task_job": job,
        "runtime": f"{runtime:.3f}",
        "peak_memory": peak if amount(peak, sge_bytes) > 0 else "",
        "memory_method": "sge_maxrss" if has_rss else "sge_maxvmem",
        "slots": str(slots),
        "limit": f"{limit:.0f}" if limit else "",
        "requested_memory": str(requested) if requested else "",
        "gpus": str(gpus),
        "device": "gpu" if gpus else "cpu",
        "started_at": utc(str(start)),
        "submitted_at": utc(str(_seconds(fields.get("qsub_time", "")))),
        "exit_status": fields.get("exit_status", "").split(" ")[0],
        "outcome": _outcome(fields, code, runtime, limit, amount(peak, sge_bytes), requested),
    }


def _outcome(
    fields: dict[str, str],
    code: int,
    runtime_s: float,
    limit_s: float,
    peak: float,
    requested: float,
) -> str:
    exit_status = int(amount(fields.get("exit_status", "").split(" ")[0], float))
    at_limit = bool(limit_s) and runtime_s >= limit_s - 1
    near_memory = bool(requested) and peak >= NEAR_LIMIT * requested
    if code in _TIME_LIMIT or (code in (_ANY_LIMIT, 100) and at_limit):
        return "timeout"
    if code in (_ANY_LIMIT, 100) and near_memory:
        return "out_of_memory"
    if code in _RESCHEDULED:
        return "preempted"
    if fields.get("deleted_by"):
        return "cancelled"
    if code == 0 and exit_status == 0:
        return "completed"
    if exit_status > 128 and near_memory:  # killed by a signal
        return "out_of_memory"
    return "failed"


def _requests(category: str) -> dict[str, str]:
    """Return the resources of ``-l h_rt=900,h_vmem=1G``."""
    pairs = (part for text in _REQUEST.findall(category) for part in text.split(","))
    return {name: value for name, sign, value in (p.partition("=") for p in pairs) if sign}


def _seconds(text: str) -> float:
    """Return a time in seconds since 1970; local times are taken as UTC; 0 if there is none."""
    if not text:
        return 0.0
    try:
        seconds = float(text)
        return seconds / 1000 if seconds > _MILLISECONDS else seconds
    except ValueError:
        pass
    for clock in _CLOCKS:
        try:
            return (
                datetime.strptime(" ".join(text.split()), clock) - datetime(1970, 1, 1)
            ).total_seconds()
        except ValueError:
            continue
    return 0.0
