"""Submissions while parts of Slurm fail, where the kernel enforces memory, and in containers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from followed import followed, outcomes, running
from planted_tasks import COPY, HOLD, MB, plan_of, shell_app, write_images
from private_slurm import PrivateSlurm, stopped_daemon
from voxcast.jobs.follow import Follower

pytestmark = pytest.mark.slurm
WAIT_FIRST = f'if [ ! -e "$1.tried" ]; then touch -- "$1.tried"; sleep 600; fi; {COPY}'
BRIEFLY = f"sleep 10; {COPY}"


def test_a_lost_node_is_no_reason_to_ask_for_more(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["head.nii"])
    lost = []

    def kill(follower: Follower) -> None:
        if running(follower, "head") and not lost:
            lost.append(follower.current["head"].facts["node"])
            slurm.kill_node(lost[0])
            # The controller notices by itself after SlurmdTimeout; here an operator tells it.
            slurm.command(
                "scontrol", "update", f"NodeName={lost[0]}", "State=DOWN", "Reason=crashed"
            )

    follower = followed(follower_of(plan_of(shell_app(WAIT_FIRST), images)), kill)
    slurm.start_daemon(lost[0])
    assert outcomes(follower, "head") == ["node_failure", "completed"]
    first, second = follower.state.ended["head"]
    assert first.attempt.request == second.attempt.request
    assert first.facts["node"] != second.facts["node"]


def test_the_controller_may_be_restarted_while_jobs_run(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["a.nii", "b.nii"])
    follower = followed(
        follower_of(plan_of(shell_app(BRIEFLY), images)), until=lambda f: bool(running(f, "a"))
    )
    with stopped_daemon(slurm, "slurmctld"):
        follower.step()
    slurm.wait(lambda: "UP" in slurm.command("scontrol", "ping", check=False).stdout, "slurmctld")
    followed(follower)
    assert [outcomes(follower, name) for name in ("a", "b")] == [["completed"]] * 2


def test_nothing_is_lost_when_the_controller_is_away_at_submission(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = write_images(tmp_path / "in", ["a.nii"])
    follower = follower_of(plan_of(shell_app(COPY), images))
    with stopped_daemon(slurm, "slurmctld"):
        assert follower.step()
        assert follower.step()
        assert caplog.text.count("trying again") == 1
    slurm.wait(lambda: "UP" in slurm.command("scontrol", "ping", check=False).stdout, "slurmctld")
    followed(follower)
    assert outcomes(follower, "a") == ["completed"]


def test_without_accounting_scontrol_is_asked_and_that_is_said(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = write_images(tmp_path / "in", ["a.nii", "b.nii"])
    with stopped_daemon(slurm, "slurmdbd"):
        follower = followed(follower_of(plan_of(shell_app(COPY), images)))
        assert [outcomes(follower, name) for name in ("a", "b")] == [["completed"]] * 2
    assert caplog.text.count("asking scontrol") == 1


def test_too_little_memory_is_followed_by_more_where_the_kernel_enforces_it(
    cgroup_slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["large.nii"], "250")
    follower = followed(follower_of(plan_of(shell_app(HOLD), images)))
    assert outcomes(follower, "large") == ["out_of_memory", "completed"]
    first, second = follower.state.ended["large"]
    assert first.facts["state"] == "OUT_OF_MEMORY"
    assert second.attempt.request.memory_bytes == 400 * MB


def test_the_state_decides_and_not_the_exit_code(
    cgroup_slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["large.nii"], "250")
    # The program that held too much was killed, and its script ends as if nothing had happened.
    held = HOLD.removeprefix("exec ")
    app = shell_app(f'{held} || true; echo done > "$2/done"')
    follower = followed(follower_of(plan_of(app, images)))
    assert outcomes(follower, "large") == ["out_of_memory", "completed"]
    assert (tmp_path / "out" / "large" / "done").is_file()


@pytest.fixture(scope="module")
def container_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that ch-run takes for an image: one static program and the paths of the binds."""
    if shutil.which("ch-run") is None:
        pytest.skip("charliecloud is not installed: apt-get install charliecloud")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, for a program without libraries")
    folder = tmp_path_factory.mktemp("image")
    for name in (
        "bin",
        "in",
        "out",
        "dev",
        "etc",
        "proc",
        "sys",
        "tmp",
        "root",
        "home",
        "usr/bin",
    ):
        (folder / name).mkdir(parents=True)
    for name in ("etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf"):
        (folder / name).touch()
    source = folder / "copy.c"
    source.write_text(
        "#include <stdio.h>\n"
        'int main(int n, char **a) { int c; FILE *i = fopen(a[1], "r"), *o = fopen(a[2], "w");\n'
        "if (!i || !o) return 9; while ((c = getc(i)) != EOF) putc(c, o); return fclose(o); }\n"
    )
    program = str(folder / "bin" / "copy")
    subprocess.run([compiler, "-static", "-o", program, str(source)], check=True)
    return folder


def test_a_container_gets_one_image_and_leaves_its_results(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, container_image: Path
) -> None:
    app = shell_app("", "boxed")
    app = type(app)(
        "boxed", "1", argv=("/bin/copy", "{image}", "{out}/copy"),
        container={"cpu": str(container_image)}, binds={"/in": "{inputs}", "/out": "{out}"},
    )  # fmt: skip
    images = write_images(tmp_path / "in", ["my head.nii"])
    follower = followed(follower_of(plan_of(app, images, container_engine="charliecloud")))
    assert outcomes(follower, "my_head") == ["completed"], follower.submission.log_tail(1, 1)
    assert (tmp_path / "out" / "my_head" / "copy").read_text() == "voxels"
