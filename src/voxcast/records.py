"""The records that rooms exchange, as frozen dataclasses; units are in the names.

The meaning of the fields is documented here only; how they are measured, learned or stored is
documented in the module that does it. `as_fields` and `of_fields` write and read every record.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from voxcast.files import sha256_of
from voxcast.quantities import counted, format_bytes, format_seconds

Outcome = Literal[
    "completed", "timeout", "out_of_memory", "failed", "preempted", "stalled",
    "cancelled", "node_failure",
]  # fmt: skip
Scale = Literal["scaled_down", "full_scale"]
# Exit status of a run that was killed, as a parent and as a shell reports it. Without another sign
# its memory ran out, unless its peak is known to be far below the limit.
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
NEAR_LIMIT = 0.9  # of the memory limit: samples miss the last increase

# What is predicted. Wall time is what a scheduler limits; CPU time is what the image decides.
TARGETS = ("cpu_s", "runtime_s", "peak_rss_bytes")

MEASURED = "measured"  # source of runs that were not imported

# Repeats outside a sweep are numbered from here, so that each has its own key: runs repeated
# because the machine was busy, and the anchor runs at the start of a sitting.
NOISY_REPEAT = 100
ANCHOR_REPEAT = 1000


@dataclass(frozen=True)
class Configuration:
    """An allocation that an application may run in (HARP's triple of cores, GPUs, memory)."""

    device: str
    cpus: int
    gpus: int = 0
    mem_limit_bytes: int | None = field(default=None, metadata={"recorded": "memory_bytes"})
    node_type: str = "local"
    # See voxcast.apps.containers.
    container_engine: str = field(default="none", metadata={"recorded": "runtime"})

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

    @property
    def label(self) -> str:
        """Its application, subject and configuration, for display."""
        subject = f" sub-{self.subject}" if self.subject else ""
        return f"{self.app}{subject}, {self.configuration.label}"

    @property
    def key(self) -> str:
        """SHA-256 of what defines the run: application, volume, allocation, repeat, hardware."""
        content = as_fields(self)
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
class Run:
    """One run on record, measured or imported: a row of the history.

    Its figures are lower bounds unless its outcome is ``completed``. Unknown texts are empty;
    unknown numbers are None.
    """

    cell_key: str  # hash of the run's cell, or of its row in the source if imported
    app: str
    app_version: str = ""  # with the versions of its packages, or the digest of its container
    parameters_json: str = "{}"
    volume_id: str = ""  # empty for an application without an image
    subject: str = ""
    recipe_json: str = ""  # parameters of a generated volume
    host_id: str = ""
    host_class: str = ""  # CPU model, cores, GPU models: runs on one class are comparable
    node_type: str = ""
    cpu_model: str = ""
    probe_cpu: float | None = None  # probes of the machine, of recorded runs only
    probe_membw: float | None = None
    probe_disk: float | None = None
    device: str = "cpu"
    cpus: int = 0  # 0 if an imported source does not state it
    gpus: int = 0
    mem_limit_bytes: int | None = None
    scale: str = "full_scale"
    repeat: int = 0
    sitting: str = ""  # stretch of measuring on one machine
    outcome: str = "completed"
    exit_status: int | None = None
    limit_s: float | None = None  # time limit of the run
    noisy: bool = False  # the machine was busy with something else
    load1: float | None = None  # load average over one minute, before the run
    steal: float | None = None  # share of the machine's CPU time its hypervisor took, 0 to 1
    runtime_s: float | None = None
    cpu_s: float | None = None
    cpu_method: str = ""
    peak_rss_bytes: int | None = None
    peak_cgroup_bytes: int | None = None
    memory_method: str = ""
    peak_gpu_bytes: int | None = None
    gpu_utilisation: float | None = None  # mean over the run, 0 to 1
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    peak_threads: int | None = None
    started_at: str = ""  # ISO 8601, UTC
    source: str = MEASURED  # or the source it was imported from
    labels_json: str = "{}"  # other facts from the source
    # Mean CPU time of each kernel of the metronome in the second before the run, and over the run,
    # and how often they were timed over it.
    before_compute_s: float | None = None
    before_copy_s: float | None = None
    before_gather_s: float | None = None
    before_interpreter_s: float | None = None
    metronome_compute_s: float | None = None
    metronome_copy_s: float | None = None
    metronome_gather_s: float | None = None
    metronome_interpreter_s: float | None = None
    metronome_ticks: int | None = None


@dataclass(frozen=True)
class Request:
    """What one attempt of a task asks of the scheduler."""

    walltime_s: float
    memory_bytes: int
    cpus: int = 1
    gpus: int = 0
    partition: str = ""
    device: str = "cpu"

    @property
    def label(self) -> str:
        """Its size, such as ``2 CPUs, 4.00 GB, 1 h 30 min``."""
        gpus = f", {counted(self.gpus, 'GPU')}" if self.gpus else ""
        memory, time = format_bytes(self.memory_bytes), format_seconds(self.walltime_s)
        if self.walltime_s == math.inf:
            time = "no time limit"
        return f"{counted(self.cpus, 'CPU')}{gpus}, {memory}, {time}"

    def at_least(self, *others: Request) -> Request:
        """Return this request with no less time and memory than any of others."""
        return replace(
            self,
            walltime_s=max(request.walltime_s for request in (self, *others)),
            memory_bytes=max(request.memory_bytes for request in (self, *others)),
        )


@dataclass(frozen=True)
class Prediction:
    """What a model predicts for one image in one configuration.

    Upper bounds are at `confidence`. `risk` is the probability that the first request is too
    small; None if it is unknown. Unknown numbers are NaN.
    """

    runtime_s: float
    runtime_s_upper: float
    peak_rss_bytes: float
    peak_rss_bytes_upper: float
    confidence: float = 0.95
    risk: float | None = None
    calibrated: bool = False
    out_of_range: bool = False
    family: str = ""
    model_version: str = ""
    forecaster_sha256: str = ""


R = TypeVar("R")


def as_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record as JSON keeps them, under their recorded names.

    A number that is not finite becomes None; tuples become lists.

    Examples
    --------
    >>> as_fields(Phase("n4", 0.0, float("nan")))["end_s"] is None
    True
    """
    return {f.recorded: plain(getattr(record, f.name)) for f in _layout(type(record))}


def of_fields(cls: type[R], fields: Mapping[str, Any]) -> R:
    """Return the record that `as_fields` wrote.

    A missing field, and None where a number is expected, get the default of the field, or NaN.

    Raises
    ------
    ValueError
        If a field is unknown, missing without a default, or has the wrong type.

    Examples
    --------
    >>> of_fields(Phase, {"name": "n4", "start_s": 0, "end_s": 2.5}).duration_s
    2.5
    >>> of_fields(Phase, {"name": "n4", "start_s": "soon", "end_s": 2.5})
    Traceback (most recent call last):
    ValueError: start_s is 'soon', expected float
    """
    if not isinstance(fields, Mapping):
        raise ValueError(f"expected the fields of {cls.__name__}, got {fields!r}")
    layout = _layout(cls)
    unknown = set(fields) - {f.recorded for f in layout}
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {min(map(str, unknown))}")
    values = {}
    for f in layout:
        value = fields.get(f.recorded)
        if value is None and f.has_default:
            continue
        if f.recorded not in fields:
            raise ValueError(f"{f.recorded} is missing")
        if value is None and f.hint is float:
            value = math.nan
        values[f.name] = _typed(value, f.hint, f.recorded)
    return cls(**values)


@dataclass(frozen=True)
class _Field:
    name: str
    recorded: str
    hint: Any
    has_default: bool


_LAYOUTS: dict[type, tuple[_Field, ...]] = {}


def _layout(cls: type) -> tuple[_Field, ...]:
    if cls not in _LAYOUTS:
        hints, absent = get_type_hints(cls), dataclasses.MISSING
        _LAYOUTS[cls] = tuple(
            _Field(
                f.name, f.metadata.get("recorded", f.name), hints[f.name],
                f.default is not absent or f.default_factory is not absent,
            )
            for f in dataclasses.fields(cls)
        )  # fmt: skip
    return _LAYOUTS[cls]


def plain(value: Any) -> Any:
    """Return a value as JSON keeps it: None for NaN and infinity, lists, and fields of records."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_fields(value)
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def _typed(value: Any, hint: Any, name: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (hint,) = (a for a in arguments if a is not type(None))
        return _typed(value, hint, name)
    if dataclasses.is_dataclass(hint):
        return of_fields(hint, value)  # type: ignore[arg-type]
    if origin is tuple and isinstance(value, (list, tuple)):
        hints = [arguments[0]] * len(value) if arguments[-1] is ... else arguments
        return tuple(_typed(v, h, name) for v, h in zip(value, hints, strict=True))
    if origin is dict and isinstance(value, Mapping):
        return {key: _typed(entry, arguments[1], name) for key, entry in value.items()}
    if origin is Literal and value in arguments:
        return value
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and (
        hint is bool or not isinstance(value, bool)
    ):  # fmt: skip
        return value
    expected = getattr(hint, "__name__", None) if origin is None else str(hint)
    raise ValueError(f"{name} is {value!r}, expected {expected}")
