"""Chrome traces of the PyTorch profiler, of real gloo processes."""

from __future__ import annotations

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


@pytest.mark.parametrize("text", ["[]", "", "{}", '{"traceEvents": []}', "not JSON"])
def test_a_trace_of_another_tool_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(RunError, match=r"trace\.json: is not a Chrome trace"):
        read_trace(path)


def test_a_trace_without_communication_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(RunError, match="has no communication"):
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


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no trace"):
        read_trace(tmp_path)
    with pytest.raises(RunError, match="no such file or folder"):
        read_trace(tmp_path / "gone")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunError, match="is not a trace"):
        read_trace(tmp_path / "notes.txt")
