"""Traces of EZTrace, of real gloo processes, and damaged ones of every kind."""

import gzip
import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from voxcast.errors import RunError
from voxcast.phases.events import Kind, read_trace
from voxcast.phases.logical import logical_trace
from voxcast.phases.signature import signature

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


pytest.importorskip("torch")
PROGRAM = Path(__file__).parents[2] / "samples" / "ddp_profiled.py"
MODEL_BYTES = (64 * 32 + 32) * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiled")
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         PROGRAM, folder],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return folder


def test_collectives_of_both_ranks_with_their_sizes(folder: Path) -> None:
    table = read_trace(folder)
    assert table.missing == ()
    assert set(table["kind"]) == {Kind.COLLECTIVE}
    assert table.groups[0] == (0, 1)
    for process in (0, 1):
        chosen = table["process"] == process
        sums = chosen & (table["operation"] == table.operations.index("gloo:all_reduce"))
        assert table["size_bytes"][sums].tolist() == [MODEL_BYTES] * 4
        assert table["size_bytes"][chosen][-1] == 10 * 8
    # Both were started together: their clocks are aligned by the base of each file.
    assert abs(int(table.start_ns[0] - table.start_ns[1])) < 60e9


def test_a_missing_rank_and_a_cut_file_are_named(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    packed = copy / "rank1.json.gz"
    packed.write_bytes(packed.read_bytes()[: packed.stat().st_size * 9 // 10])
    table = read_trace(copy)
    (text,) = table.missing
    assert text.startswith("rank 1: cut short or damaged")
    packed.unlink()
    assert read_trace(copy).missing == ("rank 1: no file",)
    shutil.copy(copy / "rank0.json", copy / "again.json")
    with pytest.raises(RunError, match=r"is of rank 0, as is again\.json"):
        read_trace(copy)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, r"trace\.json: is not a Chrome trace")
          for text in ("[]", "", "{}", '{"traceEvents": []}', "not JSON")),
        ('{"schemaVersion": 1, "traceEvents": []}', "has no communication"),
    ],
)  # fmt: skip
def test_a_trace_of_another_tool_or_without_communication_is_refused(
    text: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(RunError, match=problem):
        read_trace(path)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    filler = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1.0, "dur": 1.0,
              "args": {"pad": "x" * 400}}  # fmt: skip
    collective = filler | {"name": "gloo:all_reduce", "cat": "user_annotation",
                           "args": {"Input Dims": [[3, 4]], "Input type": ["double"]}}  # fmt: skip
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wt", compresslevel=1) as stream:
        stream.write('{"schemaVersion": 1, "traceEvents": [\n' + json.dumps(collective))
        line = ",\n" + json.dumps(filler)
        for _ in range(200):
            stream.write(line * 500)
        stream.write('], "distributedInfo": {"rank": 0, "world_size": 1}}')
    tracemalloc.start()
    table = read_trace(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert table["size_bytes"].tolist() == [96]
    assert peak_bytes < 20e6  # of 50 MB
    assert np.all(table["computation"] == 0)


@pytest.mark.parametrize(
    ("name", "problem"),
    [(".", "holds no trace"), ("gone", "no such file"), ("notes.txt", "is not a trace")],
)
def test_what_is_no_trace_is_refused(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunError, match=problem):
        read_trace(tmp_path / name)


GLOO = {
    "ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "ts": 1.0, "dur": 1.0,
    "args": {"Input Dims": [[10]], "Input type": ["float"]},
}  # fmt: skip
HEAD = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}}


def profiled(folder: Path, events: list, **head: object) -> Path:
    (folder / "rank0.json").write_text(json.dumps(HEAD | head | {"traceEvents": events}))
    return folder


