"""The second configuration: this site today, composed when asked and checked as strictly."""

import shutil
from pathlib import Path

import pytest
import yaml

from voxcast import config
from voxcast.errors import ConfigError

PROJECT = Path(__file__).parents[2]
CLUSTERS = sorted(path.stem for path in (PROJECT / "conf" / "cluster").glob("*.yaml"))
POLICIES = sorted(path.stem for path in (PROJECT / "conf" / "policy").glob("*.yaml"))
HERE = config.Here(cores=6, memory_bytes=16 * 10**9, gpus=1)


def nowhere() -> config.Here:
    raise AssertionError("asked of this machine, and nothing was left open")


def loaded(*overrides: str, cluster: str | None = None, policy: str | None = None) -> config.Site:
    return config.load_submit(PROJECT / "conf", cluster, policy, overrides, here=lambda: HERE)


@pytest.mark.parametrize(
    ("cluster", "policy"),
    [*((cluster, "balanced") for cluster in CLUSTERS), *(("local", name) for name in POLICIES)],
)
def test_every_cluster_and_policy_composes(cluster: str, policy: str) -> None:
    site = loaded(cluster=cluster, policy=policy)
    assert (site.cluster.name, site.policy.name) == (cluster, policy)
    assert {node.partition for node in site.cluster.node_types} == {
        partition.name for partition in site.cluster.partitions
    }


def test_clusters_and_policies_do_not_change_the_model_parameters(tmp_path: Path) -> None:
    assert not {"cluster", "policy"} & set(yaml.safe_load((PROJECT / "params.yaml").read_text()))
    conf = tmp_path / "conf"
    shutil.copytree(PROJECT / "conf", conf)
    config.compose(tmp_path / "with.yaml", [], conf)
    shutil.rmtree(conf / "cluster")
    (conf / "submit.yaml").unlink()
    config.compose(tmp_path / "without.yaml", [], conf)
    assert (tmp_path / "with.yaml").read_bytes() == (tmp_path / "without.yaml").read_bytes()


def test_the_local_cluster_is_free_and_detected() -> None:
    site = loaded()
    assert (site.cluster.name, site.policy.name) == ("local", "balanced")
    (node,) = site.cluster.node_types
    assert (node.cores, node.memory_bytes, node.gpus) == (6, 16 * 10**9, 1)
    assert site.cluster.free
    config.load_submit(PROJECT / "conf", "osc", here=nowhere)


def test_a_partition_can_count_memory_per_cpu() -> None:
    site = loaded("cluster.partitions.serial.memory_per_cpu=true", cluster="osc")
    assert [p.memory_per_cpu for p in site.cluster.partitions] == [True, False]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cluster.billing.discount=0.1", "cluster.billing.discount: unknown key"),
        ("cluster.node_types.pitzer=null", "node_types.pitzer: must be a mapping"),
        ("cluster.node_types.large={cores: 4}", "node_types.large.partition: key is missing"),
        ("cluster.billing.core_step=0", "cluster.billing.core_step: must be at least 1"),
        ("cluster.billing.time_step=soon", "cluster.billing.time_step: not a duration"),
        ("cluster.billing.minimum=null", "cluster.billing.minimum: must be a number"),
        ("cluster.request.memory_step=8", "memory_step: must be a number and a unit as one text"),
        ("cluster.request.walltime_step=1e306h", "walltime_step: a duration cannot be negative"),
        ("cluster.node_types.pitzer.memory=0GB", "node_types.pitzer.memory: must be above 0"),
        ("cluster.node_types.pitzer.gpus=-1", "node_types.pitzer.gpus: must be at least 0"),
        ("cluster.node_types.pitzer.usd_per_gb_hour=.nan", "usd_per_gb_hour: must be finite"),
        ("cluster.node_types.pitzer.usd_per_gpu_hour=???", "usd_per_gpu_hour: needs a value"),
        ("cluster.node_types.pitzer.partition=moon",
         "pitzer.partition: no such partition; choose from serial, gpuserial"),
        ("cluster.node_types=null", "cluster.node_types: must be a mapping"),
        ("cluster.partitions.serial.max_walltime=0h", "serial.max_walltime: must be above 0"),
        ("cluster.partitions.serial.waiting.alpha=-1", "waiting.alpha: must be at least 0"),
        ("cluster.partitions.serial.waiting.gamma_s=.inf", "waiting.gamma_s: must be finite"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_and_key(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(override, cluster="osc")
    assert str(PROJECT / "conf" / "cluster" / "osc.yaml") in str(caught.value)
    assert message in str(caught.value)


def test_an_unknown_name_lists_the_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="moon: unknown cluster; choose from cloud, local, osc"):
        loaded(cluster="moon")
    with pytest.raises(ConfigError, match="bold: unknown policy; choose from balanced, cheapest"):
        loaded(policy="bold")
    with pytest.raises(ConfigError, match=r"submit\.yaml: no such file"):
        config.load_submit(tmp_path, here=nowhere)
