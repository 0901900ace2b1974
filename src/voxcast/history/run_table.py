"""The columns of the history: one row per run, in one schema for all sources of runs.

Integers that may be unknown are nullable, since a float would round large sizes. Unknown strings
are empty, never missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

DTYPES = {
    "cell_key": "str",  # hash of the cell of the run, or of the source's row if imported
    "app": "str",
    "app_version": "str",  # with the versions of its packages, or the digest of its container
    "parameters_json": "str",
    "volume_id": "str",  # empty for an application without an image
    "subject": "str",
    "recipe_json": "str",  # parameters of a generated volume
    "host_id": "str",
    "host_class": "str",  # CPU model, cores, GPU models: runs on one class are comparable
    "node_type": "str",
    "cpu_model": "str",
    "probe_cpu": "float64",  # see voxcast.measure.host for these three and their units
    "probe_membw": "float64",
    "probe_disk": "float64",
    "device": "str",
    "cpus": "int64",  # 0 if an imported source does not state it
    "gpus": "int64",
    "mem_limit_bytes": "Int64",
    "scale": "str",
    "repeat": "int64",
    "sitting": "str",  # uninterrupted series of runs on one machine, with probes at its start
    "outcome": "str",
    "exit_status": "Int64",
    "limit_s": "float64",  # time limit of the run
    "noisy": "bool",  # disturbed by other work on the machine
    "load1": "float64",  # load average over one minute, before the run
    "steal": "float64",  # share of the machine's CPU time taken by its hypervisor, 0 to 1
    "runtime_s": "float64",
    "cpu_s": "float64",
    "cpu_method": "str",
    "peak_rss_bytes": "Int64",
    "peak_cgroup_bytes": "Int64",
    "memory_method": "str",
    "peak_gpu_bytes": "Int64",
    "gpu_utilisation": "float64",  # mean over the run, 0 to 1
    "io_read_bytes": "Int64",
    "io_write_bytes": "Int64",
    "peak_threads": "Int64",
    "started_at": "str",
    "source": "str",  # `voxcast.records.MEASURED`, or the source it was imported from
    "labels_json": "str",  # other information of the source
    "metronome_compute_s": "float64",  # mean CPU time of a kernel beside the run, for these four:
    "metronome_copy_s": "float64",  # see voxcast.measure.metronome
    "metronome_gather_s": "float64",
    "metronome_interpreter_s": "float64",
    "metronome_ticks": "Int64",  # how often the kernels were timed
}
METRONOME = {name: dtype for name, dtype in DTYPES.items() if name.startswith("metronome_")}
# Columns that older tables lack; they are unknown there.
ADDED = METRONOME
KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int64": (int,),
    "Int64": (int, type(None)),
    "float64": (float, int, type(None)),
}
UNKNOWN: dict[str, Any] = {"str": "", "bool": False, "int64": 0, "Int64": None, "float64": None}

PHASE_DTYPES = {
    "cell_key": "str",
    "app": "str",
    "volume_id": "str",
    "cpus": "int64",
    "phase": "str",
    "start_s": "float64",
    "end_s": "float64",
    "duration_s": "float64",
    "cpu_s": "float64",
    "peak_rss_bytes": "Int64",
}
TRACE_DTYPES = {"cell_key": "str", "t_s": "float64", "rss_bytes": "int64", "cpu_s": "float64"}


def checked_row(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row of the history; a column missing in ``values`` gets its unknown value.

    Raises
    ------
    TypeError
        If a value has the wrong type.
    """
    row = {name: values.get(name, UNKNOWN[dtype]) for name, dtype in DTYPES.items()}
    for name, dtype in DTYPES.items():
        if not isinstance(row[name], KINDS[dtype]):
            raise TypeError(f"{name} is {row[name]!r}")
    return row


def frame_of(
    rows: Iterable[Mapping[str, Any]], dtypes: Mapping[str, str] = DTYPES
) -> pd.DataFrame:
    """Return ``rows`` as a table with exactly these columns, even if there are no rows."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(dtypes)).astype(dict(dtypes))


def in_schema(frame: pd.DataFrame, dtypes: Mapping[str, str] = DTYPES) -> pd.DataFrame:
    """Return ``frame`` with exactly these columns; those that are newer than it are unknown.

    Raises
    ------
    KeyError
        If it lacks a column that every table has.
    """
    names = [name for name in dtypes if name in ADDED and name not in frame.columns]
    newer = {name: UNKNOWN[dtypes[name]] for name in names}
    return frame.assign(**newer)[list(dtypes)].astype(dict(dtypes))
