"""What is written for Slurm, compared with recorded files and run; and what Slurm says of jobs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from planted_tasks import COPY, plan_of, shell_app, write_images
from voxcast.errors import ConfigError
from voxcast.jobs.script import Job, array_script, follow_up_script, staging_lines, task_list
from voxcast.jobs.slurm import from_sacct, from_scontrol
from voxcast.jobs.submission import ArrayFiles, SlurmOptions, Submission, sbatch_option
from voxcast.jobs.task import task_names
from voxcast.records import App, Request

RECORDED = Path(__file__).parents[2] / "samples" / "slurm"
REQUEST = Request(5400.0, 4 * 10**9, 2, 1, "debug", "gpu")
FILES = ArrayFiles(
    Path("/data/my out/arrays/0001.tasks"), Path("/data/my out/work/0001"), "/data/my out/%a.log"
)
BOXED = App(
    "boxed", "1", argv=("tool", "{image}", "--cpus", "{threads}"), devices=("gpu",),
    container={"gpu": "/images/tool.sif"},
    binds={"/in": "{inputs}", "/out": "{out}", "/bids": "{bids}", "/tmp": "{scratch}"},  # noqa: S108
)  # fmt: skip


def recorded(name: str, text: str) -> None:
    """Compare a text with a recorded file; VOXCAST_RECORD writes it instead."""
    if os.environ.get("VOXCAST_RECORD"):
        (RECORDED / name).write_text(text)
    assert text == (RECORDED / name).read_text()


@pytest.mark.parametrize(
    ("name", "app", "engine"),
    [("plain", shell_app(COPY), "none"), ("container", BOXED, "apptainer")],
)
def test_scripts_are_as_recorded(
    name: str, app: App, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    images = [Path("/data/sub-01_T1w.nii.gz"), Path("/data/it's $(here).nii")]
    plan = plan_of(
        app, images, gpus=1, container_engine=engine,
        slurm=SlurmOptions(("account=lab", "qos=long"), throttle=8),
    )  # fmt: skip
    recorded(f"{name}.sbatch", array_script(plan, plan.tasks, REQUEST, "planted-0001", FILES))
    recorded(f"{name}.tasks", task_list(plan, plan.tasks, REQUEST, FILES))


def test_a_partition_may_take_memory_of_each_cpu_and_users_may_add_options() -> None:
    options = SlurmOptions(
        further=(sbatch_option("reservation=mri"), sbatch_option("--exclusive")),
        memory_per_cpu=("debug",),
    )
    plan = plan_of(shell_app(COPY), [Path("/a.nii")], slurm=options)
    for partition, memory in (("debug", "--mem-per-cpu=477M"), ("other", "--mem=954M")):
        request = Request(60.0, 10**9, 2, partition=partition)
        script = array_script(plan, plan.tasks, request, "planted-0001", FILES)
        assert f"#SBATCH {memory}\n" in script
        assert "#SBATCH --reservation=mri\n#SBATCH --exclusive\n" in script


@pytest.mark.parametrize(
    ("text", "problem"),
    [("mem=4G", "voxcast decides mem"), ("--array=1-2", "voxcast decides array"),
     ("Res ervation", "not KEY=VALUE: 'Res ervation'"), ("a=b\nc", "not KEY=VALUE")],
)  # fmt: skip
def test_options_that_voxcast_decides_and_malformed_ones_are_refused(
    text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        sbatch_option(text)


@pytest.mark.parametrize(
    "name",
    ["a b.nii.gz", "new\nline.nii", "$(touch pwned).nii", "`id`'\".nii", "-n\\.nii", "*.nii"],
)
def test_a_script_stages_an_image_of_any_name_as_the_local_executor_does(
    name: str, tmp_path: Path
) -> None:
    image = tmp_path / "in" / name
    image.parent.mkdir()
    image.write_text("voxels")
    staged = "\n".join(
        ["set -eu", f"image=$1; folder={tmp_path}/run", *staging_lines(BOXED, "none")]
    )
    subprocess.run(["bash", "-c", staged, "bash", str(image)], check=True, cwd=tmp_path)
    assert [path.name for path in (tmp_path / "run" / "inputs").iterdir()] == [name]
    (in_bids,) = (tmp_path / "run" / "bids" / "sub-01" / "anat").iterdir()
    assert in_bids.name == ("sub-01_T1w.nii.gz" if name.endswith(".gz") else "sub-01_T1w.nii")
    assert in_bids.read_text() == "voxels"
    assert (tmp_path / "run" / "scratch").is_dir()
    assert not (tmp_path / "pwned").exists()


def test_a_list_of_tasks_is_read_back_by_a_shell_as_it_was(tmp_path: Path) -> None:
    images = [tmp_path / name for name in ("a b.nii", "new\nline.nii", "$(touch pwned)'.nii")]
    plan = plan_of(shell_app('printf "%s\\0" "$@"'), images)
    listed = tmp_path / "list.tasks"
    listed.write_text(task_list(plan, plan.tasks, Request(60.0, 10**8, 3), FILES))
    for number, image in enumerate(images, 1):
        script = f'. "$1"; task_{number}; printf "%s\\0" "$image"; "${{command[@]}}"'
        words = subprocess.run(
            ["bash", "-c", script, "bash", str(listed)],
            check=True, cwd=tmp_path, capture_output=True, text=True,
        ).stdout.split("\0")[:-1]  # fmt: skip
        out = f"{FILES.attempt_folder(number)}/out"
        assert words == [str(image), str(image), out, "3"]
    assert not (tmp_path / "pwned").exists()


def test_names_of_outputs_are_safe_and_different() -> None:
    names = task_names(
        ["/a/x.nii", "/b/x.nii.gz", "/a/..nii", "/a/\u202e$.nii", "/c/" + "y" * 300]
    )
    assert len(set(names)) == 5
    assert names[0].startswith("x-")
    for name in names:
        assert name.isascii()
        assert len(name) <= 140
        assert not set(name) & set("/ $'\"\n")
        assert not name.startswith((".", "-"))


GOLDENS = Path(__file__).parents[2] / "goldens" / "sbatch"


def test_the_job_that_follows_a_submission(tmp_path: Path) -> None:
    options = SlurmOptions(("account=lab", "qos=long"), throttle=8)
    plan = plan_of(shell_app(COPY), write_images(tmp_path / "in", ["sub-01.nii"]), slurm=options)
    submission = Submission.create(plan, tmp_path / "my out", "slurm")
    text = follow_up_script(submission, "debug", ["101", "202_3"])
    for found, put in (
        (str(submission.folder), "/data/my out/SUBMISSION"),
        (sys.executable, "PYTHON"),
        (submission.label, "LABEL"),
    ):
        text = text.replace(found, put)
    assert text == (GOLDENS / "follow.sbatch").read_text()


PLAIN = Job(
    "recon all", Request(3600.2, 1_500_000_000, 4, partition="serial"),
    ("recon_all on two heads", "times of a machine"),
)  # fmt: skip


def test_time_and_memory_are_rounded_up_in_units_of_slurm() -> None:
    assert PLAIN.options() == [
        "--job-name=recon_all", "--partition=serial", "--nodes=1", "--ntasks=1",
        "--cpus-per-task=4", "--time=01:00:01", "--mem=1431M",
    ]  # fmt: skip
    assert "--gres=gpu:2" in Job("a", Request(60.0, 2**30, 1, 2)).options()


LINE = (
    "{id}|{raw}|{state}|{exit}|61|00:01.500|{rss}|200M|n1|2026-11-23T04:04:09|"
    "2026-11-23T04:04:10|Unknown"
)


def lines(*rows: tuple[str, str, str, str]) -> str:
    return "\n".join(
        LINE.format(id=job, raw="7", state=state, exit=exit_code, rss=rss)
        for job, state, exit_code, rss in rows
    )


CASES = {
    "completed": ([("7_1", "COMPLETED", "0:0", ""), ("7_1.batch", "COMPLETED", "0:0", "120M")],
                  "completed"),
    "too long": ([("7_1", "TIMEOUT", "0:0", ""), ("7_1.batch", "CANCELLED", "0:15", "9M")],
                 "timeout"),
    "killed by the kernel": ([("7_1", "OUT_OF_MEMORY", "0:125", ""),
                              ("7_1.batch", "OUT_OF_MEMORY", "0:125", "1200K")], "out_of_memory"),
    "killed by Slurm": ([("7_1", "FAILED", "0:9", ""),
                         ("7_1.batch", "CANCELLED by 0", "0:9", "310M")],
                        "out_of_memory"),
    "ends well after a part was killed": (
        [("7_1", "COMPLETED", "0:0", ""), ("7_1.batch", "OUT_OF_MEMORY", "0:0", "")],
        "out_of_memory"),
    "a step killed by Slurm": ([("7_1", "FAILED", "9:0", ""), ("7_1.batch", "FAILED", "9:0", "9M"),
                                ("7_1.0", "CANCELLED by 0", "0:9", "310M")], "out_of_memory"),
    "goes on after Slurm killed a step": (
        [("7_1", "COMPLETED", "0:0", ""), ("7_1.batch", "COMPLETED", "0:0", "9M"),
         ("7_1.0", "CANCELLED by 0", "0:9", "310M")], "out_of_memory"),
    "a step cancelled by its user": (
        [("7_1", "FAILED", "9:0", ""), ("7_1.batch", "FAILED", "9:0", "9M"),
         ("7_1.0", "CANCELLED by 1000", "0:9", "9M")], "failed"),
    "a step that ended with the script": (
        [("7_1", "COMPLETED", "0:0", ""), ("7_1.batch", "COMPLETED", "0:0", "9M"),
         ("7_1.0", "CANCELLED", "0:15", "9M")], "completed"),
    "killed by somebody": ([("7_1", "FAILED", "0:9", ""), ("7_1.batch", "FAILED", "0:9", "9M")],
                           "failed"),
    "its error": ([("7_1", "FAILED", "3:0", ""), ("7_1.batch", "FAILED", "3:0", "9M")], "failed"),
    "by its user": ([("7_1", "CANCELLED by 1000", "0:0", "")], "cancelled"),
    "preempted": ([("7_1", "PREEMPTED", "0:0", "")], "preempted"),
    "the node": ([("7_1", "NODE_FAIL", "0:0", "")], "node_failure"),
    "cut off": ([("7_1", "OUT_OF_ME+", "0:125", "")], "out_of_memory"),
    "running": ([("7_1", "RUNNING", "0:0", "")], None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_state_tells_the_outcome(name: str) -> None:
    rows, outcome = CASES[name]
    ((key, state),) = from_sacct(lines(*rows)).items()
    assert key == ("7", 1)
    assert state.outcome == outcome
    assert (state.runtime_s, state.facts["cpu_s"], state.facts["node"]) == (61.0, 1.5, "n1")


def test_the_note_of_slurm_in_the_log_tells_that_memory_was_too_little() -> None:
    text = lines(("7_1", "FAILED", "1:0", ""), ("7_1.batch", "FAILED", "1:0", "9M"))
    noted = from_sacct(text, lambda _: ["slurmstepd: error: Job 7 exceeded memory limit"])
    assert noted["7", 1].outcome == "out_of_memory"
    assert from_sacct(text)["7", 1].outcome == "failed"


def test_waiting_tasks_in_one_line_are_all_there() -> None:
    states = from_sacct(lines(("7_[2,4-6%2]", "CANCELLED by 0", "0:0", ""),
                              ("7_1", "RUNNING", "0:0", "")))  # fmt: skip
    assert {number for _, number in states} == {1, 2, 4, 5, 6}
    assert {states["7", n].outcome for n in (2, 4, 5, 6)} == {"cancelled"}
    assert states["7", 1].is_running


def test_scontrol_says_the_same_without_times_of_the_processor() -> None:
    text = (
        "JobId=9 ArrayJobId=7 ArrayTaskId=2 JobName=x JobState=FAILED Reason=NonZeroExitCode "
        "ExitCode=0:9 RunTime=00:01:01 SubmitTime=2026-11-23T04:04:09 StartTime=Unknown "
        "NodeList=n1\n"
        "JobId=7 ArrayJobId=7 ArrayTaskId=3-5%2 JobName=x JobState=PENDING ExitCode=0:0 "
        "RunTime=00:00:00 NodeList=\n"
    )
    states = from_scontrol(text)
    assert states["7", 2].outcome == "out_of_memory"
    assert (states["7", 2].runtime_s, states["7", 2].facts["cpu_s"], states["7", 2].job) == (
        61.0,
        None,
        "9",
    )
    assert [states["7", n].state for n in (3, 4, 5)] == ["PENDING"] * 3


def test_unreadable_lines_are_left_out() -> None:
    assert from_sacct("garbage\n|||\n8|8|RUNNING\n8_1|8|RUN") == {}
    whole = lines(("8_1", "RUNNING", "0:0", ""))
    assert set(from_sacct(f"{whole}\n{whole[:20].replace('8_1', '8_2')}")) == {("8", 1)}
    assert from_scontrol("JobId=9 ArrayJobId=7 ArrayTaskId=2 JobName=x\n") == {}
    assert from_scontrol("slurm_load_jobs error\n") == {}
