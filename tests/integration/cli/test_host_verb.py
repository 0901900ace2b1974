"""``voxcast measure --host``: a machine is unknown, is measured by real runs, and is known."""

import json
import shutil
import sys
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


def run(project: Path, *arguments: str, code: int = 0) -> str:
    answer = voxcast(*arguments, project=project, code=code)
    return answer.out if code == 0 else answer.err


def test_a_damaged_file_is_refused_and_can_be_removed(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns("mlruns", "campaigns"))
    (folder / MACHINES).parent.mkdir(exist_ok=True)
    (folder / MACHINES).write_text("{")
    message = run(folder, "measure", "--host", "--time-budget", "0s", code=EXIT_BAD_INPUT)
    assert len(message.strip().splitlines()) == 1
    assert "remove it" in message


def test_node_types_of_a_cluster_have_speeds_of_their_own(project: Path) -> None:
    write_head(project / "head.nii.gz", spacing_mm=2.5, edge=80)
    asked = ("recommend", "head.nii.gz", "--cluster", "osc", "--json")
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


def test_predict_and_recommend_ask_how_fast_this_machine_is_now(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, here = tmp_path / "project", host_facts().host_id
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns("ml*", "campaigns", "models"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(folder)
    register_machines_champion(folder, here, timed=True)
    write_head(folder / "head.nii.gz", spacing_mm=2.5, edge=80)
    for verb in ("predict", "recommend"):
        assert "as it is just now" in " ".join(run(folder, verb, "head.nii.gz").split())
    (now,) = json.loads(run(folder, "predict", "head.nii.gz", "--json"))[0]["predictions"]
    assert now["speed_basis"] == "reading"
    # Another machine is not asked, not even by name of this one.
    asked = ("predict", "head.nii.gz", "--json", "--machine", here)
    (then,) = json.loads(run(folder, *asked))[0]["predictions"]
    assert then["speed_basis"] == "machine"
    assert then == json.loads(run(folder, *asked))[0]["predictions"][0]
