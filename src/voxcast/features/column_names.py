"""What the name of a column tells: whether it is measured during a run, or an input of it.

Names are split at separators and capitals. Those of Slurm's accounting, Nextflow's trace,
Snakemake's benchmarks, the Standard Workload Format, GNU time and this project are known.
"""

from __future__ import annotations

import re
from enum import Enum


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
# Words of what is known before a run.
INPUTS = _set(
    """
    size sizes bytes voxels megavoxels volume length rows cols columns reads samples records
    sequences count counts num number total n width height depth shape dim dims slices images
    files features parameters iterations steps epochs resolution spacing threads cpus cores
    ncpus nodes gpus tasks workers batch atoms tokens particles elements points cells genes
    variants pixels frames vertices edges events residues bases words characters queries mb gb
    kb tb mib gib megabytes gigabytes input scale
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
# What takes these words for itself may be an input all the same: an audio's duration.
UNCLEAR = _set(
    """
    duration time walltime wall clock user sys system end finish finished ended completed took
    spent used actual cost load energy job run task process start elapsed cpu core node gpu
    memory mem
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
    id ids uuid guid hash pid jobid taskid runid key index idx row rownumber unnamed serial
    """
)
_MOMENTS = _set(
    """
    start started end ended submit submitted submission eligible begin began finish finished
    completed date time timestamp created at when day
    """
)


class Name(Enum):
    """The kind of a column by its name."""

    MEASURED = "measured during a run"
    UNCLEAR = "may be measured during a run"
    INPUT = "known before a run"
    OTHER = "tells nothing"


def name_kind(name: str) -> Name:
    """Return what a name tells.

    Examples
    --------
    >>> [name_kind(n).name for n in ("MaxRSS", "cpu_s", "cpus", "req_walltime", "duration")]
    ['MEASURED', 'MEASURED', 'INPUT', 'OTHER', 'UNCLEAR']
    """
    words = _words(name)
    if not BEFORE.isdisjoint(words):
        return Name.INPUT if not INPUTS.isdisjoint(words) else Name.OTHER
    core = [word for word in words if word not in _UNITS]
    if "".join(words) in MEASURED or "".join(core) in MEASURED:
        return Name.MEASURED
    if core in (["cpu"], ["core"], ["node"], ["gpu"]) and not _TIMES.isdisjoint(words):
        return Name.MEASURED  # cpu_s, core_hours
    if words in (["%", "cpu"], ["%", "mem"]):
        return Name.MEASURED
    if "peak" in words and not _MEMORY.isdisjoint(words):
        return Name.MEASURED
    if core and set(core) <= UNCLEAR:
        return Name.UNCLEAR
    if not core and not _TIMES.isdisjoint(words):
        return Name.UNCLEAR  # seconds
    return Name.INPUT if not INPUTS.isdisjoint(words) else Name.OTHER


def names_rows(name: str) -> bool:
    """Return whether a name is that of an identifier.

    Examples
    --------
    >>> names_rows("JobID"), names_rows("Unnamed: 0"), names_rows("width")
    (True, True, False)
    """
    words = _words(name)
    return not _IDENTIFIERS.isdisjoint(words) or "".join(words) in _IDENTIFIERS


def names_moment(name: str) -> bool:
    """Return whether a name is that of a moment in time.

    Examples
    --------
    >>> names_moment("submit_time"), names_moment("started_at"), names_moment("size")
    (True, True, False)
    """
    return not _MOMENTS.isdisjoint(_words(name))


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name) if not word.isdigit()]
