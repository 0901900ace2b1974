"""What the name of a column says: a measurement of the run, a name of rows, a moment.

Names are split at separators and capitals. Names of Slurm's accounting, Nextflow's trace,
Snakemake's benchmarks, the Standard Workload Format, GNU time and this project are listed. Words
that inputs have too, such as `duration`, `end`, `system` or `size`, tell nothing.
"""

from __future__ import annotations

import re


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|%")

# Words that tell that a measurement is of something else than this run, or known before it.
BEFORE = _set(
    """
    req requested request limit timelimit reserved allocated alloc asked planned plan estimated
    estimate expected predicted previous prior last history mean median average input image scan
    audio video file header acquisition target
    """
)
_UNITS = _set(
    """
    s sec secs second seconds ms us ns m min mins minutes h hr hrs hour hours d days bytes b kb
    mb gb kib mib gib raw total sum max peak avg of in pct percent
    """
)
# Without separators and units.
MEASURED = _set(
    """
    elapsed elapsedraw elapsedtime wallclock wallclocktime runtime realtime exectime
    executiontime walltimeused usedwalltime timeused cputime cputimeraw totalcpu usercpu
    systemcpu avecpu mincpu cpuused usertime systime systemtime rss vmem vms vmsize uss pss
    rchar wchar syscr syscw readbytes writebytes diskread diskwrite averss maxrss maxvmsize
    avevmsize maxpages avepages maxdiskread maxdiskwrite avediskread avediskwrite consumedenergy
    consumedenergyraw exit exitcode exitstatus derivedexitcode returncode ioin ioout meanload
    cpuusage memusage memoryusage memused memoryused usedmemory cpuefficiency volctxt invctxt
    turnaround makespan hms energyused percentcpu
    """
)
_TIMES = _set(
    """
    s sec secs second seconds ms h hr hrs hour hours min minutes time
    """
)
_MEMORY = _set(
    """
    mem memory ram rss vmem
    """
)
_IDENTIFIERS = _set(
    """
    id ids uuid guid pid jobid taskid runid jobidraw rowid index idx row rownumber rownr serial
    job jobnumber runnumber unnamed
    """
)
_MOMENTS = _set(
    """
    start started end ended submit submitted submission eligible begin began finish finished
    completed date time timestamp created at when epoch unix
    """
)


def is_measurement(name: str) -> bool:
    """Return whether a name is used by accounting systems for a measurement of a run.

    Examples
    --------
    >>> [is_measurement(name) for name in ("MaxRSS", "cpu_s", "Elapsed", "ExitCode")]
    [True, True, True, True]
    >>> [is_measurement(name) for name in ("cpus", "req_walltime", "duration", "end", "system")]
    [False, False, False, False, False]
    """
    words = _words(name)
    if not BEFORE.isdisjoint(words):
        return False
    core = [word for word in words if word not in _UNITS]
    if "".join(words) in MEASURED or "".join(core) in MEASURED:
        return True
    if core in (["cpu"], ["core"], ["node"], ["gpu"]) and not _TIMES.isdisjoint(words):
        return True  # cpu_s, core_hours
    if words in (["%", "cpu"], ["%", "mem"]):
        return True
    return "peak" in words and not _MEMORY.isdisjoint(words)


def names_rows(name: str) -> bool:
    """Return whether a name is an identifier's: it ends in one, and does not count them.

    Examples
    --------
    >>> [names_rows(name) for name in ("JobID", "job_id", "Unnamed: 0", "index")]
    [True, True, True, True]
    >>> [names_rows(name) for name in ("width", "key_size", "index_rows", "hash_entries")]
    [False, False, False, False]
    """
    words = _words(name)
    return "".join(words) in _IDENTIFIERS or words[-1:] in (["id"], ["ids"], ["uuid"], ["guid"])


def names_moment(name: str) -> bool:
    """Return whether a name means a moment in time, and nothing else.

    Examples
    --------
    >>> [names_moment(name) for name in ("submit_time", "started_at", "created_voxels")]
    [True, True, False]
    """
    words = [word for word in _words(name) if word not in _UNITS]
    return bool(words) and _MOMENTS.issuperset(words)


def is_version(name: str) -> bool:
    """Return whether a name means a version, which must not be read as a number: 1.10 is not 1.1.

    Examples
    --------
    >>> [is_version(name) for name in ("version", "toolVersion", "versions", "version_bytes")]
    [True, True, False, False]
    """
    return _words(name)[-1:] in (["version"], ["ver"])


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name) if not word.isdigit()]
