"""The settings of a campaign: one object for every place that measures one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from voxcast.campaigns.sweeps import Sweep
    from voxcast.profiling.host import HostFacts
    from voxcast.records import App, Configuration


@dataclass(frozen=True)
class Conditions:
    """How every run of a campaign is measured; None for no limit.

    `metronome`: whether kernels are timed beside each run, see `voxcast.profiling.metronome`.
    `mem_limit_bytes`: the memory there is for a run, beside the limit of its configuration.
    """

    time_limit_s: float | None = None
    stall_s: float | None = None
    sample_hz: float = 10.0
    metronome: bool = True
    mem_limit_bytes: int | None = None


@dataclass(frozen=True)
class CampaignSettings:
    """What to measure, where the runs go, and how long it may take.

    Attributes
    ----------
    apps : mapping
        Applications by name.
    runs : Path
        Folder that gets one folder per run; created if missing.
    sweeps, configurations, seed : optional
        What `voxcast.campaigns.plan.make_plan` draws the cells from.
    anchors : int
        Each application is run on this many volumes at the start of every sitting.
    budget_s : float, optional
        Expected time that sweeps with ``choose: within_budget`` may fill.
    stop_after_s : float, optional
        No run is started that is not expected to end within this time.
    stop_running : bool
        A run that is still going after `stop_after_s` is stopped and not recorded.
    repeat_noisy_s : float, optional
        Noisy runs are repeated within this time only; None for no limit.
    parallel : int
        Runs at a time, each on separate cores. Those that need more cores run afterwards.
    host : HostFacts, optional
        Facts of this machine; detected by default.
    """

    apps: Mapping[str, App]
    runs: Path
    sweeps: tuple[Sweep, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)
    seed: int = 1
    anchors: int = 0
    budget_s: float | None = None
    stop_after_s: float | None = None
    stop_running: bool = False
    repeat_noisy_s: float | None = None
    parallel: int = 1
    host: HostFacts | None = None
