"""``voxcast phases record``: where the recorder goes in a command, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from commands import called
from voxcast.cli.phases import recorded
from voxcast.errors import ConfigError, RunError
from voxcast.phases import recorder as mpi_recorder

PROGRAM = Path(__file__).parents[2] / "samples" / "mpi_program.py"
FOLDER = Path("/traces/run")
RECORDER = f"{mpi_recorder.__file__} --out {FOLDER}"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("mpirun -np 4 python p.py 5", "mpirun -np 4 python RECORDER p.py 5"),
        ("python3.11 -u -W error -X dev p.py", "python3.11 -u -W error -X dev RECORDER p.py"),
        ("srun /opt/bin/python -m pack.mod --x", "srun /opt/bin/python RECORDER -m pack.mod --x"),
        # An argument of the program is none of ours, even if it reads like an interpreter.
        ("mpirun python p.py python q.py", "mpirun python RECORDER p.py python q.py"),
        (
            "mpirun -np 1 python a.py : -np 2 python b.py",
            "mpirun -np 1 python RECORDER a.py : -np 2 python RECORDER b.py",
        ),
    ],
)
def test_the_recorder_goes_before_each_program(command: str, expected: str) -> None:
    result = " ".join(recorded(command.split(), FOLDER))
    assert result == expected.replace("RECORDER", RECORDER)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("mpirun -np 4 ./solver", "starts no python"),
        ("mpirun python -c pass", "runs no file or module"),
        ("mpirun python", "runs no file or module"),
    ],
)
def test_a_command_that_cannot_be_recorded_is_refused(command: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        recorded(command.split(), FOLDER)


@pytest.mark.mpi
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
def test_a_program_is_recorded_and_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "trace")
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable]
    assert (
        called("phases", "record", "--out", folder, "--json", "--", *command, str(PROGRAM), "1")
        == 0
    )
    recorded_run = json.loads(capfd.readouterr().out)
    assert recorded_run["processes"] == 2
    assert recorded_run["missing"] == []
    with pytest.raises(RunError, match="name a new folder"):
        called("phases", "record", "--out", folder, "--", *command, str(PROGRAM), "1")


def test_a_command_without_dashes_before_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="-n: unknown option"):
        called("phases", "record", "--out", tmp_path, "mpirun", "-np", "2", "python", "p.py")


@pytest.mark.mpi
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
def test_a_program_that_does_not_communicate_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "serial.py"
    program.write_text("print(1)\n")
    assert (
        called(
            "phases",
            "record",
            "--out",
            str(tmp_path / "trace"),
            "--",
            sys.executable,
            str(program),
        )
        == 0
    )
    captured = capfd.readouterr()
    assert "no communication was recorded" in captured.err
    assert "1 process, 1 event (1 local)" in captured.out
