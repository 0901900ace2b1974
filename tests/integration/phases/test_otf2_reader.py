"""OTF2 archives: a recorded one of EZTrace, fresh ones, and planted ones."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from voxcast.errors import RunError
from voxcast.phases.events import Kind, read_trace

otf2 = pytest.importorskip("otf2")

SAMPLES = Path(__file__).parents[2] / "samples"
# EZTrace 2.0, three ranks of eztrace_ring.c, three steps.
EZTRACE = SAMPLES / "eztrace_ring"


def copy_of(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_an_archive_with_repeated_definitions_is_read() -> None:
    with (
        pytest.raises(Exception, match=r"INTERRUPTED_BY_CALLBACK|Duplicate"),
        otf2.reader.open(str(EZTRACE / "eztrace_log.otf2")),
    ):
        pass
    table = read_trace(EZTRACE)
    assert table.processes == ("P#0", "P#1", "P#2")
    assert table.computation_unit == "elapsed_ns"
    kinds = np.bincount(table["kind"], minlength=4).tolist()
    assert [kinds[kind] for kind in (Kind.SEND, Kind.RECEIVE, Kind.COLLECTIVE)] == [12, 3, 27]
    sums = table["operation"] == table.operations.index("MPI_Allreduce")
    assert set(table["size_bytes"][sums]) == {512}
    assert table["peer"][table["kind"] == Kind.RECEIVE].tolist() == [0, 0, 0]
    # What this version of EZTrace does not write.
    assert table.missing == tuple(f"P#{i}T#0: 3 ends of nonblocking receives" for i in range(3))


def test_a_missing_and_a_cut_file_leave_the_rest(tmp_path: Path) -> None:
    whole = read_trace(EZTRACE)
    folder = copy_of(EZTRACE, tmp_path)
    (folder / "eztrace_log" / "715827882.evt").unlink()
    table = read_trace(folder)
    assert set(table["process"]) == {0, 2}
    assert any(text.startswith("P#1T#0: ") for text in table.missing)
    events = folder / "eztrace_log" / "0.evt"
    events.write_bytes(events.read_bytes()[:600])
    table = read_trace(folder)
    assert "P#0T#0: its file is cut off after 600 bytes" in table.missing
    assert set(table["process"]) == {2}
    last = table["process"] == 2
    assert np.array_equal(table["start_ns"][last], whole["start_ns"][whole["process"] == 2])


@pytest.mark.parametrize("name", ["eztrace_log.otf2", "eztrace_log.def"])
def test_a_cut_anchor_or_definitions_are_an_error(name: str, tmp_path: Path) -> None:
    folder = copy_of(EZTRACE, tmp_path)
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(RunError, match=r"eztrace_log\.otf2: "):
        read_trace(folder)


def planted(folder: Path, *, instructions: bool = False, empty: bool = False) -> Path:
    """Write an archive of two ranks: a message, then a sum, in ticks of 100 ns."""
    with otf2.writer.open(str(folder), timer_resolution=10_000_000) as trace:
        defined = trace.definitions
        node = defined.system_tree_node("node")
        region = {n: defined.region(n) for n in ("main", "MPI_Send", "MPI_Recv", "MPI_Allreduce")}
        locations = []
        for rank in range(2):
            group = defined.location_group(f"rank {rank}", system_tree_parent=node)
            locations.append(defined.location(f"thread {rank}", group=group))
        writers = [trace.event_writer_from_location(location) for location in locations]
        defined.group(
            "locations", group_type=otf2.GroupType.COMM_LOCATIONS, paradigm=otf2.Paradigm.MPI,
            members=locations,
        )  # fmt: skip
        world = defined.comm(
            "world",
            defined.group(
                "world", group_type=otf2.GroupType.COMM_GROUP, paradigm=otf2.Paradigm.MPI,
                members=[0, 1],
            ),
        )  # fmt: skip
        counter = defined.metric("PAPI_TOT_INS", unit="#") if instructions else None
        if empty:
            return folder / "traces.otf2"
        for rank, writer in enumerate(writers):

            def count(tick: int, number: int, writer: object = writer) -> None:
                if counter is not None:
                    writer.metric(tick, counter, number)

            name = ("MPI_Send", "MPI_Recv")[rank]
            count(100, 0)
            writer.enter(100, region["main"])
            count(200, 5000)
            writer.enter(200, region[name])
            if rank == 0:
                writer.mpi_send(210, 1, world, 4, 80)
            else:
                writer.mpi_recv(290, 0, world, 4, 80)
            count(300, 5100)
            writer.leave(300, region[name])
            count(500, 9100)
            writer.enter(500, region["MPI_Allreduce"])
            writer.mpi_collective_begin(510)
            writer.mpi_collective_end(
                590, otf2.CollectiveOp.ALLREDUCE, world, otf2.CollectiveRoot.NONE, 8, 16
            )
            writer.leave(600, region["MPI_Allreduce"])
            writer.leave(700, region["main"])
    return folder / "traces.otf2"


@pytest.mark.parametrize(
    ("instructions", "unit", "computation"),
    [(False, "elapsed_ns", [10000, 20000]), (True, "instructions", [5000, 4000])],
)
def test_planted_events_are_read_back(
    instructions: bool, unit: str, computation: list[int], tmp_path: Path
) -> None:
    table = read_trace(planted(tmp_path / "trace", instructions=instructions))
    assert table.missing == ()
    assert table.computation_unit == unit
    assert table["computation"].tolist() == computation * 2
    assert table["kind"].tolist() == [Kind.SEND, Kind.COLLECTIVE, Kind.RECEIVE, Kind.COLLECTIVE]
    assert (table["end_ns"] - table["start_ns"]).tolist() == [10000] * 4
    assert table["peer"].tolist() == [1, -1, 0, -1]
    assert table["tag"].tolist() == [4, -1, 4, -1]
    assert table["size_bytes"].tolist() == [80, 16, 80, 16]
    assert (table.end_ns - table.start_ns).tolist() == [60000, 60000]
    assert table.groups[table["group"][0]] == (0, 1)


def test_an_empty_archive_was_not_traced(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no events; the program was not traced"):
        read_trace(planted(tmp_path / "trace", empty=True))


@pytest.mark.mpi
@pytest.mark.skipif(
    not all(map(shutil.which, ("eztrace", "mpicc", "mpirun"))), reason="needs EZTrace and MPI"
)
def test_a_fresh_trace_of_eztrace(tmp_path: Path) -> None:
    program = tmp_path / "ring"
    subprocess.run(["mpicc", "-O1", "-o", program, SAMPLES / "eztrace_ring.c"], check=True)
    subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", "eztrace", "-t",
         "openmpi", "-o", tmp_path / "trace", program, "5"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    table = read_trace(tmp_path / "trace")
    assert np.count_nonzero(table["kind"] == Kind.COLLECTIVE) == 2 * 5 * 3
    sends = (table["kind"] == Kind.SEND) & (table["tag"] == 7)
    assert table["size_bytes"][sends].tolist() == [512] * 5
