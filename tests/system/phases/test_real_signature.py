"""Signatures of a real MPI program, recorded here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from voxcast.phases.events import read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.predict import backtest, cycles_of, transfer
from voxcast.phases.signature import signature, tick_times
from voxcast_apps import ranks

pytestmark = pytest.mark.mpi
PROCESSES, ITERATIONS, SHORT = 2, 40, 8


def recorded(folder, iterations):
    """Run k-means of so many iterations under the recorder and return its logical trace."""
    parameters = {"points": 20_000, "clusters": 8, "dimensions": 4, "iterations": iterations,
                  "oversubscription": PROCESSES}  # fmt: skip
    command = ranks.mpirun(PROCESSES, [
        sys.executable, "-P", "-m", "voxcast.phases.recorder",
        "--out", str(folder / "trace"),
        "-m", "voxcast_apps.kmeans_mpi", "--out", str(folder / "out"),
        "--threads", "1", "--parameters", json.dumps(parameters),
    ])  # fmt: skip
    # As where a package is on this path alone: its first entry must stay.
    environment = ranks.rank_variables(1) | {"PYTHONPATH": str(Path(ranks.__file__).parents[1])}
    subprocess.run(command, env=environment, check=True, timeout=300)
    return logical_trace(read_trace(folder / "trace"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("whole"), ITERATIONS)


def test_iterations_are_the_cycles_and_phases_add_up(whole) -> None:
    assert whole.missing == ()
    cycles = cycles_of(whole)
    assert (cycles.length_ticks, cycles.count) == (1, ITERATIONS)
    assert cycles.counted.startswith("MPI_Allreduce")
    result = signature(whole)
    by_process_ns = np.bincount(whole.events["process"], whole.elapsed_ns())
    assert result.total_s == pytest.approx(by_process_ns.max() / 1e9, rel=1e-6)
    assert result.processes == PROCESSES
    in_loop = [p.weight for p in result.phases if p.communication == cycles.counted]
    assert 1 <= sum(in_loop) <= ITERATIONS


def test_the_first_part_tells_how_many_cycles_are_to_come(whole) -> None:
    cycles, prediction = backtest(whole, 0.3)
    assert prediction.cycles_of_run == ITERATIONS
    assert cycles.count < ITERATIONS
    assert prediction.elapsed_s < tick_times(whole).elapsed_s
    assert prediction.lower_s <= prediction.total_s <= prediction.upper_s
    expected_s = prediction.elapsed_s + (ITERATIONS - cycles.count) * prediction.cycle_s
    assert prediction.total_s == pytest.approx(expected_s)


def test_a_short_run_is_aligned_with_a_long_one(whole, tmp_path) -> None:
    result = transfer(whole, recorded(tmp_path, SHORT))
    assert result.aligned_share == 1.0
    assert sum(phase.weight for phase in result.phases) == len(whole)
    assert sum(phase.passes for phase in result.phases) == SHORT + len(whole) - ITERATIONS
