"""Lists of cells: read at once, or one cell at a time."""

import json
import os

import pytest

from small_pool import pool_cell
from voxcast.errors import RunError
from voxcast.files import sync_all
from voxcast.hpc.pool_cells import CellList, read_cells, write_cells


def listed(path, count=3):
    write_cells(path, [pool_cell(repeat=n) for n in range(count)])
    return path


def test_cells_are_read_one_at_a_time_as_all_at_once(tmp_path):
    path = listed(tmp_path / "0001.jsonl")
    cells = read_cells(path)
    assert len(cells) == 3
    assert dict(CellList(path)) == cells
    assert "another key" not in CellList(path)


def test_lists_of_the_former_release_are_read(tmp_path):
    path = listed(tmp_path / "0001.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines))
    assert not path.read_text().startswith('{"key"')
    assert dict(CellList(path)) == read_cells(path)


def test_a_list_that_was_cut_off_says_so(tmp_path):
    path = listed(tmp_path / "0001.jsonl")
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(RunError, match="a damaged list of cells"):
        CellList(path)
    path.write_bytes(content)
    cells = CellList(path)
    path.write_bytes(content.replace(b'"expected_s"', b'"expectexx_s"'))
    with pytest.raises(RunError, match="a damaged list of cells"):
        cells[next(iter(cells))]


def test_files_are_synced_also_in_a_forked_process(tmp_path):
    (tmp_path / "a").touch()
    sync_all([tmp_path / "a", tmp_path])
    child = os.fork()
    if child == 0:  # the threads of its parent are not there
        sync_all([tmp_path / "a", tmp_path])
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(FileNotFoundError):
        sync_all([tmp_path / "a", tmp_path / "b"])
