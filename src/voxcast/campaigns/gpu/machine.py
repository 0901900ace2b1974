"""A campaign of some minutes on a machine with a GPU that has torch, numpy and nibabel only.

Runs are measured and recorded as everywhere else. Steps that need more packages follow when the
runs are collected: samples written as JSON are converted to tables then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.campaigns.driver import run_campaign
from voxcast.campaigns.gpu.archive import RUNS, SUMMARY_FILE, pack
from voxcast.campaigns.gpu.paired_cells import gpu_cells
from voxcast.campaigns.gpu.prepared_inputs import Inputs, lend_nvml, read_inputs
from voxcast.campaigns.plan import CampaignPlan
from voxcast.campaigns.settings import CampaignSettings, Conditions
from voxcast.errors import RunError, TableError
from voxcast.files import read_json, write_json
from voxcast.history.run_folders import RECORD_FILE, read_record
from voxcast.profiling.host import HostFacts, host_class, host_facts
from voxcast.records import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

EXPECTED_S = 10.0  # of a run, before any is measured
PACK_EVERY = 10
CUDA_MEMORY = "peak_cuda_"  # prefix of the CUDA memory figures that an application reports itself
# In a separate process, so that ours holds no GPU memory. This also loads torch into the page
# cache, so that the first run does not read it from disk.
_TORCH_FACTS = """
import json, torch
names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": names}))
"""


@dataclass(frozen=True)
class Summary:
    """Result of a campaign: runs measured now, on record in total, and planned."""

    measured: int
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
    """Measure what is missing in ``work`` within the budget, and pack it.

    Parameters
    ----------
    inputs : Path
        Folder written by `voxcast.campaigns.gpu.prepared_inputs.prepare`.
    work : Path
        Gets a folder ``runs`` of run folders; created if missing. Runs in it are not repeated.
    archive : Path
        The ``.tar.gz`` of the work folder, brought up to date every few runs.
    cpus : int
        CPUs of every run, on either device.
    budget_s : float
        No run is started after this time, and a run that is still going is stopped unrecorded.
    time_limit_s : float
        Of one run; reaching it is recorded.

    Raises
    ------
    RunError
        If none of the devices is available, torch or the inputs are missing, or another campaign
        writes to the folder.
    """
    prepared = read_inputs(inputs)
    lend_nvml(inputs)
    torch_facts = _torch_facts()
    available, notes = _available(devices, torch_facts["gpus"])
    facts = host_facts()
    if not facts.gpu_models:  # the driver's list is not shown in every container
        facts = dataclasses.replace(facts, gpu_models=tuple(torch_facts["gpus"]))
    settings = CampaignSettings(
        # Whether the GPU was used is decided by `settle`, by memory as well as by utilisation.
        apps={n: dataclasses.replace(a, verify_gpu=False) for n, a in prepared.apps.items()},
        runs=work / RUNS,
        configurations=tuple(
            Configuration(device, min(cpus, facts.cores), int(device == "gpu"))
            for device in available
        ),
        conditions=Conditions(time_limit_s),
        stop_after_s=budget_s,
        stop_running=True,
        repeat_noisy_s=0.0,
        host=facts,
    )
    settings.runs.mkdir(parents=True, exist_ok=True)
    plan = _plan(prepared, settings, facts)
    before = sum(_is_recorded(settings.runs / key) for key in plan.cells)
    try:
        missing = len(plan.cells) - before
        progress = run_campaign(settings, plan, on_record=_on_record(work, archive, missing))
        if progress.left:
            notes.append("the budget is used up; continue with --resume")
    finally:
        recorded = sum(_is_recorded(settings.runs / key) for key in plan.cells)
        summary = Summary(recorded - before, recorded, len(plan.cells), tuple(notes))
        write_json(work / SUMMARY_FILE, {**dataclasses.asdict(summary), "torch": torch_facts})
        pack(work, archive)
    return summary


def settle(run: Path) -> None:
    """Write into a record whether the GPU was used; a run on a GPU that was not used has failed.

    It was used if NVML saw it busy or, without NVML, if the application reports that it
    allocated memory on it. That report is also the peak where NVML gives none.
    """
    record = read_json(run / RECORD_FILE)
    profile = record["profile"]
    if record["cell"]["configuration"]["device"] != "gpu" or "gpu" in record:
        return
    cuda_bytes = _reported_cuda_bytes(run / "out")
    busy = (profile["gpu_utilisation"] or 0.0) > 0
    verified = "utilisation" if busy else "cuda_memory" if cuda_bytes else None
    method = "nvml" if profile["peak_gpu_bytes"] else "application" if cuda_bytes else None
    record["gpu"] = {"verified_by": verified, "memory_method": method, "own_bytes": cuda_bytes}
    if method == "application":
        profile["peak_gpu_bytes"] = cuda_bytes
    if verified is None and profile["outcome"] == "completed":
        profile["outcome"] = "failed"
    write_json(run / RECORD_FILE, record)


def _plan(prepared: Inputs, settings: CampaignSettings, facts: HostFacts) -> CampaignPlan:
    cells = {c.key: c for c in gpu_cells(prepared, settings.configurations, host_class(facts))}
    return CampaignPlan(
        cells=cells,
        paths={volume.volume_id: volume.path for volume in prepared.volumes},
        expected_s=dict.fromkeys(cells, EXPECTED_S),
        recipes={v.volume_id: v.recipe for v in prepared.volumes if v.recipe is not None},
    )


def _on_record(work: Path, archive: Path, missing: int) -> Callable[[Path], None]:
    """Return the callback that settles and logs each run, and packs every few runs."""
    count = 0

    def on_record(run: Path) -> None:
        nonlocal count
        count += 1
        settle(run)
        _, cell, profile = read_record(run)
        subject = cell.volume_id or cell.parameters.get("network", "")
        task = f"{cell.app} {subject}, {cell.configuration.label}"
        logger.info("%d of %d: %s: %.1f s", count, missing, task, profile.runtime_s)
        if count % PACK_EVERY == 0:
            pack(work, archive)

    return on_record


def _available(devices: Sequence[str], gpus: Sequence[str]) -> tuple[list[str], list[str]]:
    available = [device for device in devices if device == "cpu" or gpus]
    notes = [] if available == list(devices) else ["gpu: left out, torch finds no CUDA device"]
    if not available:
        raise RunError(f"none of {', '.join(devices)} is available", "--devices", notes[0])
    return available, notes


def _torch_facts() -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, "-P", "-c", _TORCH_FACTS], capture_output=True, text=True, check=False
    )
    if process.returncode:
        last_line = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"cannot use torch ({last_line})", sys.executable, "install torch")
    facts: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return facts


def _is_recorded(run: Path) -> bool:
    with contextlib.suppress(TableError):
        read_record(run)
        settle(run)  # the campaign may have been stopped just before
        return True
    return False


def _reported_cuda_bytes(out: Path) -> int:
    peaks = [0]
    for path in out.glob("*.json"):
        report = read_json(path)
        if isinstance(report, dict):
            peaks += [
                value
                for name, value in report.items()
                if name.startswith(CUDA_MEMORY) and isinstance(value, int)
            ]
    return max(peaks)
