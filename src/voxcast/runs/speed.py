"""The momentary speed of a machine during each run, against its usual speed.

A neighbour on the machine slows a run for seconds to minutes. It shows in constant work that
was timed at the same time: the kernels of the metronome beside the run where they are on record,
else the `start` phase (imports of libraries) of the runs just before and after. A run's own start
is part of the time to be explained, and unknown when a run is predicted. How strongly CPU time
follows the gauge is learned from repeats, by application, and shrunk towards what all applications
share. Labels stay as measured: this is for noise floors and for errors that are reported beside
the raw ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from voxcast.runs.table import BEFORE, METRONOME, REPEATED, plain_repeats

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

KERNELS = [name for name in METRONOME if name.endswith("_s")]
TICKS = "metronome_ticks"
MINIMUM_TICKS = 3  # below, the kernels say less of the run than the starts beside it do
START = "start"
CONSTANT = (START, "import")  # phases with the same work in each run: the imports of libraries
# The usual time of constant work is the median over runs that agree in these.
ALIKE = ["app", "app_version", "device", "cpus", "host_id"]
# A start that differs by more than a factor of 1.5 from the usual one was not the same work: its
# libraries were read from disk, say, as in the first run of a day.
START_RANGE = 0.4
NEARBY_S = 120.0  # between the starts of one run and the next; the speed is another one later
# Prior standard deviations of coefficients: of the shared ones around zero, and of each
# application around the shared ones. One is the coefficient of work like that of the gauge.
SHARED_SPREAD, APP_SPREAD = 1.0, 0.3
UNREPEATED = -1  # stands for the number of all cells without repeats
TINY = 1e-12  # of squared logarithms; runs without any noise can be solved for, too


def speed_deviations(runs: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """Return how much faster than usual the machine was during each run.

    CPU time times ``exp(log_speed)`` is the CPU time of the run at the usual speed.

    Parameters
    ----------
    runs : DataFrame
        Completed runs in the columns of `voxcast.runs.table`, of one machine or of several:
        each is compared with itself. Runs without repeats get their coefficients from those with
        repeats: a batch that has none is passed together with one that has.
    phases : DataFrame
        Phases of these runs and maybe of others, see `PHASE_DTYPES`.

    Returns
    -------
    DataFrame
        Indexed by ``cell_key`` in the order of ``runs``. ``log_speed`` is the natural logarithm of
        the speed over the usual speed, 0.0 where nothing is known; ``gauge`` is ``metronome``,
        ``start``, or empty where nothing is known. The coefficients behind the ``log_speed`` of a
        run were learned without the runs of its own cell, so that repeats can be judged by it.
    """
    import pandas as pd

    runs = runs.reset_index(drop=True)
    gauges = {"metronome": _metronome(runs), START: _starts(runs, phases)}
    log_speed = pd.Series(0.0, index=runs.index)
    gauge = pd.Series("", index=runs.index)
    for name, deviations in gauges.items():
        measured = deviations.dropna()
        measured = measured[gauge[measured.index] == ""]
        explained = _explained(runs.loc[measured.index], measured)
        if explained is not None:
            log_speed[measured.index] = -explained
            gauge[measured.index] = name
    table = pd.DataFrame({"log_speed": log_speed, "gauge": gauge})
    return table.set_index(pd.Index(runs["cell_key"], name="cell_key"))


def at_usual_speed(runs: pd.DataFrame, deviations: pd.DataFrame) -> pd.DataFrame:
    """Return ``runs`` with the CPU and wall times that they would have taken at the usual speed.

    Parameters
    ----------
    runs : DataFrame
        With ``cell_key cpu_s runtime_s``.
    deviations : DataFrame
        From `speed_deviations`; a run that is not in it keeps its times.
    """
    factors = np.exp(runs["cell_key"].map(deviations["log_speed"]).fillna(0.0))
    return runs.assign(cpu_s=runs["cpu_s"] * factors, runtime_s=runs["runtime_s"] * factors)


def kernel_times(runs: pd.DataFrame) -> pd.Series[float]:
    """Return the geometric mean of the CPU seconds of the kernels just before each run, by key.

    Where they were timed beside a run alone, they are divided by how much runs of its application
    slow them, as far as runs tell that were timed before and beside. NaN where nothing was timed.

    Parameters
    ----------
    runs : DataFrame
        In the columns of `voxcast.runs.table`, each once.
    """
    runs = runs.set_index("cell_key")
    before = _log_times(runs, list(BEFORE)).mean(axis=1, skipna=False)
    beside = _beside(runs).mean(axis=1, skipna=False)
    slowed = (beside - before).groupby(runs["app"]).transform("median")
    return cast("pd.Series[float]", np.exp(before.fillna(beside - slowed.fillna(0.0))))


def _metronome(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the logarithm of each kernel's time, less its usual value; NaN where unknown."""
    return _from_usual(_beside(runs), runs)


