"""A machine of another speed is left out: the prior is wrong, and local runs mend that."""

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.studies import unseen_machines

FAST = {"families": ("ridge",), "folds": 2, "trials": 1, "draws": 2}


def table(hosts: dict[str, float], subjects: int = 36) -> pd.DataFrame:
    """Return planted runs, whose CPU times differ by a factor for each machine."""
    runs = planted.table(subjects, noise=0.02)
    names = np.array(list(hosts))[runs["subject"].astype(int) % len(hosts)]
    factors = np.array([hosts[name] for name in names])
    runs = runs.assign(
        noisy=False, parameters_json="{}", batch="first", host_id=names,
        sitting=[f"{name}/1" for name in names],
    )  # fmt: skip
    for target in ("cpu_s", "runtime_s"):
        runs[target] *= factors
    return runs


def test_local_runs_tell_the_speed_of_a_machine_that_was_not_measured() -> None:
    runs = table({"a": 1.0, "b": 1.0, "slow": 1.5})
    by_place = unseen_machines.study(runs, **FAST)["segment"]["machine"]
    assert set(by_place) == {"a", "b", "slow"}
    points = {point["local_runs"]: point for point in by_place["slow"]}
    assert set(points) == {0, 2, 4, 8}
    mapes = {count: point["errors"]["cpu_s"]["mape"] for count, point in points.items()}
    assert mapes[0] > 25  # taken for as fast as the others
    assert mapes[8] < 0.5 * mapes[0]
    # Two draws of local runs are scored together.
    assert points[8]["answers"]["runs"] == 2 * points[0]["answers"]["runs"] == 48
    assert points[0]["answers"]["calibrated"] == 0
    for point in points.values():
        bound = point["coverage"]["cpu_s"]
        assert bound["subjects"] == 12
        assert bound["interval"][0] <= bound["rate"] <= bound["interval"][1]
    memory = {count: point["errors"]["peak_rss_bytes"]["mape"] for count, point in points.items()}
    assert memory[8] == pytest.approx(memory[0])  # memory has no speed


def test_a_machine_of_a_reserved_batch_is_never_learned_from() -> None:
    runs = table({"a": 1.0, "slow": 1.5})
    first, other = runs[runs["host_id"] == "a"], runs[runs["host_id"] == "slow"]
    results = unseen_machines.study(first, other, **FAST)["segment"]
    assert results["machine"]["a"] == {"not_measurable": "0 subjects elsewhere, 8 are needed"}
    points = {point["local_runs"]: point for point in results["machine"]["slow"]}
    assert points[0]["errors"]["cpu_s"]["mape"] > 25
    assert points[8]["errors"]["cpu_s"]["mape"] < 12
    assert results["sitting"] == {"not_measurable": "measured in one sitting"}


def test_what_cannot_be_left_out_is_said() -> None:
    runs = table({"here": 1.0}, subjects=12)
    results = unseen_machines.study(runs, **FAST)["segment"]
    assert results["machine"] == {"not_measurable": "measured on one machine"}
    assert results["sitting"] == {"not_measurable": "measured in one sitting"}
    few = runs.assign(sitting=["a" if s <= "0003" else "b" for s in runs["subject"]])
    by_place = unseen_machines.study(few, **FAST)["segment"]["sitting"]
    assert by_place["b"] == {"not_measurable": "3 subjects elsewhere, 8 are needed"}
    assert [point["local_runs"] for point in by_place["a"]] == [0, 2]  # of two folds
    single = runs.assign(sitting=["a" if s == "0001" else "b" for s in runs["subject"]])
    by_place = unseen_machines.study(single, **FAST)["segment"]["sitting"]
    assert by_place["a"] == {"not_measurable": "one subject in it, and local runs are of others"}
