"""``conf/submit.yaml`` composed at call time: the current cluster, and a policy."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from voxcast.allocation.assessment import Policy
from voxcast.allocation.site import Cluster
from voxcast.config.composition import CONF_DIR, compose_file
from voxcast.config.loading import options
from voxcast.config.site import ClusterFile, Here, PolicyByName
from voxcast.config.validation import validated
from voxcast.config.yaml_files import read_yaml
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SUBMIT = "submit.yaml"
GROUPS = ("cluster", "policy")


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
        Files of the groups, instead of those in ``submit.yaml``.
    overrides : sequence of str
        Hydra overrides, such as ``cluster.billing.whole_node=true``.
    here : callable
        Returns the size of this machine; called only if a node type leaves a value open.

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    folder = Path(conf_dir)
    chosen_files = {
        group: name
        for group, name in (("cluster", cluster), ("policy", policy))
        if name is not None
    }
    for group, name in chosen_files.items():
        names = options(folder / group)
        if name not in names:
            raise ConfigError(
                f"unknown {group}", name,
                f"choose from {', '.join(names) or 'none'}, or copy a file of {folder / group} to "
                f"{folder / group / name}.yaml and edit it",
            )  # fmt: skip
    root = folder / SUBMIT
    chosen = [f"{group}={name}" for group, name in chosen_files.items()]
    content, files = compose_file(root, [*chosen, *overrides])
    if unknown := sorted(set(content) - set(GROUPS)):
        raise ConfigError(f"unknown key, choose from {', '.join(GROUPS)}", f"{root}: {unknown[0]}")
    if missing := [group for group in GROUPS if group not in files]:
        raise ConfigError("has no file of the group", f"{root}: {missing[0]}")
    paths = {group: folder / group / f"{name}.yaml" for group, name in files.items()}
    cluster_file = validated(
        TypeAdapter(ClusterFile),
        content["cluster"],
        paths["cluster"],
        "cluster",
        context={"here": functools.cache(here)},
    )
    policies: TypeAdapter[dict[str, Policy]] = TypeAdapter(PolicyByName)
    chosen_policy = validated(policies, {"policy": content["policy"]}, paths["policy"])["policy"]
    return Site(
        cluster_file.cluster(files["cluster"]),
        dataclasses.replace(chosen_policy, name=files["policy"]),
    )


def current_site(
    conf_dir: str | Path,
    cluster: str | None = None,
    policy: str | None = None,
    overrides: Sequence[str] = (),
) -> Site:
    """Return cluster and policy as they are on this machine; see `load_submit`.

    Where the cluster's file leaves open how memory is counted, the Slurm of this machine is asked.
    """
    site = load_submit(conf_dir, cluster, policy, overrides, here=Here.of_this_machine)
    if site.cluster.is_this_machine:
        return site
    from voxcast.hpc.memory_counting import with_memory_counted

    return dataclasses.replace(site, cluster=with_memory_counted(site.cluster))


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
    names = options(folder)
    if name not in names:
        then = f"choose from {', '.join(names) or 'none'}, or copy one to {folder / name}.yaml"
        raise ConfigError("unknown cluster", name, then)
    path = folder / f"{name}.yaml"
    content = validated(
        TypeAdapter(ClusterFile), read_yaml(path), path, context={"here": functools.cache(here)}
    )
    return content.cluster(name)
