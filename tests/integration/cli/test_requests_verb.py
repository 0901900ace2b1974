"""``voxcast requests`` as called: a law, a history, an image, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from commands import voxcast as command
from voxcast.allocation.requests.strategies import STRATEGIES

REFERENCE = Path(__file__).parents[3] / "data/history/reference"
LAW = ("lognormal(3,0.5)",)


def voxcast(*arguments: object, code: int = 0) -> tuple[str, str]:
    answer = command("requests", *arguments, code=code)
    return answer.out, answer.err


def answers(*arguments: object) -> dict[str, Any]:
    out, _ = voxcast(*arguments, "--json")
    return {row["strategy"]: row for row in json.loads(out)}


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(
        "subject,runtime_s,outcome\na,100,completed\nb,120,completed\nc,90,completed\n"
        "d,400,completed\ne,110,completed\nf,900,timeout\ng,,completed\n"
    )
    return path


def test_all_strategies_of_a_law() -> None:
    options = ("--cost", "1,0,0", "--checkpoint", "2,2", "--strategy", "all")
    sequences = answers(*LAW, *options)
    assert list(sequences) == list(STRATEGIES)
    plain = sequences["equal_time"]
    assert plain["normalised_cost"] == pytest.approx(1.9166, abs=1e-4)
    assert plain["sequence"][0] == pytest.approx(29.737, abs=1e-3)
    first = sequences["mixed_ckpt"]["sequence"][0]
    assert first["checkpoint"] is True
    assert first["request"] == pytest.approx(first["milestone"] + 2)
    assert sequences["mixed_ckpt"]["expected_cost"] < plain["expected_cost"]
    assert sequences["no_ckpt"]["expected_cost"] == plain["expected_cost"]


def test_strategies_that_need_checkpoints_are_left_out_and_listed() -> None:
    out, err = voxcast(*LAW)
    assert "need --checkpoint: all_ckpt, mixed_ckpt, all_periodic" in err
    plain = [name for name, strategy in STRATEGIES.items() if not strategy.checkpoints]
    rows = [line.split()[:2] for line in out.splitlines()[1 : len(plain) + 1]]
    assert {name for name, _ in rows} == set(plain)
    costs = [float(cost) for _, cost in rows]
    assert costs == sorted(costs)  # the cheapest first
    assert "29.737, 50.823" in out
    assert (
        "take the cheapest, equal_time (no_ckpt is the same): request 29.737, 50.823 if that was "
        "too short, and so on" in out
    )
    assert "take the cheapest" not in voxcast(*LAW, "--strategy", "equal_time")[0]


def test_every_strategy_has_a_meaning_in_the_help_and_on_its_page() -> None:
    out, _ = voxcast("list")
    page = (Path(__file__).parents[3] / "docs/requests.md").read_text(encoding="utf-8")
    for name, strategy in STRATEGIES.items():
        assert f"{name}: {strategy.meaning}" in out
        assert f"| `{name}` |" in page


def test_runs_of_accounting_that_did_not_complete_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    states = ["COMPLETED"] * 8 + ["TIMEOUT", "FAILED", "OUT_OF_MEMORY", "CANCELLED by 1000"]
    lines = [f"{state},{100 + n}" for n, state in enumerate(states)]
    path.write_text("\n".join(["State,runtime_s", *lines]) + "\n")
    out, err = voxcast(path)
    assert "8 of 12 runs are used: completed" in err
    assert "left out, not completed: 1 cancelled, 1 failed, 1 out of memory, 1 timeout" in err
    assert "3 runs were stopped before they completed, and may be the longest" in err
    completed = tmp_path / "completed.csv"
    completed.write_text("\n".join(["State,runtime_s", *lines[:8]]) + "\n")
    alone = voxcast(completed)
    assert alone[0] == out
    assert "left out" not in alone[1]


def test_a_history_is_a_law_in_seconds(history: Path) -> None:
    out, err = voxcast(history)
    assert "6 of 7 runs are used: completed" in err
    assert "5 of 6 runs have a runtime_s" in err
    assert "brute_force: needs a law with a density" in err
    assert "2 min 0 s, 6 min 40 s" in out


def test_a_recorded_history_is_a_law_of_one_application() -> None:
    options = ("--app", "ants_segment", "--where", "scale=full_scale", "--where", "cpus=1")
    out, err = voxcast(REFERENCE, *options, "--strategy", "equal_time")
    assert "of 236 runs are used: completed, and each once" in err
    assert out.splitlines()[1].startswith("equal_time")
    assert "choose with --app" in voxcast(REFERENCE, code=2)[1]
    assert "has no runs of none" in voxcast(REFERENCE, "--app", "none", code=2)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "LAW|HISTORY|IMAGE: is missing"),
        ((*LAW, "--cost", "0,0,0"), "alpha: must be above 0"),
        ((*LAW, "--cost=-1,0,0"), "alpha"),
        ((*LAW, "--cost", "1,-1,0"), "beta"),
        ((*LAW, "--cost", "1,0,nan"), "--cost: must be 3 numbers"),
        ((*LAW, "--cost", "dear"), "--cost: must be 3 numbers"),
        ((*LAW, "--checkpoint", "1"), "must be two durations"),
        ((*LAW, "--checkpoint=-1,1"), "must be two durations"),
        ((*LAW, "--strategy", "mixed_ckpt"), "needs --checkpoint WRITE,RESTART"),
        ((*LAW, "--strategy", "guess"), "unknown strategy; choose from brute_force"),
        ((*LAW, "--app", "x"), "--app: is for a history or an image"),
        ((*LAW, "--where", "app=x"), "--where: is for a history"),
        (("pareto(1,1)",), "infinite mean"),
        (("pareto(1,2)", "--strategy", "brute_force"), "needs a finite variance"),
        (("weibull(1,0.01)", "--json"), "its mean or its end is out of range"),
        (("pareto(1,1.001)",), "out of the range of a double"),
        (("gamma(1e-4,1e-120)",), "its mean or its end is out of range"),
        (("guess(1)",), "is not a known law; choose from"),
        (("gone.csv",), "gone.csv: cannot be read"),
    ],
)
def test_invalid_requests_are_refused(arguments: tuple[object, ...], message: str) -> None:
    _, err = voxcast(*arguments, code=2)
    assert message in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subject,walltime\na,3\n", "has no column runtime_s, but subject, walltime"),
        ("runtime_s\nlong\n", "runtime_s is text, not seconds"),
        ("runtime_s\n0\n3\n", "1 of 2 values of runtime_s are not finite numbers above 0; leave"),
        ("runtime_s,outcome\n3,failed\n4,timeout\n", "none of 2 runs has the outcome completed"),
    ],
)
def test_invalid_histories_are_refused(history: Path, text: str, message: str) -> None:
    _, err = voxcast(history, "--strategy", "brute_force", code=2)
    assert "needs a law with a density" in err.splitlines()[-1]
    history.write_text(text)
    assert message in voxcast(history, code=2)[1]
