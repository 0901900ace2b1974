"""A sitting: one stretch of measuring on one machine, whose speed is probed at its start."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.profiling.host import host_facts
from voxcast.profiling.probes import Probes, take_probes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from voxcast.profiling.host import HostFacts


@dataclass(frozen=True)
class Sitting:
    """What the records of a sitting share; `host` and `probes` as they are written there."""

    name: str
    number: int
    host: dict[str, Any]
    probes: dict[str, float]


def open_sitting(
    folder: Path,
    earlier: Iterable[str],
    probes: Probes | None = None,
    facts: HostFacts | None = None,
) -> Sitting:
    """Start a sitting.

    Parameters
    ----------
    folder : Path
        Where runs will write: the disk that is probed.
    earlier : iterable of str
        Names of the sittings on record; the new one gets the number after their highest.
    probes, facts : Probes, HostFacts, optional
        Speeds and hardware of the machine, if known; otherwise measured, in some seconds.
    """
    numbers = [int(n) for name in earlier if (n := name.rpartition("-")[2]).isdigit()]
    number = 1 + max(numbers, default=0)
    host = dataclasses.asdict(facts or host_facts())
    today = datetime.datetime.now(datetime.UTC)
    return Sitting(
        name=f"{today:%Y-%m-%d}-{host['host_id']}-{number}",
        number=number,
        host=host,
        probes=dataclasses.asdict(probes or take_probes(folder)),
    )
