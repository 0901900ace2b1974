"""The meter on values such as NVML gives, and the real thing where there is a GPU."""

import os
import time
from types import SimpleNamespace

import pytest

from voxcast.measure.gpu import BY_DEVICE, BY_PROCESS, GpuSample, gpu_models, open_gpu_meter
from voxcast.measure.meters import MeterReading, Traffic
from voxcast.measure.trace import Trace

NO_SUCH_PID = 2**22 + 1  # above the kernel's largest
GIB = 2**30


class Recorded:
    """NVML with recorded answers: two cards, the use of each, and the listed processes."""

    class NVMLError(Exception):
        pass

    def __init__(self, used=(1 * GIB, 2 * GIB), listed=((), ()), busy=(0, 0), driver=True):
        self.used, self.listed, self.busy, self.driver = used, listed, busy, driver
        self.open = 0

    def nvmlInit(self):
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        if index > 1:
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return {"GPU-a": 0, "GPU-b": 1}[uuid]

    def nvmlDeviceGetMemoryInfo(self, device):
        return SimpleNamespace(used=self.used[device])

    def nvmlDeviceGetComputeRunningProcesses(self, device):
        return [SimpleNamespace(pid=p, usedGpuMemory=m) for p, m in self.listed[device]]

    def nvmlDeviceGetUtilizationRates(self, device):
        if self.busy is None:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=self.busy[device])


@pytest.fixture(autouse=True)
def _all_cards(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_memory_is_that_of_the_runs_processes_on_all_cards():
    nvml = Recorded()
    meter = open_gpu_meter(nvml)
    nvml.used = (5 * GIB, 9 * GIB)
    nvml.listed = (((100, GIB), (os.getpid(), 3 * GIB)), ((101, GIB // 2),))
    nvml.busy = (20, 75)
    assert meter.read({100, 101, 102}) == GpuSample(GIB + GIB // 2, 0.75)
    assert meter.method == BY_PROCESS
    meter.close()
    assert nvml.open == 0


def test_memory_of_other_processes_is_excluded_where_processes_are_listed():
    nvml = Recorded()
    meter = open_gpu_meter(nvml)
    nvml.used, nvml.listed = (8 * GIB, 2 * GIB), (((os.getpid(), 7 * GIB),), ())
    assert meter.read({NO_SUCH_PID}).memory_bytes == 0


@pytest.mark.parametrize(
    "listed",
    [((), ()), (((NO_SUCH_PID, 3 * GIB),), ()), (((100, None),), ())],
    ids=["hidden", "numbers of the host", "memory not told"],
)
def test_device_memory_growth_counts_where_processes_are_hidden(listed):
    nvml = Recorded()
    meter = open_gpu_meter(nvml)
    nvml.used, nvml.listed = (4 * GIB, GIB), listed
    assert meter.read({100}).memory_bytes == 3 * GIB  # the other card gave memory back
    assert meter.method == BY_DEVICE


@pytest.mark.parametrize("chosen", ["1", " GPU-b"])
def test_only_visible_cards_are_read(monkeypatch, chosen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    nvml = Recorded(busy=(90, 10))
    meter = open_gpu_meter(nvml)
    nvml.used = (9 * GIB, 3 * GIB)
    assert meter.read({100}) == GpuSample(GIB, 0.1)


@pytest.mark.parametrize("chosen", ["", "7"])
def test_there_is_no_meter_without_a_card(monkeypatch, chosen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    nvml = Recorded()
    assert open_gpu_meter(nvml) is None
    assert nvml.open == 0


def test_there_is_no_meter_without_a_driver():
    assert open_gpu_meter(Recorded(driver=False)) is None
    if not gpu_models():
        assert open_gpu_meter() is None


class Still:
    """A meter of a run that does nothing."""

    def read(self):
        return MeterReading(0, 0.0, 1)

    def traffic(self):
        return Traffic(0, 0, 0)

    def oom_kills(self):
        return 0

    def members(self):
        return set()


@pytest.mark.parametrize(
    ("busy", "used", "seen"),
    [
        (None, 0, False), (None, GIB, True), ((0, 0), GIB, True), ((0, 0), 2**16, False),
        ((0, 50), 0, True),
    ],
)  # fmt: skip
def test_utilisation_or_the_memory_of_a_context_indicates_use(busy, used, seen):
    nvml = Recorded(busy=busy)
    trace = Trace(Still(), open_gpu_meter(nvml), time.monotonic())
    nvml.used = (nvml.used[0] + used, *nvml.used[1:])
    trace.take_sample()
    assert trace.used_gpu == seen
