"""Accounting of LSF: ``lsb.acct``, and the texts of ``bacct -l`` and ``bhist -l``."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.history.imports import lsf_texts
from voxcast.history.imports.file_records import FileRecords
from voxcast.runs.delimited import opening, text_lines
from voxcast.history.imports.lsf_texts import command_name
from voxcast.history.imports.scheduler_fields import (
    NEAR_LIMIT,
    amount,
    not_a_run,
    ready_map,
    record_run,
    utc,
)
from voxcast.quantities import slurm_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = "lsf"
_TOKEN = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
_FINISH = "JOB_FINISH"
# lsb.acct(5), in order; an `*` is a number and as many fields after it.
_BEFORE = (
    "event", "version", "eventTime", "jobId", "userId", "options", "numProcessors", "submitTime",
    "beginTime", "termTime", "startTime", "userName", "queue", "resReq", "dependCond",
    "preExecCmd",
    "fromHost", "cwd", "inFile", "outFile", "errFile", "jobFile", "*askedHosts", "*execHosts",
    "jStatus", "hostFactor", "jobName", "command", "ru_utime", "ru_stime", "ru_maxrss", "ru_ixrss",
    "ru_ismrss", "ru_idrss", "ru_isrss", "ru_minflt", "ru_majflt", "ru_nswap", "ru_inblock",
    "ru_oublock", "ru_ioch", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw", "ru_nivcsw",
    "ru_exutime", "mailUser", "projectName", "exitStatus", "maxNumProcessors", "loginShell",
    "timeEvent", "idx", "maxRMem", "maxRSwap", "inFileSpool", "commandSpool", "rsvId", "sla",
    "exceptMask", "additionalInfo", "exitInfo",
)  # fmt: skip
# Fields that versions before 9 lack; the number before an `*` counts groups of so many.
_AFTER = (
    "warningAction", "warningTimePeriod", "chargedSAAP", "licenseProject", "app", "postExecCmd",
    "runtimeEstimation", "jobGroupName", "requeueEvalues", "options2", "resizeNotifyCmd",
    "lastResizeTime", "rsvId2", "jobDescription", "2*submitExt", "6*hostRusage", "runLimit",
    "options3", "avgMem", "effectiveResReq", "srcCluster", "srcJobId", "dstCluster", "dstJobId",
    "forwardTime", "flow_id", "acJobWaitTime", "totalProvisionTime", "outdir", "runTime",
)  # fmt: skip
_COMPLETED = "64"
# By lsbatch.h: numbers of the reasons that `bacct` shows as TERM_RUNLIMIT and so on.
_REASONS = {
    "1": "preempted", "2": "preempted", "3": "preempted", "5": "timeout", "6": "timeout",
    "8": "cancelled", "9": "cancelled", "10": "preempted", "11": "preempted", "12": "timeout",
    "14": "cancelled", "15": "cancelled", "16": "out_of_memory", "19": "node_failure",
    "20": "out_of_memory", "23": "cancelled",
}  # fmt: skip
_MEMORY = re.compile(r"rusage\[[^\]]*?\bmem\s*=\s*([\d.]+)\s*([KMGT]?)", re.IGNORECASE)
_GPUS = re.compile(r"ngpus(?:_physical|_excl_p|_shared)?\s*=\s*(\d{1,4})")
_MAX_FIELDS = 1_000_000


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read ``lsb.acct``, or what ``bacct -l`` or ``bhist -l`` prints.

    Memory of ``rusage[mem=…]`` without a unit is taken to be in MB, the default of LSF, for each
    host of the job.

    Raises
    ------
    TableError
        If the file is neither.
    """
    records = FileRecords(SOURCE, path)
    columns = ready_map(SOURCE)
    n_records = 0
    if b'"JOB_' in opening(path) or b'"EVENT_' in opening(path):
        for number, fields in _records(records):
            n_records += 1
            record_run(records, number, partial(_run_fields, fields), columns, app)
    else:
        for number, job in lsf_texts.jobs_of(records):
            n_records += 1
            record_run(records, number, partial(lsf_texts.run_fields, job), columns, app)
    if not n_records:
        then = "name lsb.acct, or what `bacct -l` prints"
        raise TableError("is no accounting of LSF", path, then)
    return records


