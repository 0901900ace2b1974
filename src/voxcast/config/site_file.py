"""``conf/submit.yaml`` with its groups ``conf/cluster`` and ``conf/policy``: a site and a policy.

Amounts with a unit are texts in the files. Null in a node type stands for the value of this
machine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from voxcast.allocation.offers import Policy
from voxcast.allocation.site import (
    MEMORY_FLOOR_BYTES,
    Billing,
    Charged,
    Cluster,
    MemoryCounted,
    NodeType,
    Partition,
    Prices,
    Waiting,
)
from voxcast.config.load import CONF_DIR, changed, check_option, merged, read_yaml
from voxcast.config.schema import AtLeast0, AtLeast1, named, quantity, validated
from voxcast.errors import ConfigError
from voxcast.quantities import parse_bytes, parse_seconds

SUBMIT = "submit.yaml"
GROUPS = ("cluster", "policy")
MAX_MARGIN = 10  # times the bound; a larger margin is a mistake


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


Seconds = Annotated[float, quantity(parse_seconds)]
Bytes = Annotated[int, quantity(parse_bytes)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class _Billing(Billing):
    """The billing rule as a file has it."""

    core_step: AtLeast1
    time_step_s: Annotated[Seconds, Field(alias="time_step")]
    minimum_s: Annotated[Seconds, Field(alias="minimum")]


@dataclass(frozen=True)
class _Request:
    """The steps to which requests are rounded up, the least memory, and how memory is counted."""

    walltime_step_s: Annotated[Seconds, Field(alias="walltime_step")]
    memory_step_bytes: Annotated[Bytes, Field(alias="memory_step")]
    memory_floor_bytes: Annotated[Bytes, Field(alias="memory_floor")] = MEMORY_FLOOR_BYTES
    memory_counted: MemoryCounted | None = None
    mapped_files_bytes: Annotated[Bytes | None, Field(alias="mapped_files")] = None


@dataclass(frozen=True)
class _Node:
    """A node type; null stands for the value of this machine."""

    partition: str
    cores: AtLeast1 | None
    memory_bytes: Annotated[Annotated[Bytes, Field(gt=0)] | None, Field(alias="memory")]
    gpus: AtLeast0 | None
    usd_per_core_hour: Amount
    usd_per_gpu_hour: Amount
    usd_per_gb_hour: Amount
    charged: Charged = "used"
    host_class: str | None = None

    def node_type(self, name: str, here: Callable[[], Here]) -> NodeType:
        """Return it as the library takes it."""
        sizes = {
            size: getattr(here(), size) if getattr(self, size) is None else getattr(self, size)
            for size in ("cores", "memory_bytes", "gpus")
        }
        prices = Prices(self.usd_per_core_hour, self.usd_per_gpu_hour, self.usd_per_gb_hour)
        return NodeType(
            name, **sizes, prices=prices, partition=self.partition, charged=self.charged,
            host_class=self.host_class,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Waiting(Waiting):
    alpha: Amount
    gamma_s: Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class _Partition(Partition):
    """A partition with the limits of its numbers; null for no limit."""

    name: str = ""
    max_walltime_s: Annotated[Annotated[Seconds, Field(gt=0)] | None, Field(alias="max_walltime")]
    max_cores: AtLeast1 | None
    max_memory_bytes: Annotated[Annotated[Bytes, Field(gt=0)] | None, Field(alias="max_memory")]
    waiting: Annotated[_Waiting, AfterValidator(lambda read: Waiting(**vars(read)))]


@dataclass(frozen=True)
class _Policy(Policy):
    """A policy with the limits of its numbers."""

    confidence: Annotated[float, Field(gt=0.5, lt=1)]
    time_margin: Annotated[float, Field(ge=0, le=MAX_MARGIN)]
    memory_margin: Annotated[float, Field(ge=0, le=MAX_MARGIN)]
    hour_in_core_hours: Amount


@dataclass(frozen=True)
class _ClusterFile:
    """A file of ``conf/cluster``."""

    billing: _Billing
    request: _Request
    node_types: Annotated[dict[str, _Node], Field(min_length=1)]
    partitions: Annotated[dict[str, Partition], named(Partition, _Partition)]


def _cluster(name: str, content: Any, path: Path, key: str, here: Callable[[], Here]) -> Cluster:
    file = validated(_ClusterFile, content, path, key)
    for node, entry in file.node_types.items():
        if entry.partition not in file.partitions:
            where = f"{path}: {key}.node_types.{node}.partition".replace(": .", ": ")
            names = ", ".join(file.partitions) or "none"
            raise ConfigError("no such partition", where, f"choose from {names}")
    here = functools.cache(here)
    node_types = tuple(entry.node_type(node, here) for node, entry in file.node_types.items())
    partitions = tuple(file.partitions.values())
    return Cluster(name, node_types, partitions, file.billing, **vars(file.request))


def load_submit(
    conf_dir: str | Path = CONF_DIR,
    cluster: str | None = None,
    policy: str | None = None,
    overrides: Sequence[str] = (),
    *,
    here: Callable[[], Here],
) -> Site:
    """Read ``submit.yaml`` and its groups, and check them as strictly as ``params.yaml``.

    Parameters
    ----------
    cluster, policy : str, optional
        Files of the groups, instead of those named in ``submit.yaml``.
    overrides : sequence of str
        Changes, such as ``cluster.billing.whole_node=true``.
    here : callable
        Returns the size of this machine; called only if a node type leaves a value open.

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    folder, root = Path(conf_dir), Path(conf_dir, SUBMIT)
    above = read_yaml(root)
    if not isinstance(above, dict) or not isinstance(above.get("defaults"), list):
        raise ConfigError("needs a list of defaults", root)
    entries = [entry for entry in above.pop("defaults") if isinstance(entry, dict)]
    files = {group: str(name) for entry in entries for group, name in entry.items()}
    files |= {group: name for group, name in (("cluster", cluster), ("policy", policy)) if name}
    if missing := [group for group in GROUPS if group not in files]:
        raise ConfigError("has no file of the group", f"{root}: {missing[0]}")
    paths = {group: folder / group / f"{name}.yaml" for group, name in files.items()}
    for group, path in paths.items():
        copy = f", or copy a file of {folder / group} to {path} and edit it"
        check_option(folder / group, files[group], group, copy)
    read = {group: read_yaml(path) for group, path in paths.items()}
    content = changed(merged(read, above), overrides)
    if unknown := sorted({*content} - {*GROUPS}):
        raise ConfigError(f"unknown key, choose from {', '.join(GROUPS)}", f"{root}: {unknown[0]}")
    site = _cluster(files["cluster"], content["cluster"], paths["cluster"], "cluster", here)
    risk = merged(content["policy"], {"name": files["policy"]})
    return Site(site, validated(_Policy, risk, paths["policy"], "policy"))


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
    """Return a cluster from its file alone; see `load_submit`."""
    folder = Path(conf_dir) / "cluster"
    check_option(folder, name, "cluster", f", or copy one to {folder / name}.yaml")
    path = folder / f"{name}.yaml"
    return _cluster(name, read_yaml(path), path, "", here)
