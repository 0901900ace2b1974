"""``conf/submit.yaml`` with its groups ``conf/cluster`` and ``conf/policy``: a site and a policy.

Amounts with a unit are texts in the files. Null in a node type stands for the value of this
machine.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from voxcast.allocation.offers import Policy
from voxcast.allocation.site import (
    MEMORY_FLOOR_BYTES,
    Billing,
    Cluster,
    MemoryCounted,
    NodeType,
    Partition,
    Prices,
    Waiting,
)
from voxcast.config.load import CONF_DIR, check_option, compose_file, read_yaml
from voxcast.config.schema import (
    ABOVE_0,
    ABOVE_0_OR_NULL,
    Key,
    Place,
    Rules,
    at_least,
    between,
    mapping,
    quantity,
    section,
    typed,
)
from voxcast.errors import ConfigError
from voxcast.quantities import parse_bytes, parse_seconds

SUBMIT = "submit.yaml"
GROUPS = ("cluster", "policy")
MAX_MEMORY_MARGIN = 10  # times the predicted memory; a larger margin is a mistake
PRICES = ("usd_per_core_hour", "usd_per_gpu_hour", "usd_per_gb_hour")


@dataclass(frozen=True)
class Site:
    """The cluster and the policy as the library takes them."""

    cluster: Cluster
    policy: Policy


@dataclass(frozen=True)
class Here:
    """The size of this machine, for node types that leave it open."""

    cores: int
    memory_bytes: int
    gpus: int

    @classmethod
    def of_this_machine(cls) -> Here:
        """Return the size of this machine."""
        from voxcast.measure.host import host_facts

        facts = host_facts()
        return cls(facts.cores, facts.memory_bytes, len(facts.gpu_models))


OPTIONAL = {"optional": True}


@dataclass(frozen=True)
class _Request:
    """The steps to which requests are rounded up, the least memory, and how memory is counted."""

    walltime_step_s: float
    memory_step_bytes: int
    memory_floor_bytes: int = field(default=MEMORY_FLOOR_BYTES, metadata=OPTIONAL)
    memory_counted: MemoryCounted | None = field(default=None, metadata=OPTIONAL)
    mapped_files_bytes: int | None = field(default=None, metadata=OPTIONAL)


SECONDS, BYTES = quantity(parse_seconds), quantity(parse_bytes)
SECONDS_OR_NULL = quantity(parse_seconds, optional=True)
BYTES_OR_NULL = quantity(parse_bytes, optional=True)
AMOUNT = Key(
    holds=lambda value: math.isfinite(value) and value >= 0,
    rule="must not be negative, and finite",
)
RULES: Rules = {
    Billing: {
        "core_step": at_least(1),
        "time_step_s": Key("time_step", SECONDS),
        "minimum_s": Key("minimum", SECONDS),
    },
    _Request: {
        "walltime_step_s": Key("walltime_step", SECONDS),
        "memory_step_bytes": Key("memory_step", BYTES),
        "memory_floor_bytes": Key("memory_floor", BYTES),
        "mapped_files_bytes": Key("mapped_files", BYTES_OR_NULL),
    },
    Prices: dict.fromkeys(PRICES, AMOUNT),
    Partition: {
        "max_walltime_s": replace(ABOVE_0_OR_NULL, name="max_walltime", read=SECONDS_OR_NULL),
        "max_cores": ABOVE_0_OR_NULL,
        "max_memory_bytes": replace(ABOVE_0_OR_NULL, name="max_memory", read=BYTES_OR_NULL),
    },
    Waiting: {"alpha": AMOUNT, "gamma_s": Key(holds=math.isfinite, rule="must be a number")},
    Policy: {
        "confidence": between(0.5, 1),
        "memory_margin": Key(
            holds=lambda value: 0 <= value <= MAX_MEMORY_MARGIN,
            rule=f"must not be negative, and at most {MAX_MEMORY_MARGIN}",
        ),
        "hour_in_core_hours": AMOUNT,
    },
}


@dataclass(frozen=True)
class _ClusterFile:
    """A file of ``conf/cluster``."""

    billing: Billing
    request: _Request
    node_types: dict[str, NodeType]
    partitions: dict[str, Partition]


def _node_types(content: Any, place: Place, here: Callable[[], Here]) -> dict[str, NodeType]:
    def or_here(name: str, parse: Callable[[Any, Place], Any]) -> Callable[[Any, Place], Any]:
        return lambda value, at: getattr(here(), name) if value is None else parse(value, at)

    whole_number = functools.partial(typed, int)
    keys = {
        "cores": replace(at_least(1), read=or_here("cores", whole_number)),
        "gpus": replace(at_least(0), read=or_here("gpus", whole_number)),
        "memory_bytes": replace(ABOVE_0, name="memory", read=or_here("memory_bytes", BYTES)),
    }
    nodes = {}
    for name, entry in mapping(content, place).items():
        below, values = place.at(name), dict(mapping(entry, place.at(name)))
        prices = {key: values.pop(key) for key in PRICES if key in values}
        priced = section(Prices, prices, below, RULES)
        nodes[name] = section(NodeType, values, below, {NodeType: keys}, name=name, prices=priced)
    return nodes


def _cluster(name: str, content: Any, place: Place, here: Callable[[], Here]) -> Cluster:
    nodes = functools.partial(_node_types, here=functools.cache(here))
    keys = {"node_types": Key(read=nodes, holds=bool, rule="needs at least one")}
    file = section(_ClusterFile, content, place, {**RULES, _ClusterFile: keys})
    for node in file.node_types.values():
        if node.partition not in file.partitions:
            names = ", ".join(file.partitions) or "none"
            where = place.at("node_types").at(node.name).at("partition")
            raise where.error(f"no such partition; choose from {names}")
    node_types, partitions = tuple(file.node_types.values()), tuple(file.partitions.values())
    return Cluster(name, node_types, partitions, file.billing, **vars(file.request))


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
        Files of the groups, instead of those named in ``submit.yaml``.
    overrides : sequence of str
        Hydra overrides, such as ``cluster.billing.whole_node=true``.
    here : callable
        Returns the size of this machine; called only if a node type leaves a value open.

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    folder, root = Path(conf_dir), Path(conf_dir, SUBMIT)
    chosen = []
    for group, name in zip(GROUPS, (cluster, policy), strict=True):
        if name is not None:
            new = f"{folder / group / name}.yaml"
            copy = f", or copy a file of {folder / group} to {new} and edit it"
            check_option(folder / group, name, group, copy)
            chosen.append(f"{group}={name}")
    content, files = compose_file(root, [*chosen, *overrides])
    if unknown := sorted(set(content) - set(GROUPS)):
        raise ConfigError(f"unknown key, choose from {', '.join(GROUPS)}", f"{root}: {unknown[0]}")
    if missing := [group for group in GROUPS if group not in files]:
        raise ConfigError("has no file of the group", f"{root}: {missing[0]}")
    places = {g: Place(folder / g / f"{name}.yaml", g) for g, name in files.items()}
    site = _cluster(files["cluster"], content["cluster"], places["cluster"], here)
    risk = section(Policy, content["policy"], places["policy"], RULES, name=files["policy"])
    return Site(site, risk)


def current_site(
    conf_dir: str | Path,
    cluster: str | None = None,
    policy: str | None = None,
    overrides: Sequence[str] = (),
) -> Site:
    """Return cluster and policy as they are on this machine; see `load_submit`.

    Where the cluster's file leaves open how memory is counted, this machine's Slurm says it.
    """
    site = load_submit(conf_dir, cluster, policy, overrides, here=Here.of_this_machine)
    if site.cluster.is_this_machine:
        return site
    from voxcast.jobs.slurm import with_memory_counted

    return replace(site, cluster=with_memory_counted(site.cluster))


def load_cluster(conf_dir: str | Path, name: str, *, here: Callable[[], Here]) -> Cluster:
    """Return a cluster from its file alone, without composing the second root.

    So that it works where Hydra is not installed, as on a login node.

    Parameters
    ----------
    here : callable
        Returns the size of this machine; called only if a node type leaves a value open.

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    folder = Path(conf_dir) / "cluster"
    check_option(folder, name, "cluster", f", or copy one to {folder / name}.yaml")
    path = folder / f"{name}.yaml"
    return _cluster(name, read_yaml(path), Place(path), here)
