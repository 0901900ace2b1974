"""The GPUs of this machine: their models, and their use by a run (NVIDIA's NVML).

Without a driver it finds none, and nothing fails. The library is loaded
only when a meter is opened.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NVIDIA = Path("/proc/driver/nvidia/gpus")
BY_PROCESS, BY_DEVICE = "nvml_process", "nvml_device"


@dataclass(frozen=True)
class GpuSample:
    """One instant: memory of the run's processes; utilisation of the device, 0 to 1.

    Utilisation is of the busiest device, by all processes: NVML does not report it by process on
    every card. None where the card does not report it at all (a part of a card, MIG).
    """

    memory_bytes: int
    utilisation: float | None


class GpuMeter:
    """Reads the use of the visible GPUs by a run.

    `method` is the source of the memory figure: ``nvml_process``, as the driver lists it for the
    run's processes, or ``nvml_device``, the growth of the memory in use on the devices since the
    meter was opened. The second is for containers, in which the driver shows no processes or only
    process ids of the host; it includes growth by other programs.

    Parameters
    ----------
    nvml : module
        `pynvml`, initialised.
    devices : list
        Handles of the devices to read.
    """

    def __init__(self, nvml: Any, devices: list[Any]) -> None:
        self.method = BY_PROCESS
        self._nvml = nvml
        self._devices = devices
        self._idle_bytes = [self._used_bytes(device) for device in devices]

    def read(self, pids: set[int]) -> GpuSample:
        """Return the present use by the processes ``pids`` on all devices."""
        of_devices = (
            self._answer(self._nvml.nvmlDeviceGetComputeRunningProcesses, device) or ()
            for device in self._devices
        )
        listed = [process for processes in of_devices for process in processes]
        ours = [process.usedGpuMemory for process in listed if process.pid in pids]
        if ours and None not in ours:
            self.method = BY_PROCESS
            memory_bytes = sum(ours)
        elif (
            listed
            and not ours
            and all(Path(f"/proc/{process.pid}").exists() for process in listed)
        ):
            memory_bytes = 0  # the list can be trusted, and the run is not on it
        else:
            used = [self._used_bytes(device) for device in self._devices]
            pairs = zip(used, self._idle_bytes, strict=True)
            memory_bytes = sum(max(0, now - idle) for now, idle in pairs)
            if memory_bytes:
                self.method = BY_DEVICE
        rates = (self._answer(self._nvml.nvmlDeviceGetUtilizationRates, d) for d in self._devices)
        utilisation = max((rate.gpu / 100 for rate in rates if rate is not None), default=None)
        return GpuSample(memory_bytes, utilisation)

    def models(self) -> list[str]:
        """Return the models of the devices."""
        return [str(self._nvml.nvmlDeviceGetName(device)) for device in self._devices]

    def close(self) -> None:
        """Shut down the library."""
        self._nvml.nvmlShutdown()

    def _used_bytes(self, device: Any) -> int:
        memory = self._answer(self._nvml.nvmlDeviceGetMemoryInfo, device)
        return 0 if memory is None else int(memory.used)

    def _answer(self, question: Callable[[Any], Any], device: Any) -> Any:
        try:
            return question(device)
        except self._nvml.NVMLError:  # not reported to this user, or not by this card
            return None


def open_gpu_meter(nvml: Any = None) -> GpuMeter | None:
    """Return a meter for the GPUs this process may see, or None without any.

    ``CUDA_VISIBLE_DEVICES`` is respected, by number or by name; numbers follow the bus addresses.

    Parameters
    ----------
    nvml : module, optional
        Replaces `pynvml`.
    """
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver
        return None
    devices = _visible(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not devices:
        nvml.nvmlShutdown()
        return None
    return GpuMeter(nvml, devices)


def _visible(nvml: Any, chosen: str | None) -> list[Any]:
    try:
        if chosen is None:
            return [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        names = [name.strip() for name in chosen.split(",") if name.strip()]
        return [
            nvml.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdigit()
            else nvml.nvmlDeviceGetHandleByUUID(name)
            for name in names
        ]
    except nvml.NVMLError:
        return []


def gpu_models(folder: Path = NVIDIA) -> tuple[str, ...]:
    """Return the model of each NVIDIA GPU, by bus address; empty without a driver."""
    models: list[str] = []
    for information in sorted(folder.glob("*/information")):
        lines = information.read_text(encoding="utf-8", errors="replace").splitlines()
        models += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    # Not every container shows the driver's files.
    if not models and (meter := open_gpu_meter()) is not None:
        models = meter.models()
        meter.close()
    return tuple(models)
