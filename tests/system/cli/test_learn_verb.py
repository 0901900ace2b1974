"""``voxcast learn`` refused, declined and interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training_project import write_volume
from voxcast.cli import main
from voxcast.config.project_files import create_project
from voxcast.errors import RunError
from voxcast.graph import learning_lock, reproduce

GRAPH = """
stages:
  long:
    cmd: {python} -c "import os, pathlib, time; {code}"
    outs: [done]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    create_project(tmp_path / "project")
    for number in range(2):
        write_volume(tmp_path / f"heads/head{number}.nii.gz", number)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--time-budget", "2h"], "--app: is needed"),
        (["../heads"], "--app: is needed"),
        (["../heads", "--app", "unheard"], "unheard: unknown application; choose from"),
        ([".", "--app", "ants_segment"], "name a BIDS dataset or a folder of .nii"),
        (["../nowhere", "--app", "ants_segment"], "no such file or folder"),
        (["../heads", "--app", "ants_segment", "--participant-label", "sub-9"], "participant 9"),
        (["--app", "ants_segment", "--participant-label", "1"], "needs the dataset"),
        (["../heads", "--app", "ants_segment", "--time-budget", "0s"], "must be above zero"),
        (
            ["../heads", "--app", "ants_segment", "--cpus", "0"],
            "must be whole numbers of at least 1",
        ),
        (["../heads", "--app", "dnn_train"], "takes no image"),
        (["../heads", "--app", "fastsurfer"], "`voxcast app new NAME --template fastsurfer`"),
        (["../heads", "--app", "ants_segment", "-S", "tune.unheard=1"], "unheard"),
    ],
)
def test_a_wrong_request_is_one_line_and_changes_nothing(project, capsys, arguments, message):
    before = (project / "params.yaml").read_bytes()
    assert main(["learn", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0
    assert error.startswith("voxcast: ")
    assert message in error
    assert (project / "params.yaml").read_bytes() == before
    assert not (project / "dvc.lock").exists()


def test_images_in_the_folder_that_learn_replaces_are_refused_and_stay(project, capsys):
    images = project / "data" / "images"
    images.mkdir(parents=True)
    shutil.copy(project.parent / "heads" / "head0.nii.gz", images)
    (project / "scans").symlink_to(images)
    for path in ("data/images", "data/images/head0.nii.gz", "scans"):
        assert main(["learn", path, "--app", "ants_segment"]) == 2
        error = capsys.readouterr().err
        assert "is in data/images of the project, which is replaced" in error
    assert [path.name for path in images.iterdir()] == ["head0.nii.gz"]


def test_a_dry_run_says_what_would_be_measured(project, capsys):
    arguments = [
        "../heads",
        "--app",
        "ants_segment",
        "--cpus",
        "1",
        "--time-budget",
        "30min",
        "--dry-run",
    ]
    assert main(["learn", *arguments]) == 0
    announced = capsys.readouterr().err
    assert "2 of 2 usable, 2 subjects" in announced
    # They are alike, so both are of the smaller half: each is run twice.
    assert "4 to measure: ants_segment on cpu, 1 CPU" in announced
    assert not (project / "data/catalogue").exists()
    assert not (project / "dvc.lock").exists()


@pytest.mark.parametrize("only_announced", [True, False])
def test_a_program_that_is_missing_is_said_before_anything_is_measured(
    project, capsys, only_announced
):
    before = configuration(project)
    described = (
        "defaults: [_base@gone, _self_]\ngone:\n  argv: [no-such-tool, '{image}', '{out}']\n"
    )
    (project / "conf/app/gone.yaml").write_text(described + "  version: '1'\n")
    ending = ["--dry-run"] if only_announced else []
    assert main(["learn", "../heads", "--app", "gone", "--cpus", "1", *ending]) == 2
    assert "no-such-tool: is not on PATH; install it" in capsys.readouterr().err
    assert configuration(project) == before


def write_graph(folder: Path, code: str) -> None:
    (folder / "dvc.yaml").write_text(GRAPH.format(python=sys.executable, code=code))


def test_a_failed_stage_is_said_with_the_next_step(project):
    write_graph(project, "raise SystemExit(3)")
    with pytest.raises(RunError, match="a stage failed, for the reason above; mend it"):
        reproduce("long", then="mend it")


def test_what_dvc_prints_is_shown_without_its_advice(project, capsys):
    write_graph(project, "pathlib.Path('done').touch(); print('from the stage')")
    reproduce("long", then="")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Running stage 'long'" in printed.err
    assert "from the stage" in printed.err
    assert "dvc push" not in printed.err


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interruption_ends_the_stages(project, signal_number):
    write_graph(project, "pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)")
    code = (
        "import signal; from voxcast.graph import reproduce\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, signal.default_int_handler)\n"
        "reproduce('long', then='')"
    )
    begun = subprocess.Popen(
        [sys.executable, "-c", code], cwd=project, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "DVC_NO_ANALYTICS": "true"},
    )  # fmt: skip
    pid_file = project / "pid"
    while not (pid_file.is_file() and pid_file.read_text()) and begun.poll() is None:
        time.sleep(0.1)
    begun.send_signal(signal_number)
    _, error = begun.communicate(timeout=120)
    stage = Path("/proc", pid_file.read_text())
    if signal_number == signal.SIGKILL:  # its children notice that it is gone
        end = time.monotonic() + 60
        while stage.exists() and time.monotonic() < end:
            time.sleep(0.1)
    else:
        assert error.rstrip().endswith("KeyboardInterrupt")
        assert "ERROR" not in error  # an interruption is none, though DVC reports one
    assert not stage.exists()


HOLDER = """
import pathlib, sys, time
from voxcast.graph import learning_lock
with learning_lock(pathlib.Path()):
    print("held", flush=True)
    time.sleep(600)
"""


def configuration(project):
    return [(project / name).read_bytes() for name in ("params.yaml", "data/sources.tsv")]


def test_a_second_learn_changes_nothing_and_names_the_first(project, capsys):
    before = configuration(project)
    begun = subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=project, stdout=subprocess.PIPE, text=True
    )
    assert begun.stdout.readline() == "held\n"
    arguments = ["learn", "../heads", "--app", "ants_segment"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert f"another `voxcast learn` (process {begun.pid}) works here" in error
    assert configuration(project) == before
    begun.kill()
    begun.wait()
    with learning_lock(project):  # the kernel has released that of the killed process
        pass
    begun.stdout.close()


def test_learn_beside_dvc_changes_nothing_and_names_it(project, capfd):
    before = configuration(project)
    write_graph(project, "pathlib.Path('pid').write_text('1'); time.sleep(600)")
    command = [sys.executable, "-m", "dvc", "repro", "long"]
    begun = subprocess.Popen(command, cwd=project, process_group=0)
    while not (project / "pid").is_file() and begun.poll() is None:
        time.sleep(0.1)
    try:
        assert main(["learn", "../heads", "--app", "ants_segment"]) == 2
        assert f"DVC (process {begun.pid}) works here" in capfd.readouterr().err
        assert configuration(project) == before
        with pytest.raises(RunError, match=rf"another `dvc` \(process {begun.pid}\) works"):
            reproduce("long", then="mend it")
        assert "rwlock" not in capfd.readouterr().err  # the advice to delete the lock
    finally:
        os.killpg(begun.pid, signal.SIGKILL)
        begun.wait()
