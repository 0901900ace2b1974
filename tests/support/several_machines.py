"""Planted runs on machines of known speeds, for tests."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

import planted


def timed(table: pd.DataFrame, noise_sd: float = 0.02) -> pd.DataFrame:
    """Add the time of the kernels before each run, which was slowed as much as the run was."""
    noise = np.random.default_rng(1).normal(0.0, noise_sd, len(table))
    slowed = -table["log_speed"].to_numpy(dtype=float)
    return table.assign(kernel_s=0.002 * np.exp(slowed + noise))


def table(
    machines: Mapping[str, Sequence[float]],
    subjects: Mapping[str, int],
    *,
    noise: float = 0.03,
    seed: int = 0,
    sitting_sd: float = 0.0,
) -> pd.DataFrame:
    """Return the training table of runs on several machines, each on subjects of its own.

    Parameters
    ----------
    machines : mapping of str to sequence of float
        Logarithmic speed of each sitting, by machine.
    subjects : mapping of str to int
        Number of subjects of each machine, shared by its sittings; two runs each.

    Returns
    -------
    DataFrame
        Also with the ``log_speed`` of each run.
    """
    rng = np.random.default_rng(seed)
    tables = []
    rows = planted.table(sum(subjects.values()), noise=noise, seed=seed)
    names = sorted(rows["subject"].unique())
    for host, log_speeds in machines.items():
        chosen, names = names[: subjects[host]], names[subjects[host] :]
        runs = rows[rows["subject"].isin(chosen)].copy()
        sitting = np.arange(len(runs)) // 2 % len(log_speeds)
        deviations = np.array(log_speeds) + rng.normal(0, sitting_sd, len(log_speeds))
        factor = np.exp(-deviations[sitting])
        runs["host_id"] = host
        runs["sitting"] = [f"2026-01-0{n + 1}-{host}-1" for n in sitting]
        runs["started_at"] = [f"2026-01-0{n + 1}T00:00:00+00:00" for n in sitting]
        runs["log_speed"] = deviations[sitting]
        runs["cpu_s"] *= factor
        runs["runtime_s"] *= factor
        tables.append(runs)
    return pd.concat(tables, ignore_index=True)
