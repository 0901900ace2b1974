"""``voxcast measure --host``: a machine is unknown, is measured by real runs, and is known."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from champions import register_machines_champion
from commands import voxcast
from small_head import write_head
from voxcast.config.project_files import create_project
from voxcast.errors import EXIT_BAD_INPUT
from voxcast.measure.host import host_facts
from voxcast.serving.machines import MACHINES

# Half of the CPU time of the planted law, at any volume: this machine is twice as fast.
TOOL = """
import sys, time
import nibabel
import numpy as np
voxels = np.asanyarray(nibabel.load(sys.argv[1]).dataobj)
end = (1 + 4e-6 * np.count_nonzero(voxels > voxels.mean())) / 2
while time.process_time() < end:
    pass
"""
APP = """defaults: [_base@segment, _self_]
segment:
  version: '1'
  argv: [{python}, {tool}, '{{image}}']
  parameters: {{iterations: 30}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machines") / "project"
    create_project(folder)
    tool = folder / "tool.py"
    tool.write_text(TOOL)
    (folder / "conf/app/segment.yaml").write_text(APP.format(python=sys.executable, tool=tool))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.chdir(folder)
        register_machines_champion(folder)
    return folder


def start(project: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        k: v for k, v in os.environ.items() if k not in ("VOXCAST_PROJECT", "MLFLOW_TRACKING_URI")
    }
    return subprocess.Popen(
        [sys.executable, "-m", "voxcast.cli", *arguments], cwd=project, env=environment,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as at a terminal
    )  # fmt: skip


def run(project: Path, *arguments: str, code: int = 0) -> str:
    answer = voxcast(*arguments, project=project, code=code)
    return answer.out if code == 0 else answer.err


def test_a_machine_is_unknown_until_it_is_measured(project: Path) -> None:
    (before,) = json.loads(run(project, "measure", "--host", "--time-budget", "0s", "--json"))[
        "apps"
    ]
    assert before["runs"] == 0
    assert not before["calibrated"]
    assert before["upper"] / before["lower"] > 2
    assert "voxcast measure --host" in run(project, "measure", "--host", "--time-budget", "0s")
    # Interrupted after the first run, it goes on where it was.
    runs = project / "data/campaigns/host/runs"
    process = start(project, "measure", "--host")
    deadline = time.monotonic() + 200
    while not list(runs.glob("[0-9a-f]*/run.json")) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    time.sleep(0.4)  # into the next run, past its start
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr
    made = len(list(runs.glob("[0-9a-f]*/run.json")))
    assert 1 <= made < 4
    content = json.loads(run(project, "measure", "--host", "--json"))
    assert content["measured"] == 4 - made
    assert content["host"] == host_facts().host_id
    (after,) = content["apps"]
    assert after["runs"] == 4
    # On a machine that others load at the same time, four runs may not suffice for a bound.
    assert after["upper"] / after["lower"] < before["upper"] / before["lower"]
    # The tool counts voxels above the mean, the law those of the foreground: about two.
    assert 1.2 < after["speed"] < 4
    assert after["upper"] / after["lower"] < before["upper"] / before["lower"] / 1.5
    image = sorted((project / "data/campaigns/host/images").rglob("*.nii.gz"))[0]
    answers = json.loads(run(project, "predict", str(image), "--cpus", "1", "--json"))
    (answer,) = answers[0]["predictions"]
    assert answer["calibrated"] == after["calibrated"]
    assert answer["host_runs"] == 4
    text = run(project, "predict", str(image), "--cpus", "1")
    assert f"for machine {host_facts().host_id}: speed" in text
    # On another machine nothing of this is known.
    other = run(project, "predict", str(image), "--cpus", "1", "--machine", "elsewhere")
    assert "not calibrated: the speed of elsewhere is" in other


def test_a_damaged_file_is_refused_and_can_be_removed(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns("mlruns", "campaigns"))
    (folder / MACHINES).parent.mkdir(exist_ok=True)
    (folder / MACHINES).write_text("{")
    message = run(folder, "measure", "--host", "--time-budget", "0s", code=EXIT_BAD_INPUT)
    assert len(message.strip().splitlines()) == 1
    assert "remove it" in message


@pytest.mark.parametrize("budget", ["-1s", "nan"])
def test_a_time_must_be_a_duration(project: Path, budget: str) -> None:
    words = ("measure", "--host", f"--time-budget={budget}")
    assert "--time-budget" in run(project, *words, code=EXIT_BAD_INPUT)


def test_node_types_of_a_cluster_have_speeds_of_their_own(project: Path) -> None:
    write_head(project / "head.nii.gz", spacing_mm=2.5, edge=80)
    asked = ("recommend", "head.nii.gz", "--cluster", "osc", "--header-only", "--json")
    content = json.loads(run(project, *asked))
    rows = content["images"][0]["configurations"]
    assert not any(row["calibrated"] for row in rows)
    assert "pitzer 1.2" in content["machine"]  # nothing is on record: the average
    assert "0 runs)" in content["machine"]
    measured = run(project, *asked, "-S", "cluster.node_types.pitzer.host_class=fast")
    content = json.loads(measured)
    assert "12 runs)" in content["machine"]
    rows = {row["node_type"]: row for row in content["images"][0]["configurations"]}
    # One machine of a class tells little of the others: three are needed.
    assert not rows["pitzer"]["calibrated"]
