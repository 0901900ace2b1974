"""``conf/submit.yaml`` composed at call time, checked, and turned into a cluster and a policy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.allocation.assessment import Policy
from voxcast.allocation.billing import Billing
from voxcast.allocation.machines import Cluster, NodeType, Partition
from voxcast.allocation.pricing import Prices
from voxcast.allocation.waiting import Waiting
from voxcast.config.composition import CONF_DIR, SUBMIT, compose_submit
from voxcast.config.loading import build
from voxcast.config.site import ClusterConfig, NodeTypeConfig, PartitionConfig, PolicyConfig
from voxcast.errors import ConfigError
from voxcast.quantities import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GROUPS = ("cluster", "policy")
MOST_MARGIN = 10  # times what was predicted, beyond which it is a slip


@dataclass(frozen=True)
class Here:
    """What this machine has, for node types that leave it open."""

    cores: int
    memory_bytes: int
    gpus: int


@dataclass(frozen=True)
class Site:
    """The cluster and the policy as the library takes them."""

    cluster: Cluster
    policy: Policy


def load_submit(
    conf_dir: str | Path = CONF_DIR,
    cluster: str | None = None,
    policy: str | None = None,
    overrides: Sequence[str] = (),
    *,
    here: Callable[[], Here],
) -> Site:
    """Compose ``submit.yaml`` and check it as strictly as ``params.yaml``.

    Parameters
    ----------
    cluster, policy : str, optional
        Files of the groups, instead of those that ``submit.yaml`` names.
    overrides : sequence of str
        Of Hydra, such as ``cluster.billing.whole_node=true``.
    here : callable
        Looks this machine up; called only if a node type leaves something open.

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    folder = Path(conf_dir)
    given = {"cluster": cluster, "policy": policy}
    for group, name in given.items():
        known = sorted(path.stem for path in (folder / group).glob("*.yaml"))
        if name is not None and name not in known:
            raise ConfigError(f"unknown {group}", name, f"known are: {', '.join(known) or 'none'}")
    swaps = [f"{group}={name}" for group, name in given.items() if name is not None]
    content, chosen = compose_submit([*swaps, *overrides], folder)
    root = folder / f"{SUBMIT}.yaml"
    if unknown := sorted(set(content) - set(GROUPS)):
        raise ConfigError(f"unknown key, known are {', '.join(GROUPS)}", f"{root}: {unknown[0]}")
    if missing := [group for group in GROUPS if group not in chosen]:
        raise ConfigError("names no file of the group", f"{root}: {missing[0]}")
    files = {group: folder / group / f"{chosen[group]}.yaml" for group in GROUPS}
    return Site(
        _cluster(chosen["cluster"], content["cluster"], f"{files['cluster']}: cluster", here),
        _policy(chosen["policy"], content["policy"], f"{files['policy']}: policy"),
    )


def _policy(name: str, content: Any, where: str) -> Policy:
    own: PolicyConfig = build(PolicyConfig, content, where)
    _check(0.5 < own.confidence < 1, "must lie between 0.5 and 1", f"{where}.confidence")
    margin = 0 <= own.memory_margin <= MOST_MARGIN
    _check(margin, f"must not be negative, and at most {MOST_MARGIN}", f"{where}.memory_margin")
    _amount(own.hour_in_core_hours, f"{where}.hour_in_core_hours")
    return Policy(name, own.confidence, own.memory_margin, own.hour_in_core_hours)


def _cluster(name: str, content: Any, where: str, here: Callable[[], Here]) -> Cluster:
    own: ClusterConfig = build(ClusterConfig, content, where)
    _check(bool(own.node_types), "needs at least one", f"{where}.node_types")
    rule, at = own.billing, f"{where}.billing"
    _check(rule.core_step >= 1, "must be at least 1", f"{at}.core_step")
    step_s = _seconds(own.request.walltime_step, f"{where}.request.walltime_step")
    step_bytes = _bytes(own.request.memory_step, f"{where}.request.memory_step")
    partitions = {
        key: _partition(key, one, f"{where}.partitions.{key}")
        for key, one in own.partitions.items()
    }
    nodes = []
    for key, one in own.node_types.items():
        at_node = f"{where}.node_types.{key}"
        _check(
            one.partition in partitions,
            f"no such partition, there are {', '.join(partitions) or 'none'}",
            f"{at_node}.partition",
        )
        nodes.append(_node(key, one, at_node, here))
    billing = Billing(
        rule.memory_follows_cores,
        rule.whole_node,
        rule.core_step,
        _seconds(rule.time_step, f"{at}.time_step"),
        _seconds(rule.minimum, f"{at}.minimum"),
    )
    return Cluster(name, tuple(nodes), tuple(partitions.values()), billing, step_s, step_bytes)


def _node(name: str, own: NodeTypeConfig, where: str, here: Callable[[], Here]) -> NodeType:
    open_ = own.cores is None or own.memory is None or own.gpus is None
    machine = here() if open_ else Here(0, 0, 0)
    cores = machine.cores if own.cores is None else own.cores
    memory = machine.memory_bytes if own.memory is None else _bytes(own.memory, f"{where}.memory")
    gpus = machine.gpus if own.gpus is None else own.gpus
    _check(cores >= 1, "must be at least 1", f"{where}.cores")
    _check(memory >= 1, "must be above 0", f"{where}.memory")
    _check(gpus >= 0, "must not be negative", f"{where}.gpus")
    for field in ("usd_per_core_hour", "usd_per_gpu_hour", "usd_per_gb_hour"):
        _amount(getattr(own, field), f"{where}.{field}")
    prices = Prices(own.usd_per_core_hour, own.usd_per_gpu_hour, own.usd_per_gb_hour)
    return NodeType(
        name, cores, memory, gpus, prices, own.partition, own.charged, own.host_class
    )  # fmt: skip


def _partition(name: str, own: PartitionConfig, where: str) -> Partition:
    waiting = own.waiting
    _amount(waiting.alpha, f"{where}.waiting.alpha")
    _check(math.isfinite(waiting.gamma_s), "must be a number", f"{where}.waiting.gamma_s")
    limits = {
        "max_walltime": None
        if own.max_walltime is None
        else _seconds(own.max_walltime, f"{where}.max_walltime"),
        "max_cores": own.max_cores,
        "max_memory": None
        if own.max_memory is None
        else _bytes(own.max_memory, f"{where}.max_memory"),
    }
    for key, limit in limits.items():
        _check(limit is None or limit > 0, "must be above 0; null for none", f"{where}.{key}")
    return Partition(
        name,
        limits["max_walltime"],
        own.max_cores,
        None if limits["max_memory"] is None else int(limits["max_memory"]),
        Waiting(waiting.alpha, waiting.gamma_s),
    )


def _check(kept: bool, rule: str, where: str) -> None:
    if not kept:
        raise ConfigError(rule, where)


def _amount(value: float, where: str) -> None:
    _check(math.isfinite(value) and value >= 0, "must not be negative, and finite", where)


def _seconds(text: str, where: str) -> float:
    return float(_parsed(parse_seconds, text, where))


def _bytes(text: str, where: str) -> int:
    return int(_parsed(parse_bytes, text, where))


def _parsed(parse: Callable[[str], float], text: str, where: str) -> float:
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(error.what, where, error.then) from None
