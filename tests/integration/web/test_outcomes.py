"""POST /outcomes: requests of recurring tasks, as `OnlineSizer` learns them, kept in a project."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from voxcast.allocation.requests.online import OnlineSizer
from voxcast.serving.model_store import ModelStore
from voxcast.web.application import application
from voxcast.web.outcomes import FOLDER, LEAST_BYTES, LEAST_S, MAX_RUNS, MAX_TASKS
from voxcast.web.server import Settings

NEXT = {"task": "align", "features": {"input_bytes": 5e9}}
RUNS = [
    {"task": "align", "features": {"input_bytes": n * 1e9}, "runtime_s": 100.0 * n,
     "peak_rss_bytes": 2e9 + n * 1e8, "outcome": "timeout" if n == 3 else "completed"}
    for n in range(1, 13)
]  # fmt: skip


def asked(client: TestClient, **content: Any) -> Any:
    answer = client.post("/outcomes", json=content)
    assert answer.status_code == 200, answer.text
    return answer.json()["requests"]


def test_requests_follow_the_runs_that_were_reported_and_outlive_the_service(
    champion_project: Path, tmp_path: Path
) -> None:
    settings = Settings(ModelStore.of(champion_project), tmp_path)
    usual = {"walltime_s": 7200.0, "memory_bytes": 16e9}
    with TestClient(application(settings), "http://127.0.0.1") as client:
        assert asked(client, next=[NEXT | usual]) == [
            {"walltimes_s": [7200.0], "memories_bytes": [16 * 10**9]}
        ]
        (learned,) = asked(client, ended=RUNS, next=[NEXT])
    sizers = {name: OnlineSizer(objective=name) for name in ("time", "memory")}
    for run in RUNS:
        for sizer in sizers.values():
            sizer.update(**run)
    requests = {name: sizer.requests(**NEXT) for name, sizer in sizers.items()}
    assert learned["walltimes_s"] == sorted({r.walltime_s for r in requests["time"]})
    assert learned["memories_bytes"] == sorted({r.memory_bytes for r in requests["memory"]})
    assert 500 <= learned["walltimes_s"][0] <= 700
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == {"time.jsonl", "memory.jsonl"}
    with TestClient(application(settings), "http://127.0.0.1") as client:
        assert asked(client, next=[NEXT]) == [learned]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"ended": [RUNS[0] | {"runtime_s": -1}]}, "ended.0.runtime_s: must be at least 0"),
        ({"ended": [RUNS[0] | {"outcome": "lost"}]}, "ended.0.outcome"),
        ({"ended": [RUNS[0] | {"features": {"input_bytes": 1e300}}]}, "input_bytes"),
        ({"next": [NEXT | {"preset": 1}]}, "next.0.preset"),
        ({"ended": RUNS * 2}, "ended: "),
        ({"next": [{"task": ""}]}, "next.0.task"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_by_name(
    service: TestClient, content: dict[str, Any], reason: str
) -> None:
    answer = service.post("/outcomes", json=content)
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]


def test_names_that_never_recur_end(champion_project: Path) -> None:
    settings = Settings(ModelStore.of(champion_project))  # no project: nothing is written
    with TestClient(application(settings), "http://127.0.0.1") as client:
        for first in range(0, MAX_TASKS, MAX_RUNS):
            asked(client, ended=[RUNS[0] | {"task": f"run {first + n}"} for n in range(MAX_RUNS)])
        answer = client.post("/outcomes", json={"ended": [RUNS[0]]})
        assert answer.status_code == 422
        assert "give alike runs the same task" in answer.json()["detail"]
        assert asked(client, ended=[RUNS[0] | {"task": "run 7"}]) == []


def test_runs_without_use_do_not_request_nothing(champion_project: Path) -> None:
    settings = Settings(ModelStore.of(champion_project))
    idle = {"task": "touch", "runtime_s": 0.0, "peak_rss_bytes": 0.0}
    with TestClient(application(settings), "http://127.0.0.1") as client:
        (requests,) = asked(client, ended=[idle] * 10, next=[{"task": "touch"}])
    assert (requests["walltimes_s"][0], requests["memories_bytes"][0]) == (LEAST_S, LEAST_BYTES)
