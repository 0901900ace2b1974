"""The audit of a generated site against its truth: hours, failures, money, savings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from voxcast.allocation.site import Billing, Cluster, NodeType, Partition, Prices
from voxcast.audit.groups import CAUSES
from voxcast.audit.jobs import AuditedJobs, files_of, read_jobs
from voxcast.audit.report import Audit, audit, prepare
from voxcast.audit.savings import AppJobs, Objective, savings_of

GB = 1e9
CLUSTER = Cluster(
    "site",
    (
        NodeType("cpu", 40, 200 * 10**9, 0, Prices(0.01, 0.0, 0.001), "normal"),
        NodeType("big", 40, 2000 * 10**9, 0, Prices(0.02, 0.0, 0.001), "normal"),
        NodeType("gpu", 32, 400 * 10**9, 4, Prices(0.01, 0.5, 0.0), "gpu", "requested"),
    ),
    (Partition("normal"), Partition("gpu")),
)


@pytest.fixture(scope="module")
def jobs(export: Path) -> AuditedJobs:
    read = read_jobs([export])
    prepare(read)
    return read


@pytest.fixture(scope="module")
def result(jobs: AuditedJobs) -> Audit:
    return audit(jobs, cluster=CLUSTER)


def outcomes(group: pd.Series) -> dict[str, int]:
    return {name: group[name] for name in ("completed", *CAUSES) if group[name]}


def hours(truth: pd.DataFrame) -> pd.Series:
    return truth["cpus"] * truth["runtime_s"] / 3600


def test_all_jobs_are_counted_once(result: Audit, truth: pd.DataFrame) -> None:
    ran = truth[truth["outcome"] != "never"]
    assert len(result.jobs.frame) == len(ran)
    assert result.jobs.never_started == {"cancelled": len(truth) - len(ran)}
    assert result.jobs.records == len(truth)
    assert outcomes(result.total.iloc[0]) == ran["outcome"].value_counts().to_dict()


@pytest.mark.parametrize("key", ["user", "account", "partition", "app"])
def test_groups_have_the_hours_and_failures_of_the_truth(
    result: Audit, truth: pd.DataFrame, key: str
) -> None:
    ran = truth[truth["outcome"] != "never"]
    assert set(result.groups[key]["key"]) == set(ran[key])
    for _, group in result.groups[key].iterrows():
        part = ran[ran[key] == group.key]
        assert group.jobs == len(part)
        assert outcomes(group) == part["outcome"].value_counts().to_dict()
        assert group.core_hours == pytest.approx(hours(part).sum())
        assert group.gpu_hours == pytest.approx((part["gpus"] * part["runtime_s"]).sum() / 3600)
        for cause in CAUSES:
            lost = hours(part[part["outcome"] == cause]).sum()
            assert group[f"{cause}_core_hours"] == pytest.approx(lost)
        done = part[part["outcome"] == "completed"]
        cpu = done["cpu_s"].sum() / 3600 / hours(done).sum()
        assert group.cpu_efficiency == pytest.approx(cpu, rel=1e-6)
        requested = (done["limit_s"] * done["cpus"]).sum() / 3600
        assert group.requested_core_hours == pytest.approx(requested)
        gb_hours = (done["request_bytes"] / GB * done["runtime_s"]).sum() / 3600
        assert group.requested_gb_hours == pytest.approx(gb_hours)
        used = (done["peak_bytes"] / GB * done["runtime_s"]).sum() / 3600
        assert group.used_gb_hours == pytest.approx(used, rel=1e-6)
        long = done[done["runtime_s"] >= 60]
        if len(long):
            middle = np.median(long["limit_s"] / long["runtime_s"])
            assert group.time_ratio_50 == pytest.approx(middle)


def test_money_is_that_of_the_cluster(result: Audit, truth: pd.DataFrame) -> None:
    ran = truth[truth["outcome"] != "never"]
    on_cpu = ran[ran["partition"] == "normal"]
    gb = on_cpu["request_bytes"] / GB
    expected = on_cpu["runtime_s"] / 3600 * (on_cpu["cpus"] * 0.01 + gb * 0.001)
    on_gpu = ran[ran["partition"] == "gpu"]  # where the requested time is charged
    expected_gpu = on_gpu["limit_s"] / 3600 * (on_gpu["cpus"] * 0.01 + on_gpu["gpus"] * 0.5)
    by_partition = result.groups["partition"].set_index("key")["usd"].to_dict()
    assert by_partition == pytest.approx({"normal": expected.sum(), "gpu": expected_gpu.sum()})
    assert not result.unpriced


def test_jobs_of_unknown_partitions_have_no_price(jobs: AuditedJobs) -> None:
    cluster = Cluster("small", CLUSTER.node_types[:1], CLUSTER.partitions[:1], Billing())
    priced = audit(jobs, ["partition"], cluster, judged_apps=1)
    assert set(priced.unpriced) == {"gpu"}
    assert priced.groups["partition"].set_index("key")["usd"]["gpu"] == 0


def test_savings_ask_for_less_and_lose_little(result: Audit, truth: pd.DataFrame) -> None:
    savings = {saving.app: saving for saving in result.savings}
    assert set(savings) == {"recon_all", "fmriprep", "bet", "train", "xcpd"}
    for saving in savings.values():
        part = truth[(truth["app"] == saving.app) & (truth["outcome"] == "completed")]
        assert saving.time is not None
        assert saving.memory is not None
        # Half of the jobs end before the first moment.
        assert 0.3 * len(part) < saving.time.judged_jobs < 0.52 * len(part)
        usual = saving.time.judged_jobs * part["limit_s"].iloc[0] * part["cpus"].iloc[0] / 3600
        assert saving.time.requested == pytest.approx(usual)
        for resource in (saving.time, saving.memory):
            assert resource.ratio.low is not None
            assert resource.ratio.high is not None
            assert resource.ratio.low <= resource.ratio.value <= resource.ratio.high
        for advice in saving.advice:
            for requests in (advice.time.requests, advice.memory.requests):
                assert list(requests) == sorted(set(requests))
        assert sum(advice.time.judged_jobs for advice in saving.advice) <= saving.time.judged_jobs
    recon = savings["recon_all"]
    assert recon.time is not None
    assert recon.time.ratio.value < 0.35  # 48 h were asked for runs of 7 h
    assert recon.time.lost_core_hours < 0.1 * recon.time.proposed
    # What xcpd asks for is too little: other requests save failures there.
    assert savings["xcpd"].avoidable_jobs > 0


def constant_jobs(n: int = 200) -> pd.DataFrame:
    """Return jobs that all take 1000 s and 1 GB, and ask for an hour and 4 GB."""
    submit = np.arange(n) * 3600.0
    frame = pd.DataFrame(
        {
            "job_id": [str(k) for k in range(n)], "runtime_s": 1000.0, "cpus": 2.0, "gpus": 0.0,
            "limit_s": 3600.0, "mem_limit_bytes": 4 * GB, "peak_rss_bytes": GB, "nodes": 1.0,
            "submit_s": submit, "start_s": submit, "end_s": submit + 1000.0,
            "outcome": "completed", "all_memory": False, "long": True,
            "user": pd.Categorical(["ann", "bob"] * (n // 2)),
        }
    )  # fmt: skip
    return frame.reset_index(drop=True)


def test_constant_jobs_are_asked_for_as_they_are() -> None:
    saving = savings_of(constant_jobs(), "tool", Objective())
    assert saving is not None
    assert saving.time is not None
    assert saving.memory is not None
    assert saving.time.killed == saving.memory.killed == 0
    (advice,) = saving.advice
    assert (advice.cpus, advice.jobs, advice.time.requests) == (2, 200, (1020.0,))  # 17 minutes
    assert saving.time.ratio.value == pytest.approx(1020 / 3600)
    assert saving.memory.ratio.value == pytest.approx(0.25, rel=1e-3)
    assert saving.time.judged_jobs == 100


def test_no_job_is_judged_by_requests_that_later_jobs_chose() -> None:
    rng = np.random.default_rng(1)
    jobs = constant_jobs()
    jobs["runtime_s"] *= np.exp(0.3 * rng.standard_normal(len(jobs)))
    jobs["peak_rss_bytes"] *= np.exp(0.3 * rng.standard_normal(len(jobs)))
    later = jobs.copy()
    begin = 150
    # Ends stay, so that the moments do too; what is learned from later jobs differs.
    later.loc[begin:, "runtime_s"] *= 10
    later.loc[begin:, "peak_rss_bytes"] *= 10
    for resource in ("time", "memory"):
        before, after = (
            app_jobs.replayed(getattr(app_jobs, resource)).first
            for app_jobs in (AppJobs(jobs, Objective()), AppJobs(later, Objective()))
        )
        np.testing.assert_array_equal(before[:begin], after[:begin])
        assert np.isfinite(before[101:begin]).all()
        assert np.isnan(before[:99]).all()
        assert not np.allclose(before[-10:], after[-10:])


def test_a_job_submitted_before_a_moment_is_not_judged_after_it() -> None:
    jobs = constant_jobs()
    jobs["submit_s"] = 0.0  # all were submitted before any had ended
    assert savings_of(jobs, "tool", Objective()) is None


def test_sites_that_export_few_columns_are_audited(few_columns: Path, truth: pd.DataFrame) -> None:
    read = read_jobs([few_columns])
    prepare(read)
    few = audit(read)
    ran = truth[:500][truth["outcome"][:500] != "never"]
    total = few.as_json()["total"]
    assert total["core_hours"] == pytest.approx(hours(ran).sum())
    assert total["cpu_efficiency"] is total["time_used"] is total["time_ratio_50"] is None
    assert "usd" not in total
    assert total["requested_gb_hours"] > 0
    assert list(few.groups["app"]["key"]) == ["(no name)"]
    assert few.savings == []  # without times there is no earlier and later


def test_the_same_jobs_in_two_files_count_once(export: Path, tmp_path: Path) -> None:
    for name in ("january", "february", ".hidden"):
        (tmp_path / name).write_bytes(export.read_bytes())
    once, twice = read_jobs([export]), read_jobs(files_of([tmp_path]))
    assert len(twice.frame) == len(once.frame) == twice.duplicates
    assert twice.records == 2 * once.records
    pd.testing.assert_frame_equal(
        twice.frame.astype({"name": "object"}), once.frame.astype({"name": "object"}),
        check_categorical=False,
    )  # fmt: skip


def test_advice_is_given_for_each_number_of_cpus() -> None:
    single, double = constant_jobs(), constant_jobs(60)
    single["cpus"], single["runtime_s"] = 1.0, 3000.0
    rare = constant_jobs(4).assign(cpus=16.0, runtime_s=200.0)
    jobs = pd.concat([single, double, rare], ignore_index=True)
    jobs["user"] = jobs["user"].astype("category")
    saving = savings_of(jobs, "tool", Objective())
    assert saving is not None
    times = {advice.cpus: (advice.jobs, advice.time.requests[0]) for advice in saving.advice}
    assert times == {1: (200, 3060.0), 2: (60, 1020.0)}
    assert saving.not_covered == 4
    assert not any(advice.time.killed for advice in saving.advice)