def _beside(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the logarithm of each kernel's time beside a run; NaN where that says too little."""
    ticks = runs.reindex(columns=[TICKS])[TICKS].astype("float64")
    return _log_times(runs, KERNELS).where(ticks >= MINIMUM_TICKS)


def _log_times(runs: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    times = runs.reindex(columns=names).astype("float64")  # older tables lack them
    return times.where((times > 0).all(axis=1)).transform(np.log)


def _starts(runs: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """Return the same of the starts of the runs before and after, on average; NaN without any."""
    import pandas as pd

    constant = phases[phases["phase"].isin(CONSTANT)]
    cpu_s = runs["cell_key"].map(constant.groupby("cell_key")["cpu_s"].sum(min_count=1))
    starts = cpu_s.where(cpu_s > 0).astype(float).rename(START).to_frame()
    deviations = _from_usual(starts.transform(np.log), runs)
    deviations = deviations.where(deviations.abs() <= START_RANGE)
    at = pd.to_datetime(runs["started_at"], format="ISO8601", utc=True, errors="coerce")
    by_time = deviations.assign(at=at, host=runs["host_id"]).sort_values("at", kind="stable")
    nearby = []
    for step in (1, -1):
        other = by_time.groupby("host", sort=False).shift(step)
        near = (by_time["at"] - other["at"]).abs().dt.total_seconds() <= NEARBY_S
        nearby.append(other[START].where(near))
    return pd.concat(nearby, axis=1).mean(axis=1).reindex(runs.index).to_frame(START)


def _from_usual(logs: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    keys = [runs[name] for name in ALIKE]
    return logs - logs.groupby(keys, dropna=False).transform("median")


def _explained(runs: pd.DataFrame, deviations: pd.DataFrame) -> Values | None:
    """Return the share of each run's log CPU time that its gauges explain; None without repeats.

    The coefficients of a run are learned without the runs of its own cell.
    """
    cells = runs.groupby(REPEATED, dropna=False, sort=False).ngroup()
    # A disturbed repeat counts for no coefficient, and is still a run of its cell.
    counts = (runs["cpu_s"] > 0) & runs.index.isin(plain_repeats(runs).index)
    counts &= counts.groupby(cells).transform("sum") > 1
    if not counts.any():
        return None
    repeats = deviations[counts].assign(log_cpu=np.log(runs["cpu_s"][counts].astype(float)))
    # The work of a cell is the same in all of its runs.
    repeats -= repeats.groupby(cells[counts]).transform("mean")
    gauges, logs = repeats[deviations.columns].to_numpy(float), repeats["log_cpu"].to_numpy()
    apps, repeated = runs["app"][counts].to_numpy(), cells[counts].to_numpy()
    # Runs that have no repeats share their coefficients.
    own_cells = cells.where(cells.isin(repeated), UNREPEATED)
    shares = np.zeros(len(runs))
    for key, rows in runs.groupby([runs["app"].astype(str), own_cells]).indices.items():
        app, cell = cast("tuple[str, int]", key)
        other = repeated != cell
        free = int(other.sum()) - len(np.unique(repeated[other]))
        coefficients = _coefficients(gauges[other], logs[other], free, apps[other] == app)
        shares[rows] = deviations.to_numpy(float)[rows] @ coefficients
    return shares


def _coefficients(gauges: Values, logs: Values, free: int, of_app: NDArray[np.bool_]) -> Values:
    """Return the coefficients of an application, shrunk towards those that all share.

    Parameters
    ----------
    gauges, logs : ndarray, shape (repeats, gauges) and (repeats,)
        Of repeats, each less the mean of its cell.
    free : int
        Repeats less cells.
    of_app : ndarray of bool, shape (repeats,)
        Repeats of the application.
    """
    shared = none = np.zeros(gauges.shape[1])
    if not free:
        return none
    variance = float(logs @ logs) / free
    for _ in range(3):  # the residual variance and the coefficients depend on each other
        shared = _ridge(gauges, logs, none, variance / SHARED_SPREAD**2)
        variance = float(np.square(logs - gauges @ shared).sum()) / free
    return _ridge(gauges[of_app], logs[of_app], shared, variance / APP_SPREAD**2)


def _ridge(gauges: Values, logs: Values, centre: Values, penalty: float) -> Values:
    weight = penalty + TINY
    squares = gauges.T @ gauges + weight * np.eye(len(centre))
    return np.asarray(np.linalg.solve(squares, gauges.T @ logs + weight * centre))
