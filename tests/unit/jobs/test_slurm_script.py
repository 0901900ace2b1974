"""Lines and scripts for Slurm: against recorded text, run by bash, and taken by sbatch."""

import dataclasses
import subprocess
from pathlib import Path

import pytest

from voxcast.errors import ConfigError
from voxcast.jobs.script import MAX_TASKS, Job, command_script
from voxcast.records import Request

RECORDED = Path(__file__).parents[2] / "samples" / "slurm" / "array.sbatch"
REQUEST = Job(
    "recon all", Request(3600.2, 1_500_000_000, 4, partition="serial"),
    ("recon_all on two heads", "times of a machine"),
)  # fmt: skip
ARRAY = dataclasses.replace(REQUEST, tasks=2)
STRANGE = ("/data/a head & more.nii.gz", "/data/it's $HOME `date`.nii.gz")


def test_the_script_is_as_recorded() -> None:
    assert command_script(ARRAY, STRANGE) == RECORDED.read_text()


def test_time_and_memory_are_rounded_up_in_units_of_slurm() -> None:
    assert REQUEST.options() == [
        "--job-name=recon_all", "--partition=serial", "--nodes=1", "--ntasks=1",
        "--cpus-per-task=4", "--time=01:00:01", "--mem=1431M",
    ]  # fmt: skip
    assert "--gres=gpu:2" in Job("a", Request(60.0, 2**30, 1, 2)).options()


@pytest.mark.parametrize("task", [1, 2])
def test_a_task_runs_the_command_on_its_image(tmp_path: Path, task: int) -> None:
    script = tmp_path / "array.sbatch"
    script.write_text(command_script(ARRAY, STRANGE))
    command = ["bash", script, "printf", "%s|", "--in={image}", "a b", "{image}{image}"]
    variables = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_CPUS_PER_TASK": "4", "PATH": "/bin"}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    image = STRANGE[task - 1]
    assert ended.stdout == f"--in={image}|a b|{image}{image}|"
    usage = subprocess.run(command[:2], env=variables, capture_output=True, text=True, check=False)
    assert usage.returncode == 2
    assert "usage: sbatch" in usage.stderr


def test_what_an_array_cannot_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than the 1000 tasks of an array"):
        command_script(ARRAY, ["/a.nii"] * (MAX_TASKS + 1))
    with pytest.raises(ConfigError, match="line break in its name"):
        command_script(ARRAY, ["/a\nb.nii"])
