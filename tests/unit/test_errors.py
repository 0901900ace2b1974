"""What a user or a disk did ends in one line and exit code 2; a bug keeps its traceback."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from small_disk import mounted
from voxcast.errors import ImageError, exits_cleanly

PROJECT = Path(__file__).parents[2]


def raising(error: BaseException) -> int:
    @exits_cleanly
    def main() -> int:
        raise error

    return main()


def test_a_user_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(ImageError("is\nempty", "a.nii", "choose another")) == 2
    assert capsys.readouterr().err == "voxcast: a.nii: is empty; choose another\n"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.parquet"),
        RuntimeError("(sqlite3.OperationalError) database or disk is full"),
        OSError("[Errno 28] Error writing bytes. Detail: No space left on device"),
    ],
)
def test_a_full_disk_is_reported_for_every_error_type(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == 2
    assert "no space left on the device; free some" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "out/x"), "out/x: permission denied"),
        (PermissionError(errno.EACCES, "Denied", "out/.partial-1.csv"), "out: denied"),
        (OSError(errno.EROFS, "Read-only file system", "x"), "x: read-only file system"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", ".p", None, "t"), "t: is a directory"),
    ],
)
def test_a_path_that_cannot_be_used_is_named(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == 2
    assert capsys.readouterr().err == f"voxcast: {line}\n"


@pytest.mark.parametrize("module", ["hydra", "omegaconf"])
def test_a_missing_module_is_reported_with_the_extra_of_its_verbs(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(ModuleNotFoundError(name=module)) == 2
    needs = f"voxcast: needs {module}: pip install 'voxcast[serve]'\n"
    assert capsys.readouterr().err == needs


def test_an_unexpected_error_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError())
    with pytest.raises(OSError, match="not that"):
        raising(OSError(errno.EIO, "not that"))


def test_a_stage_on_a_full_disk_leaves_no_partial_output(tmp_path: Path) -> None:
    with mounted(tmp_path / "project", "200k") as disk:
        params = yaml.safe_load((PROJECT / "params.yaml").read_text())
        params["images"] |= {"subjects": 2, "voxels": [300000, 400000, 500000]}
        (disk / "params.yaml").write_text(yaml.safe_dump(params))
        completed = subprocess.run(
            [sys.executable, str(PROJECT / "pipelines/images.py")],
            cwd=disk, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert completed.returncode == 2
        assert "no space left" in completed.stderr.splitlines()[-1]
        assert "Traceback" not in completed.stderr
        assert not list(disk.rglob(".partial-*"))
        assert not (disk / "data/images/images.tsv").exists()


def test_an_interruption_of_a_main_function_is_an_exception_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @exits_cleanly
    def main() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return 0

    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # as `voxcast.interruptions` leaves it
    try:
        assert main() == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "interrupted; finished work is kept" in capsys.readouterr().err
