"""The momentary speed of a machine during each run, against its usual speed.

A neighbour on the machine slows a run for seconds to minutes. It shows in constant work that
was timed at the same time: the kernels of the metronome beside the run where they are on record,
else the `start` phase of the run itself (imports of libraries) and of the runs next to it. How
strongly a run's CPU time follows them is learned from repeats, by application, and shrunk towards
what all applications share. Labels stay as measured: this is for noise floors and for errors that
are reported beside the raw ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from voxcast.runs.table import METRONOME, REPEATED, plain_repeats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    Values = NDArray[np.float64]
    Cell = tuple[str, int]  # application and number

KERNELS = [name for name in METRONOME if name.endswith("_s")]
TICKS = "metronome_ticks"
MINIMUM_TICKS = 3  # below, the kernels say less of the run than its own start does
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


class _Moments(NamedTuple):
    """Sums over repeats, each less the mean of its cell: of gauges, and of the log CPU time."""

    squares: Values
    products: Values
    total: float
    free: float  # runs less cells

    @classmethod
    def of(cls, gauges: Values, logs: Values) -> _Moments:
        """Return the sums of one cell."""
        x, y = gauges - gauges.mean(axis=0), logs - logs.mean()
        return cls(x.T @ x, x.T @ y, float(y @ y), len(y) - 1)

    def residual(self, coefficients: Values) -> float:
        """Return the sum of squares that ``coefficients`` leave."""
        explained = 2 * self.products - self.squares @ coefficients
        return max(self.total - float(coefficients @ explained), 0.0)


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


def _metronome(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the logarithm of each kernel's time, less its usual value; NaN where unknown."""
    readings = runs.reindex(columns=[*KERNELS, TICKS]).astype("float64")  # older tables lack them
    times = readings[KERNELS]
    times = times.where((readings[TICKS] >= MINIMUM_TICKS) & (times > 0).all(axis=1))
    return _from_usual(times.transform(np.log), runs)


def _starts(runs: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """Return the same of the run's start, and of the starts of the runs before and after it."""
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
    mean = pd.concat(nearby, axis=1).mean(axis=1).fillna(0.0)  # the usual speed if there are none
    return deviations.assign(nearby=mean.reindex(runs.index))


def _from_usual(logs: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    keys = [runs[name] for name in ALIKE]
    return logs - logs.groupby(keys, dropna=False).transform("median")


def _explained(runs: pd.DataFrame, deviations: pd.DataFrame) -> Values | None:
    """Return the share of each run's log CPU time that its gauges explain; None without repeats.

    The coefficients of a run are learned without the runs of its own cell.
    """
    # A disturbed repeat counts for no coefficient, and is still a run of its cell.
    counts = runs.index.isin(plain_repeats(runs).index) & (runs["cpu_s"] > 0).to_numpy()
    numbers = runs.groupby(REPEATED, dropna=False, sort=False).ngroup().to_numpy()
    cells: list[Cell] = list(zip(runs["app"].astype(str), map(int, numbers), strict=True))
    x = deviations.to_numpy(float)
    logs = np.log(runs["cpu_s"].to_numpy(float), where=counts, out=np.zeros(len(runs)))
    moments = {}
    for number in np.unique(numbers):
        (rows,) = np.nonzero((numbers == number) & counts)
        if len(rows) > 1:
            moments[cells[rows[0]]] = _Moments.of(x[rows], logs[rows])
    if not moments:
        return None
    coefficients: dict[Cell, Values] = {}
    shares = np.zeros(len(runs))
    for n, (app, number) in enumerate(cells):
        # Runs that have no repeats share their coefficients.
        cell = (app, number if (app, number) in moments else UNREPEATED)
        if cell not in coefficients:
            others = {key: value for key, value in moments.items() if key != cell}
            coefficients[cell] = _coefficients(others, app, x.shape[1])
        shares[n] = x[n] @ coefficients[cell]
    return shares


def _coefficients(moments: Mapping[Cell, _Moments], app: str, n_gauges: int) -> Values:
    """Return the coefficients of ``app``, shrunk towards those that all applications share."""
    none = np.zeros(n_gauges)
    if not moments:
        return none
    pooled = _pooled(list(moments.values()))
    variance = pooled.total / pooled.free
    for _ in range(3):  # the residual variance and the coefficients depend on each other
        shared = _ridge(pooled, none, variance / SHARED_SPREAD**2)
        variance = pooled.residual(shared) / pooled.free
    of_app = [value for (name, _), value in moments.items() if name == app]
    return _ridge(_pooled(of_app), shared, variance / APP_SPREAD**2) if of_app else shared


def _pooled(moments: Sequence[_Moments]) -> _Moments:
    squares, products, total, free = zip(*moments, strict=True)
    return _Moments(np.sum(squares, axis=0), np.sum(products, axis=0), sum(total), sum(free))


def _ridge(moments: _Moments, centre: Values, penalty: float) -> Values:
    weight = penalty + TINY
    squares = moments.squares + weight * np.eye(len(centre))
    return np.asarray(np.linalg.solve(squares, moments.products + weight * centre))
