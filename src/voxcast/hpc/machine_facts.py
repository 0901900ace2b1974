"""The machine that a job ran on: written by its script, in the terms of the history.

A job needs no voxcast on its node. So its script writes a few texts, and whoever follows the
submission makes of them the id and the class that a run measured there would have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.measure.host import HostFacts, cpu_model, host_class, host_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MACHINE_FILE = "machine"  # in the folder of an attempt
# GNU nproc counts the cores that the job may use, unless a variable of OpenMP says otherwise.
_LINES = (
    'printf "name %s\\n" "$(uname -n)"',
    'printf "machine_id %s\\n" "$(cat /etc/machine-id 2>/dev/null)"',
    'grep -m 1 "^model name" /proc/cpuinfo',
    'printf "cores %s\\n" "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)"',
)
_GPU_LINE = "nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sed 's/^/gpu /'"


@dataclass(frozen=True)
class Machine:
    """A machine as the history names it; empty where it is not known.

    Attributes
    ----------
    host_id, host_class, cpu_model : str
        See `voxcast.measure.host`.
    """

    host_id: str = ""
    host_class: str = ""
    cpu_model: str = ""

    @classmethod
    def of(cls, facts: HostFacts) -> Machine:
        """Return the machine of which these are the facts."""
        return cls(facts.host_id, host_class(facts), facts.cpu_model)

    @classmethod
    def from_record(cls, fields: Mapping[str, Any] | None) -> Machine:
        """Return the machine of an event; unknown if that has none."""
        return cls(**fields) if fields else cls()


def script_lines(gpus: int) -> list[str]:
    """Return the lines of a script that write `MACHINE_FILE`; no failure of theirs ends it."""
    lines = (*_LINES, *([_GPU_LINE] if gpus else []))
    return ["{", *lines, f'}} > "$folder/{MACHINE_FILE}" || true']


def read_machine(folder: Path) -> Machine:
    """Return the machine of an attempt; unknown if its job ended before it could say it."""
    try:
        text = (folder / MACHINE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Machine()
    fields: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        fields.setdefault(name, []).append(value.strip())
    hostname, cores = (fields.get(name, [""])[0] for name in ("name", "cores"))
    if not hostname or not cores.isdecimal():
        return Machine()
    model, number = cpu_model(text), fields.get("machine_id", [""])[0]
    facts = HostFacts(
        model, int(cores), 0, tuple(fields.get("gpu", ())), "", hostname,
        host_id_of(hostname, number, model),
    )  # fmt: skip
    return Machine.of(facts)
