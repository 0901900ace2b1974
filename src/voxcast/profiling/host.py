"""Facts of the machine that a run is measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from voxcast.files import sha256_of
from voxcast.profiling.gpu import gpu_models

MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True)
class HostFacts:
    """The facts of a machine that affect times; `cores` are those this process may use.

    `host_id` distinguishes machines, see the function of that name.
    """

    cpu_model: str
    cores: int
    memory_bytes: int
    gpu_models: tuple[str, ...]
    kernel: str
    hostname: str
    host_id: str = ""


def host_facts() -> HostFacts:
    """Return the facts of this machine."""
    model = cpu_model(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    return HostFacts(
        cpu_model=model,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        gpu_models=gpu_models(),
        kernel=platform.release(),
        hostname=platform.node(),
        host_id=host_id(platform.node(), model),
    )


def this_host_id() -> str:
    """Return the id of this machine, see `host_id`, without its other facts."""
    model = cpu_model(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    return host_id(platform.node(), model)


def host_id(hostname: str, model: str, machine: Path = MACHINE_ID) -> str:
    """Return eight hexadecimal digits of a hash of name, machine id where readable, CPU model.

    None of the three can be recovered from it, so that a recorded history can be shared.

    Examples
    --------
    >>> host_id("node1", "AMD EPYC", Path("/nowhere"))
    '840a84cb'
    """
    try:
        number = machine.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        number = ""
    return host_id_of(hostname, number, model)


def host_id_of(hostname: str, machine_id: str, model: str) -> str:
    """Return the id of a machine from the three texts, see `host_id`."""
    return sha256_of([hostname, machine_id, model])[:8]


def cpu_model(cpuinfo: str) -> str:
    """Return the model named in the text of ``/proc/cpuinfo``, or the architecture.

    Examples
    --------
    >>> cpu_model("processor : 0\\nmodel name\\t: AMD EPYC  9B14\\n")
    'AMD EPYC 9B14'
    """
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()  # ARM kernels do not name the model


def host_class(facts: HostFacts) -> str:
    """Return what machines with comparable times share: CPU model, cores, GPU models.

    Examples
    --------
    >>> host_class(HostFacts("AMD EPYC", 2, 8_000_000_000, (), "6.1", "node1"))
    'AMD EPYC, 2 cores, no GPU'
    """
    gpus = " + ".join(sorted(facts.gpu_models)) or "no GPU"
    return f"{facts.cpu_model}, {facts.cores} core{'s' if facts.cores != 1 else ''}, {gpus}"
