"""Files and folders that are whole or not there."""

import contextlib
import os
import threading
import time

import pytest

from voxcast.files import atomic_folder, locked, remove_folder, sync_all


def test_a_folder_is_written_atomically(tmp_path):
    with atomic_folder(tmp_path / "part") as partial:
        (partial / "a").write_text("1")
        assert not (tmp_path / "part").exists()
    assert (tmp_path / "part" / "a").read_text() == "1"
    with contextlib.suppress(ZeroDivisionError), atomic_folder(tmp_path / "other") as partial:
        (partial / "a").write_text(str(1 / 0))
    with pytest.raises(OSError, match="not empty"), atomic_folder(tmp_path / "part"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_a_second_lock_waits_for_the_first(tmp_path):
    order = []

    def second():
        with locked(tmp_path):
            order.append("second")

    with locked(tmp_path):
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.1)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_folders_that_were_closed_are_removed(tmp_path):
    inner = tmp_path / "run" / "closed"
    (inner / "deep").mkdir(parents=True)
    (inner / "file").write_text("")
    (inner / "link").symlink_to(tmp_path)
    inner.chmod(0o500)
    (inner / "deep").chmod(0o000)
    remove_folder(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


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
