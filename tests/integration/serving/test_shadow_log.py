"""The log of answers in shadow: bounded, written by several processes, without images."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from champions import HEADER_ROW
from voxcast.serving.bundle import Bundle
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.shadow_log import LOG, VARIABLE, ShadowLog, shadow_log

ROW = HEADER_ROW | {"app": "segment", "device": "cpu", "cpus": 2.0, "gpus": 0.0}
WRITER = """
import json, sys
from pathlib import Path
from voxcast.serving.shadow_log import ShadowLog
rows, request = json.loads(sys.argv[2]), json.loads(sys.argv[3])
log = ShadowLog(Path(sys.argv[1]), max_bytes=30_000)
for n in range(100):
    log.add(rows, rows, "1", sys.argv[4], [request])
"""


@pytest.fixture(scope="module")
def answers(bundle: Bundle) -> list[dict]:
    return PredictionService(bundle).predict([ROW], 0.95)


def test_an_answer_is_logged_with_its_question(answers: list[dict], tmp_path: Path) -> None:
    log = ShadowLog(tmp_path / "runs/shadow.jsonl")
    secret = {"path": "/home/lab/sub-17.nii.gz", "parameters_json": '{"iterations": 5}'}
    slower = [{**answers[0], "cpu_s_median": 2 * answers[0]["cpu_s_median"]}]
    log.add(answers, slower, "3", "4", [ROW | secret], 0.9)
    log.add(answers, answers, "3", "4")
    ((first, second), unreadable) = log.answers()
    assert unreadable == 0
    assert (first.versions, first.app, first.device) == (("3", "4"), "segment", "cpu")
    assert (first.cpus, first.gpus, first.quantile) == (2, 0, 0.9)
    a, b = first.quantiles["cpu_s"]
    assert b[1] == 2 * a[1] == 2 * answers[0]["cpu_s_median"]
    assert len(first.image) == len(first.parameters_sha256) == 64
    assert (second.image, second.parameters_sha256) == ("", "")
    text = log.path.read_text()
    assert "sub-17" not in text
    assert "iterations" not in text
    assert log.path.stat().st_mode & 0o077 == 0


def test_a_line_that_was_cut_short_is_left_out_and_the_next_is_whole(
    answers: list[dict], tmp_path: Path
) -> None:
    log = ShadowLog(tmp_path / "shadow.jsonl")
    log.add(answers, answers, "1", "2", [ROW])
    with log.path.open("a") as file:
        file.write('{"at": "2026')
    log.add(answers, answers, "1", "2", [ROW])
    with log.path.open("a") as file:
        file.write('[]\n{"versions": 3}\n' + "[" * 100_000 + "\n")
    logged, unreadable = log.answers()
    assert (len(logged), unreadable) == (2, 4)


def test_several_processes_write_whole_lines_into_a_bounded_log(
    answers: list[dict], tmp_path: Path
) -> None:
    path = tmp_path / "shadow.jsonl"
    texts = json.dumps(answers), json.dumps(ROW)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), *texts, version])
        for version in "23"
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    logged, unreadable = ShadowLog(path, max_bytes=30_000).answers()
    assert unreadable == 0
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert sizes.keys() == {"shadow.jsonl", *(f"shadow.jsonl.{n}" for n in (1, 2, 3))}
    assert max(sizes.values()) <= 30_000
    # Of 200 the oldest are gone; of more than 100 some are of each writer, whichever was faster.
    assert 100 < len(logged) < 200
    assert {answer.versions[1] for answer in logged} == {"2", "3"}


def test_a_log_that_cannot_be_written_is_warned_of_once(
    answers: list[dict], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "shadow.jsonl").symlink_to(tmp_path / "elsewhere")
    log = ShadowLog(tmp_path / "shadow.jsonl")
    for _ in range(3):
        log.add(answers, answers, "1", "2", [ROW])
    assert len(caplog.records) == 1
    assert (tmp_path / "elsewhere").read_text() == ""


def test_the_environment_names_another_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert shadow_log(tmp_path).path == tmp_path / LOG
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other.jsonl"))
    assert shadow_log(tmp_path).path == tmp_path / "other.jsonl"
