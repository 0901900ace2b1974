"""Accounting logs of PBS Professional, OpenPBS and Torque: records of jobs that ended."""

from __future__ import annotations

import re
import shlex
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
from voxcast.quantities import pbs_bytes, pbs_seconds

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "pbs"
_RECORD = re.compile(r"(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d);([A-Za-z]+);([^;]*);(.*)", re.DOTALL)
_ENDED, _RERUN = "E", "R"
_ALIVE_OR_DELETED = ("A", "D")
# Codes of PBS Professional (-2x) and of Torque (-1x).
_OUT_OF_MEMORY = ("-27", "-26", "-10")
_TIMEOUT = ("-29", "-28", "-11")
_SIGTERM, _SIGKILL = ("271", "143"), ("265", "137")
_FIELD = re.compile(r"([A-Za-z_][\w.]*)=(\"[^\"]*\"|'[^']*'|\S*)")
_PER_NODE = re.compile(r"(?:^|:)(ppn|ncpus|mpiprocs|gpus|ngpus)=(\d{1,6})")


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read accounting logs, ``server_priv/accounting/YYYYMMDD``; several may be joined.

    Records of jobs that ended (E), were rerun (R), or were deleted before they ran (A, D, without
    an E) count; those of queueing and starting are passed over.

    Raises
    ------
    TableError
        If the file has no record of PBS.
    """
    records = FileRecords(SOURCE, path)
    columns = ready_map(SOURCE)
    n_records = 0
    ended: set[str] = set()
    dropped: dict[str, int] = {}
    for number, line in text_lines(records):
        match = _RECORD.fullmatch(line)
        if match is None:
            records.refuse(number, "not a record of PBS accounting")
            continue
        n_records += 1
        kind, job = match[2], match[3]
        if kind in (_ENDED, _RERUN):
            ended.add(job)
            fields_of = partial(_fields, job, match[4], rerun=kind == _RERUN)
            record_run(records, number, fields_of, columns, app)
        elif kind in _ALIVE_OR_DELETED:
            dropped.setdefault(job, number)
    if not n_records:
        raise TableError(
            "is no accounting log of PBS", path, "name a file of server_priv/accounting"
        )
    for job, number in dropped.items():
        if job not in ended:
            records.skip(number, f"job {job} was deleted and never run")
    return records


def _fields(job: str, text: str, *, rerun: bool) -> dict[str, str]:
    fields = {name: _unquoted(value) for name, value in _FIELD.findall(text)}
    if rerun and "resources_used.walltime" not in fields:
        raise not_a_run(job, "was rerun and never run")
    nodes, cpus, gpus = _size(fields)
    requested = _requested_memory(fields, cpus)
    account = fields.get("account") or fields.get("project", "")
    return fields | {
        "job_id": job.partition(".")[0],
        "account": "" if account.startswith("_pbs_project") else account,
        "cpus": str(cpus),
        "gpus": str(gpus),
        "device": "gpu" if gpus else "cpu",
        "n_nodes": str(nodes),
        "requested_memory": str(requested) if requested else "",
        "started_at": utc(fields.get("start", "")),
        "submitted_at": utc(fields.get("qtime") or fields.get("ctime", "")),
        "outcome": "preempted" if rerun else _outcome(fields, requested),
    }


def _unquoted(value: str) -> str:
    if value[:1] not in "\"'" or not value:
        return value
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value.strip("\"'")


def _size(fields: dict[str, str]) -> tuple[int, int, int]:
    """Return numbers of nodes, CPUs and GPUs.

    ``nodes`` of Torque and ``select`` of PBS are chunks such as ``2:ppn=8`` or
    ``2:ncpus=4:ngpus=1``, joined by ``+``.
    """
    chunks = (fields.get("Resource_List.select") or fields.get("Resource_List.nodes", "")).split(
        "+"
    )
    nodes = cpus = gpus = 0
    for chunk in chunks if chunks != [""] else []:
        first = chunk.partition(":")[0]
        count = int(first) if first.isdecimal() and len(first) < 7 else 1  # a name is one node
        per_node = dict(_PER_NODE.findall(chunk))
        nodes += count
        cpus += count * int(per_node.get("ncpus") or per_node.get("ppn") or 1)
        gpus += count * int(per_node.get("ngpus") or per_node.get("gpus") or 0)
    stated = fields.get("resources_used.ncpus") or fields.get("Resource_List.ncpus", "")
    n_cpus = (
        int(amount(stated, float))
        or cpus
        or int(amount(fields.get("total_execution_slots", ""), float))
    )
    n_gpus = int(amount(fields.get("Resource_List.ngpus", ""), float)) or gpus
    n_nodes = int(amount(fields.get("Resource_List.nodect", ""), float)) or nodes or 1
    return n_nodes, n_cpus or n_nodes, n_gpus


def _requested_memory(fields: dict[str, str], cpus: int) -> int:
    for name, times in (("mem", 1), ("pmem", cpus), ("vmem", 1), ("pvmem", cpus)):
        if size := amount(fields.get(f"Resource_List.{name}", ""), pbs_bytes):
            return round(size) * times
    return 0


def _outcome(fields: dict[str, str], requested: int) -> str:
    code = fields.get("Exit_status", "")
    if code in ("0", ""):
        return "completed" if code else "failed"
    if code in _OUT_OF_MEMORY:
        return "out_of_memory"
    if code in _TIMEOUT:
        return "timeout"
    used_s = amount(fields.get("resources_used.walltime", ""), pbs_seconds)
    limit_s = amount(fields.get("Resource_List.walltime", ""), pbs_seconds)
    used = amount(fields.get("resources_used.mem", ""), pbs_bytes)
    if code in (*_SIGTERM, *_SIGKILL):
        # The same codes for a limit and for qdel: what was used tells them apart.
        if limit_s and used_s >= limit_s:
            return "timeout"
        if requested and used >= NEAR_LIMIT * requested:
            return "out_of_memory"
        return "cancelled" if code in _SIGTERM else "failed"
    return "failed"
