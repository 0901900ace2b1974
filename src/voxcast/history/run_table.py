"""The columns of the history: one row a run, the same for measured, recorded and imported runs.

Nullable integers where a value may be unknown: a float would round large sizes. Strings that are
not known are empty, never absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

DTYPES = {
    "cell_key": "str",  # hash of what defines the run; of the source's own row when imported
    "app": "str",
    "app_version": "str",  # with the versions of its packages, or the digest of its container
    "parameters_json": "str",
    "volume_id": "str",  # empty for an application without an image
    "subject": "str",
    "recipe_json": "str",  # how a generated volume was made
    "host_id": "str",
    "host_class": "str",  # CPU model, cores, GPU models: what must agree for times to be one
    "node_type": "str",
    "cpu_model": "str",
    "probe_cpu": "float64",  # see voxcast.profiling.probes for these three and their units
    "probe_membw": "float64",
    "probe_disk": "float64",
    "device": "str",
    "cpus": "int64",  # 0 where an imported source does not say
    "gpus": "int64",
    "mem_limit_bytes": "Int64",
    "scale": "str",
    "repeat": "int64",
    "sitting": "str",  # one stretch of measuring on one machine, with probes at its start
    "outcome": "str",
    "exit_status": "Int64",
    "limit_s": "float64",  # time limit of the run
    "noisy": "bool",  # the machine was busy with something else
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
    "source": "str",  # measured, or where it was imported from
    "labels_json": "str",  # what a source says of a run beside all this
}
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


def checked_row(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row of the history; a column that is not ``known`` gets its unknown value.

    Raises
    ------
    TypeError
        If a value has the wrong type.
    """
    row = {name: known.get(name, UNKNOWN[dtype]) for name, dtype in DTYPES.items()}
    for name, dtype in DTYPES.items():
        if not isinstance(row[name], KINDS[dtype]):
            raise TypeError(f"{name} is {row[name]!r}")
    return row


def frame_of(
    rows: Iterable[Mapping[str, Any]], dtypes: Mapping[str, str] = DTYPES
) -> pd.DataFrame:
    """Return ``rows`` as a table with exactly these columns, also when there are none."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(dtypes)).astype(dict(dtypes))
