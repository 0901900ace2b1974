"""Real mpi4py programs, recorded."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from voxcast.errors import RunError
from voxcast.phases import recorder as mpi_recorder
from voxcast.phases.events import EventTable, Kind, read_trace

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun"),
]
PROGRAM = Path(__file__).parents[2] / "samples" / "mpi_program.py"
STEPS, RANKS = 3, 3


def record(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(RANKS), sys.executable,
         mpi_recorder.__file__, "--out", folder, PROGRAM, *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "trace"
    completed = record(folder, str(STEPS))
    assert completed.returncode == 0, completed.stderr
    return folder


@pytest.fixture
def table(folder: Path) -> EventTable:
    return read_trace(folder)


def names(table: EventTable, chosen: np.ndarray) -> list[str]:
    return [table.operations[i] for i in table["operation"][chosen]]


def sizes(table: EventTable, operation: str, process: int | None = None) -> np.ndarray:
    chosen = table["operation"] == table.operations.index(operation)
    if process is not None:
        chosen &= table["process"] == process
    return table["size_bytes"][chosen]


def test_every_call_is_there_with_its_size(table: EventTable) -> None:
    assert table.missing == ()
    assert table.computation_unit == "cpu_ns"
    first = table["process"] == 0
    assert names(table, first & (table["kind"] == Kind.COLLECTIVE)) == [
        "MPI_Comm_split",
        *["MPI_Allreduce", "MPI_Bcast", "MPI_Allreduce", "MPI_Allgather", "MPI_Scatter",
          "MPI_Barrier"] * STEPS,
        "MPI_Comm_create_cart", "MPI_Gather",
    ]  # fmt: skip
    assert sizes(table, "MPI_Allreduce", 0)[::2].tolist() == [64 * 8] * STEPS
    # Sizes of objects are those of their pickles; each rank has its part, of 1000 bytes.
    assert np.all(sizes(table, "MPI_Barrier") == 0)
    assert np.all((sizes(table, "MPI_Bcast") > 0) & (sizes(table, "MPI_Bcast") < 100))
    assert np.all(sizes(table, "MPI_Allreduce")[1::2] > 0)
    assert len(sizes(table, "MPI_Scatter")) == STEPS * RANKS
    assert np.all(sizes(table, "MPI_Scatter") > 1000)


def test_sends_and_receives_pair_by_process_tag_group_and_size(table: EventTable) -> None:
    def messages(kind: Kind) -> list[tuple[int, ...]]:
        chosen = table["kind"] == kind
        ends = table["process"][chosen], table["peer"][chosen]
        sender, receiver = ends if kind == Kind.SEND else ends[::-1]
        rest = (table[name][chosen] for name in ("tag", "group", "size_bytes"))
        return sorted(zip(sender, receiver, *rest, strict=True))

    assert messages(Kind.SEND) == messages(Kind.RECEIVE)
    assert len(messages(Kind.SEND)) == STEPS * (2 + RANKS) + RANKS


def test_groups_are_the_same_on_all_ranks(table: EventTable) -> None:
    for process, members in ((0, (0, 2)), (1, (1,)), (2, (0, 2))):
        chosen = (table["process"] == process) & (
            table["operation"] == table.operations.index("MPI_Bcast")
        )
        assert {table.groups[group] for group in table["group"][chosen]} == {members}
    # The ring has the members of the world, and is another group.
    assert table.groups.count((0, 1, 2)) == 2


def test_times_of_a_process_do_not_overlap(table: EventTable) -> None:
    for process in range(RANKS):
        chosen = table["process"] == process
        start_ns, end_ns = table["start_ns"][chosen], table["end_ns"][chosen]
        assert np.all(end_ns >= start_ns)
        assert np.all(start_ns[1:] >= end_ns[:-1])
        gaps_ns = start_ns - np.concatenate([[table.start_ns[process]], end_ns[:-1]])
        # The clocks of CPU and of wall tick differently by as much as 0.1 ms.
        assert np.all(table["computation"][chosen] <= gaps_ns + 1e5)


def test_a_failed_rank_leaves_what_it_had(tmp_path: Path) -> None:
    completed = record(tmp_path / "trace", "1", "abort")
    assert completed.returncode != 0
    assert "ValueError: planned" in completed.stderr
    table = read_trace(tmp_path / "trace")
    assert "rank 1: cut short or damaged (the text ends too early)" in table.missing
    last = np.flatnonzero(table["process"] == 1)[-1]
    assert table.operations[table["operation"][last]] == "MPI_Sendrecv"


def test_nonblocking_calls_are_named_and_files_of_two_runs_refused(
    folder: Path, tmp_path: Path
) -> None:
    completed = record(tmp_path / "trace", "1", "more")
    assert completed.returncode == 0
    table = read_trace(tmp_path / "trace")
    for rank in range(RANKS):
        assert f"rank {rank}: 1 × Irecv not followed" in table.missing
        told = f"rank-0000{rank}.json: calls not recorded: 1 × Irecv, 1 × Isend"
        assert told in completed.stderr
        recorded = names(table, table["process"] == rank)
        assert recorded.count("MPI_Sendrecv_replace") == 2
        assert recorded.count("MPI_Probe") == 1
    shutil.copy(folder / "rank-00000.json", tmp_path / "trace" / "rank-00000.json")
    with pytest.raises(RunError, match="holds files of 2 runs"):
        read_trace(tmp_path / "trace")
