"""A campaign of some minutes on a machine with a GPU, of which nothing but torch is expected.

Every run is measured and recorded as everywhere else. What needs more than the standard library,
numpy and torch is left for later: samples that were written as JSON are turned into tables when
the runs are collected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.campaigns.driver_lock import driver_lock
from voxcast.campaigns.gpu.archive import RUNS, SUMMARY_FILE, pack
from voxcast.campaigns.gpu.paired_cells import gpu_cells
from voxcast.campaigns.gpu.prepared_inputs import Inputs, lend_nvml, read_inputs
from voxcast.campaigns.recorder import Conditions, Recorder
from voxcast.campaigns.sittings import open_sitting
from voxcast.errors import RunError, TableError
from voxcast.files import PARTIAL, read_json, write_json
from voxcast.history.run_folders import RECORD_FILE, read_record, record_rows
from voxcast.profiling.host import HostFacts, host_class, host_facts
from voxcast.profiling.runner import sweep
from voxcast.records import Cell, Configuration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

UNKNOWN_S = 10.0  # expected of a run before one like it was made
PACK_EVERY = 10
USED = "peak_cuda_"  # how the names of an application's own figures of CUDA memory begin
# In a process of its own, so that ours holds no memory of the GPU; it also brings torch into the
# page cache, or the first run would be the one that reads it from disk.
_LOOK = """
import json, torch
names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": names}))
"""


@dataclass(frozen=True)
class Summary:
    """What came of a campaign: runs made now, on record in all, and planned."""

    made: int
    recorded: int
    planned: int
    notes: tuple[str, ...]


def run_gpu_campaign(
    inputs: Path,
    work: Path,
    archive: Path,
    *,
    devices: Sequence[str] = ("cpu", "gpu"),
    cpus: int = 4,
    budget_s: float = 450.0,
    time_limit_s: float = 60.0,
) -> Summary:
    """Measure what is missing in ``work``, as far as the budget goes, and pack it.

    Parameters
    ----------
    inputs : Path
        Folder written by `voxcast.campaigns.gpu.prepared_inputs.prepare`.
    work : Path
        Gets a folder ``runs`` of run folders; made if missing. Runs in it are not made again.
    archive : Path
        The ``.tar.gz`` of the work folder, brought up to date every few runs.
    cpus : int
        Of every run, on either device.
    budget_s : float
        After so much time nothing is begun, and what still runs is stopped and not recorded.
    time_limit_s : float
        Of one run; reaching it is recorded.

    Raises
    ------
    RunError
        If none of the devices is there, torch is missing, the inputs are, or another campaign
        works in the folder.
    """
    deadline = time.monotonic() + budget_s
    prepared = read_inputs(inputs)
    lend_nvml(inputs)
    torch_facts = _torch_facts()
    possible, notes = _possible(devices, torch_facts["gpus"])
    runs = work / RUNS
    runs.mkdir(parents=True, exist_ok=True)
    facts = host_facts()
    if not facts.gpu_models:  # the driver's list is not shown in every container
        facts = dataclasses.replace(facts, gpu_models=tuple(torch_facts["gpus"]))
    configurations = [
        Configuration(device, min(cpus, facts.cores), int(device == "gpu")) for device in possible
    ]
    cells = gpu_cells(prepared, configurations, host_class(facts))
    with driver_lock(runs):
        for left in runs.glob(PARTIAL + "*"):
            sweep(left)
        missing = [cell for cell in cells if not _is_recorded(runs / cell.key)]
        made = 0
        try:
            if missing:
                recorder = _recorder(prepared, runs, facts)
                for made in _measure(recorder, missing, deadline, time_limit_s, notes):
                    if made % PACK_EVERY == 0:
                        pack(work, archive)
        finally:
            done = sum(_is_recorded(runs / cell.key) for cell in cells)
            summary = Summary(made, done, len(cells), tuple(notes))
            write_json(work / SUMMARY_FILE, {**dataclasses.asdict(summary), "torch": torch_facts})
            pack(work, archive)
    return summary


def settle(run: Path) -> None:
    """Write into a record whether the GPU was used; a run on a GPU that was not has failed.

    Used is what NVML saw at work, or, where there is no NVML, what has had memory by the
    application's own account. That account is also the peak where there is no other.
    """
    record = read_json(run / RECORD_FILE)
    profile = record["profile"]
    if record["cell"]["configuration"]["device"] != "gpu" or "gpu" in record:
        return
    own_bytes = _own_cuda_bytes(run / "out")
    busy = (profile["gpu_utilisation"] or 0.0) > 0
    verified = "utilisation" if busy else "cuda_memory" if own_bytes else None
    method = "nvml" if profile["peak_gpu_bytes"] else "application" if own_bytes else None
    record["gpu"] = {"verified_by": verified, "memory_method": method, "own_bytes": own_bytes}
    if method == "application":
        profile["peak_gpu_bytes"] = own_bytes
    if verified is None and profile["outcome"] == "completed":
        profile["outcome"] = "failed"
    write_json(run / RECORD_FILE, record)


def _possible(devices: Sequence[str], gpus: Sequence[str]) -> tuple[list[str], list[str]]:
    possible = [device for device in devices if device == "cpu" or gpus]
    notes = [] if possible == list(devices) else ["gpu: left out, torch finds no CUDA device here"]
    if not possible:
        raise RunError(f"none of {', '.join(devices)} is here", "--devices", notes[0])
    return possible, notes


def _torch_facts() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LOOK], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise RunError(f"cannot use torch ({said})", sys.executable, "install torch")
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def _recorder(prepared: Inputs, runs: Path, facts: HostFacts) -> Recorder:
    earlier = {str(row["sitting"]) for row in record_rows(runs).values()}
    sitting = open_sitting(runs, earlier)
    host = {**sitting.host, "gpu_models": facts.gpu_models}
    return Recorder(
        folder=runs,
        # Whether the GPU was used is for `settle` to see: memory counts beside utilisation.
        apps={n: dataclasses.replace(a, verify_gpu=False) for n, a in prepared.apps.items()},
        paths={volume.volume_id: volume.path for volume in prepared.volumes},
        recipes={v.volume_id: v.recipe for v in prepared.volumes if v.recipe is not None},
        conditions=Conditions(),
        sitting=dataclasses.replace(sitting, host=host),
    )


def _measure(
    recorder: Recorder,
    cells: Sequence[Cell],
    deadline: float,
    time_limit_s: float,
    notes: list[str],
) -> Iterator[int]:
    """Record cell after cell until the deadline; tell after each how many there are."""
    took_s: dict[tuple[str, str], list[float]] = {}
    for made, cell in enumerate(cells, 1):
        alike_s = took_s.setdefault((cell.app, cell.configuration.device), [])
        left_s = deadline - time.monotonic()
        if left_s < (statistics.mean(alike_s) if alike_s else UNKNOWN_S):
            notes.append("the budget is used up; go on with --resume")
            return
        limit_s = min(time_limit_s, left_s)
        recorder.conditions = Conditions(limit_s)
        profile = recorder.record(cell, cell.key)
        if profile.outcome == "timeout" and limit_s < time_limit_s:
            # It was our budget that ended it, which says nothing about the run.
            shutil.rmtree(recorder.folder / cell.key)
            notes.append("the budget ended a run, which is not recorded; go on with --resume")
            return
        settle(recorder.folder / cell.key)
        alike_s.append(profile.runtime_s)
        what = cell.volume_id or cell.parameters.get("network", "")
        line = f"{cell.app} {what}, {cell.configuration.label}: {profile.runtime_s:.1f} s"
        print(f"{made} of {len(cells)}: {line}", file=sys.stderr)
        yield made


def _is_recorded(run: Path) -> bool:
    with contextlib.suppress(TableError):
        read_record(run)
        settle(run)  # it may have been stopped just before
        return True
    return False


def _own_cuda_bytes(out: Path) -> int:
    found = [0]
    for path in out.glob("*.json"):
        content = read_json(path)
        if isinstance(content, dict):
            found += [v for k, v in content.items() if k.startswith(USED) and isinstance(v, int)]
    return max(found)