@pytest.mark.parametrize(
    "change",
    [
        {"ts": "soon"}, {"ts": None}, {"ts": 1e300}, {"name": 5}, {"name": ["gloo:x"]},
        {"args": None}, {"args": [1]}, {"args": {"Input Dims": None, "Input type": None}},
        {"args": {"Input Dims": [[1, "x"]], "Input type": ["float"]}},
        {"args": {"Input Dims": [[10**9] * 4], "Input type": ["float"]}},
    ],
    ids=str,
)  # fmt: skip
def test_an_event_of_another_form_is_counted_and_the_rest_read(change, tmp_path) -> None:
    if "args" in change and change["args"] and "Input Dims" in change["args"]:
        change = {"args": dict(change["args"])}
    table = read_trace(profiled(tmp_path, [GLOO, GLOO | change, GLOO | {"ts": 10.0}]))
    assert len(table) == 2
    assert table.missing == ("rank 0: 1 damaged events",)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"distributedInfo": {"rank": -1, "world_size": 2}}, "its rank is not a number"),
        ({"distributedInfo": {"rank": "a"}}, "its rank is not a number"),
        ({"distributedInfo": {"rank": 0, "world_size": 10**12}}, "its world_size is not a number"),
        ({"distributedInfo": {"rank": 0, "world_size": None}}, "its world_size is not a number"),
        ({"distributedInfo": [1]}, "its distributedInfo is not an object"),
        ({"baseTimeNanoseconds": 10**30}, "its baseTimeNanoseconds is not a number"),
    ],
)
def test_impossible_numbers_of_a_rank_are_refused(head, message, tmp_path) -> None:
    with pytest.raises(RunError, match=message):
        read_trace(profiled(tmp_path, [GLOO], **head))


def test_a_process_group_of_ranks_that_are_not_there(tmp_path) -> None:
    groups = [{"pg_name": "0", "ranks": [0, 99]}, "none"]
    info = {"rank": 0, "world_size": 2, "pg_config": groups}
    named = GLOO | {"args": GLOO["args"] | {"Process Group Name": "0"}}
    trace = logical_trace(read_trace(profiled(tmp_path, [named], distributedInfo=info)))
    assert trace.missing == ("rank 1: no file",)


def test_a_clock_that_runs_backwards_adds_no_negative_time(tmp_path) -> None:
    events = [GLOO | {"ts": 100.0 - 10 * n, "dur": -5.0 * n} for n in range(5)]
    result = signature(logical_trace(read_trace(profiled(tmp_path, events))))
    assert all(phase.time_s >= 0 for phase in result.phases)
    assert result.total_s == pytest.approx(result.elapsed_s)


def test_an_empty_file_of_a_rank_is_named_and_a_second_one_refused(tmp_path) -> None:
    copy = Path(shutil.copytree(SAMPLES / "kmeans_mpi_trace", tmp_path / "copy"))
    (copy / "rank-00003.json").write_bytes(b"")
    table = read_trace(copy)
    assert "rank 3: no file" in table.missing
    assert set(table["process"].tolist()) == {0, 1, 2}
    shutil.copy(copy / "rank-00002.json", copy / "rank-00003.json")
    with pytest.raises(RunError, match="is of rank 2, as is rank-00002"):
        read_trace(copy)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut a file, overwrite bytes, or repeat a part of it."""
    data, way = bytearray(content), rng.integers(3)
    if way == 0:
        return bytes(data[: rng.integers(len(data))])
    if way == 1:
        data[:] = np.where(
            rng.random(len(data)) < 20 / len(data), rng.integers(256, size=len(data)), data
        ).astype(np.uint8).tobytes()  # fmt: skip
        return bytes(data)
    place = int(rng.integers(len(data)))
    return bytes(data[:place] + data[max(0, place - 200) :])


@pytest.mark.parametrize(
    ("sample", "files"),
    [("kmeans_mpi_trace", "rank-*.json"), ("eztrace_ring", "eztrace_log/*.evt")],
)
def test_no_damage_gives_a_traceback_or_changes_what_is_read_next(sample, files, tmp_path) -> None:
    if sample == "eztrace_ring":
        pytest.importorskip("_otf2")
    whole = read_trace(SAMPLES / sample)
    read = refused = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        copy = Path(shutil.copytree(SAMPLES / sample, tmp_path / str(seed)))
        paths = sorted(copy.glob(files))
        path = paths[rng.integers(len(paths))]
        path.write_bytes(damaged(path.read_bytes(), rng))
        try:
            result = signature(logical_trace(read_trace(copy)))
            assert np.isfinite(result.total_s)
            read += 1
        except RunError:
            refused += 1
        shutil.rmtree(copy)
    assert read >= 12  # most damage leaves something to read
    again = read_trace(SAMPLES / sample)
    for name, column in whole.columns.items():
        assert np.array_equal(again[name], column)