def _records(records: FileRecords) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in text_lines(records):
        tokens = [
            quoted.replace('""', '"') if bare == "" else bare
            for quoted, bare in _TOKEN.findall(line)
        ]
        if not tokens or tokens[0] != _FINISH:
            if not line.startswith('"'):
                records.refuse(number, "not a record of lsb.acct")
            continue  # events of reservations and of resizing
        fields = _fields(tokens)
        if fields is None:
            records.refuse(number, "a record JOB_FINISH that is cut off")
        else:
            yield number, fields


def _fields(tokens: list[str]) -> dict[str, str] | None:
    """Return the fields by name; None if the record ends before the reason of its end."""
    fields: dict[str, str] = {}
    place = 0
    try:
        for name in _BEFORE:
            if name.startswith("*"):
                count = _count(tokens[place])
                fields[name[1:]] = " ".join(tokens[place + 1 : place + 1 + count])
                fields[f"n_{name[1:]}"] = str(count)
                place += count
            else:
                fields[name] = tokens[place]
            place += 1
    except (IndexError, ValueError):
        return None
    try:
        for name in _AFTER:
            if "*" in name:
                place += int(name[0]) * _count(tokens[place])
            else:
                fields[name] = tokens[place]
            place += 1
    except (IndexError, ValueError):
        pass  # an older version
    return fields


def _count(text: str) -> int:
    count = int(text)
    if not 0 <= count <= _MAX_FIELDS:
        raise ValueError(text)
    return count


def _run_fields(fields: dict[str, str]) -> dict[str, str]:
    job = fields["jobId"] + (f"_{fields['idx']}" if fields["idx"] not in ("0", "") else "")
    start, end = (amount(fields[name], float) for name in ("startTime", "eventTime"))
    if start <= 0:
        raise not_a_run(job, "was ended before its start and was never run")
    runtime = amount(fields.get("runTime", ""), float)
    runtime = runtime if runtime > 0 else max(end - start, 0.0)
    hosts = len(set(fields["execHosts"].split())) or 1
    cpus = int(amount(fields.get("maxNumProcessors", ""), float)) or int(
        amount(fields["numProcessors"], float)
    )
    cpu = [amount(fields[name], float) for name in ("ru_utime", "ru_stime")]
    limit = amount(fields.get("runLimit", ""), float)
    asked_kib = requested_kib(fields["resReq"] or fields.get("effectiveResReq", "")) * hosts
    used_kib = amount(fields["maxRMem"], float)
    gpus = _GPUS.search(fields["resReq"] + " " + fields.get("effectiveResReq", ""))
    n_gpus = int(gpus[1]) * hosts if gpus else 0
    return fields | {
        "array_job": job,
        "jobName": fields["jobName"] or command_name(fields["command"]),
        "runTime": f"{runtime:.3f}",
        "runLimit": f"{limit:.0f}" if limit > 0 else "",
        "cpu_s": f"{sum(cpu):.6f}" if min(cpu) >= 0 else "",
        "maxRMem": f"{used_kib:.0f}" if used_kib > 0 else "",
        "cpus": str(cpus),
        "n_nodes": str(hosts),
        "gpus": str(n_gpus),
        "device": "gpu" if n_gpus else "cpu",
        "requested_memory": f"{asked_kib:.0f}" if asked_kib else "",
        "started_at": utc(fields["startTime"]),
        "submitted_at": utc(fields["submitTime"]),
        "outcome": _outcome(fields, runtime, limit, used_kib, asked_kib),
    }


def _outcome(
    fields: dict[str, str], runtime_s: float, limit_s: float, used: float, requested: float
) -> str:
    if fields["jStatus"] == _COMPLETED:
        return "completed"
    if reason := _REASONS.get(fields["exitInfo"]):
        return reason
    if limit_s > 0 and runtime_s >= limit_s:
        return "timeout"
    status = int(amount(fields["exitStatus"], float))
    killed = status in (137, 137 << 8, 9)  # SIGKILL, as an exit code or as a wait status
    return "out_of_memory" if killed and requested and used >= NEAR_LIMIT * requested else "failed"


def requested_kib(requirement: str) -> float:
    """Return the memory of ``rusage[mem=…]`` in KiB, 0 if there is none."""
    match = _MEMORY.search(requirement)
    if match is None:
        return 0.0
    return amount(f"{match[1]}{match[2] or 'M'}", slurm_bytes) / 1024
