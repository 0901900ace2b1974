"""Runs measured in tests, from plain arguments."""

from voxcast.measure.runner import measure
from voxcast.measure.trace import Conditions
from voxcast.records import Run


def measured(command, folder, *, env=None, cpus=1, gpus=0, core_set=None, mem_limit_bytes=None,
             time_limit_s=None, stall_s=None, sample_hz=10.0, **options):  # fmt: skip
    """Run a command; return its run and its phases."""
    return measure(
        command, env or {}, folder,
        base=Run("", "app", cpus=cpus, gpus=gpus, mem_limit_bytes=mem_limit_bytes),
        conditions=Conditions(time_limit_s, stall_s, sample_hz), cpus=core_set, **options,
    )  # fmt: skip


def measured_run(command, folder, **options):
    """Run a command; return its run alone."""
    return measured(command, folder, **options)[0]
