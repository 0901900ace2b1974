"""The records that rooms exchange, as frozen dataclasses; units are in the names.

The meaning of the fields is documented here only; how they are measured, learned or stored is
documented in the module that does it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from voxcast.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Outcome = Literal[
    "completed", "timeout", "out_of_memory", "failed", "preempted", "stalled",
    "cancelled", "node_failure",
]  # fmt: skip
Scale = Literal["scaled_down", "full_scale"]

# What is predicted. Wall time is what a scheduler limits; CPU time is what the image decides.
TARGETS = ("cpu_s", "runtime_s", "peak_rss_bytes")

MEASURED = "measured"  # source of runs that were not imported

# Repeats outside a sweep are numbered from here, so that each has its own key: runs repeated
# because the machine was busy, and the anchor runs at the start of a sitting.
NOISY_REPEAT = 100
ANCHOR_REPEAT = 1000

# Fields whose names in records, in cell keys and in registered models are older than these names.
RECORDED_NAMES = {
    "container_engine": "runtime",
    "mem_limit_bytes": "memory_bytes",
    "time_limit_s": "limit_s",
}


@dataclass(frozen=True)
class Configuration:
    """An allocation that an application may run in (HARP's triple of cores, GPUs, memory)."""

    device: str
    cpus: int
    gpus: int = 0
    mem_limit_bytes: int | None = None
    node_type: str = "local"
    container_engine: str = "none"  # see voxcast.apps.containers

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Configuration:
        """Return the configuration with the fields that `to_record` gave."""
        return cls(**_renamed(fields, {old: new for new, old in RECORDED_NAMES.items()}))

    def to_record(self) -> dict[str, Any]:
        """Return the fields under their recorded names."""
        return _renamed(asdict(self), RECORDED_NAMES)

    @property
    def label(self) -> str:
        """A short, readable name.

        Examples
        --------
        >>> Configuration("cpu", 2).label
        'cpu, 2 CPUs'
        """
        cpus = f"{self.device}, {self.cpus} CPU{'s' if self.cpus != 1 else ''}"
        return cpus if not self.gpus else f"{cpus}, {self.gpus} GPU{'s' if self.gpus != 1 else ''}"


@dataclass(frozen=True)
class App:
    """An application as data: the file ``conf/app/NAME.yaml``, as the other rooms see it.

    It is a Python module with the command line of `voxcast_apps.arguments`, or a command
    line, `argv`, in which ``{image}``, ``{out}``, ``{threads}``, ``{device}`` and the names of
    parameters are filled in.
    """

    name: str
    version: str
    module: str | None = None
    argv: tuple[str, ...] = ()
    input: Literal["volume", "none"] = "volume"
    parameters: dict[str, Any] = field(default_factory=dict)
    # Values that a campaign may draw: two numbers are a range, more are a list.
    ranges: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    scaled_down: dict[str, Any] = field(default_factory=dict)  # parameters of a scaled-down run
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # e.g. trained weights; their content is part of the version
    programs: tuple[str, ...] = ()  # that it starts and that must be on PATH, e.g. mpirun
    devices: tuple[str, ...] = ("cpu",)
    # What its time depends on beside the header: names of characteristics; None for all.
    characteristics: tuple[str, ...] | None = None
    phases: tuple[str, ...] = ()
    # What decides the CPU time of a phase: grid, working, mask, names of characteristics and
    # parameters; a phase without any takes the same time for every image.
    phase_drivers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Phase to a pattern with a group `seconds`, for applications that log durations.
    phase_patterns: dict[str, str] = field(default_factory=dict)
    container: dict[str, str] = field(default_factory=dict)  # image by device
    binds: dict[str, str] = field(
        default_factory=dict
    )  # path in the container to {inputs} or {out}
    verify_gpu: bool = False  # a run on a GPU that never used it is a failure, not a measurement
    expected_startup_s: float = 1.0
    expected_s_per_mvoxel: float = 1.0
    # How a run that is too long is split: `count` is the parameter that says how many items it
    # has (repeats, folds, tiles), `range` the one that chooses some of them, "3:5" without the
    # last and "" for all. Optional in files.
    split: dict[str, str] = field(default_factory=dict, metadata={"optional": True})

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> App:
        """Return the application with the fields of `dataclasses.asdict`, as JSON keeps them."""
        values: dict[str, Any] = {
            n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()
        }
        for name in ("ranges", "phase_drivers"):
            if name in values:
                values[name] = {key: tuple(entry) for key, entry in values[name].items()}
        return cls(**values)


@dataclass(frozen=True)
class Cell:
    """One run to measure. `key` identifies it by content, so that it is never measured twice."""

    app: str
    app_version: str
    parameters: dict[str, Any]
    volume_id: str
    subject: str
    configuration: Configuration
    scale: Scale
    repeat: int
    host_class: str

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Cell:
        """Return the cell with the fields that `to_record` gave."""
        configuration = Configuration.from_record(fields["configuration"])
        return cls(**{**fields, "configuration": configuration})

    def to_record(self) -> dict[str, Any]:
        """Return the fields under their recorded names."""
        return {**asdict(self), "configuration": self.configuration.to_record()}

    @property
    def key(self) -> str:
        """SHA-256 of what defines the run: application, volume, allocation, repeat, hardware."""
        content = self.to_record()
        del content["subject"]  # a name for grouping; the same voxels are the same run
        return sha256_of(content)


@dataclass(frozen=True)
class Phase:
    """A part of a run with uniform behaviour; times count from the start of the run."""

    name: str
    start_s: float
    end_s: float
    cpu_s: float | None = None
    peak_rss_bytes: int | None = None

    @property
    def duration_s(self) -> float:
        """Length of the phase in seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Profile:
    """The summary of one run; a lower bound unless its outcome is ``completed``."""

    outcome: Outcome
    exit_status: int | None
    runtime_s: float
    cpu_s: float
    peak_rss_bytes: int
    peak_cgroup_bytes: int | None
    memory_method: str
    cpu_method: str
    started_at: str
    time_limit_s: float | None = None
    noisy: bool = False  # the machine was busy with something else
    load1: float | None = None  # load average over one minute, before the run
    steal: float | None = None  # share of the machine's CPU time its hypervisor took
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    peak_threads: int | None = None
    peak_gpu_bytes: int | None = None
    gpu_utilisation: float | None = None  # mean over the run, 0 to 1
    # Mean CPU time of each kernel of the metronome over the run, and how often they were timed.
    metronome_compute_s: float | None = None
    metronome_copy_s: float | None = None
    metronome_gather_s: float | None = None
    metronome_interpreter_s: float | None = None
    metronome_ticks: int | None = None
    phases: tuple[Phase, ...] = ()

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Profile:
        """Return the profile with the fields that `to_record` gave."""
        current = _renamed(fields, {old: new for new, old in RECORDED_NAMES.items()})
        return cls(**{**current, "phases": tuple(Phase(**phase) for phase in fields["phases"])})

    def to_record(self) -> dict[str, Any]:
        """Return the fields under their recorded names."""
        return _renamed(asdict(self), RECORDED_NAMES)


def _renamed(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in fields.items()}
