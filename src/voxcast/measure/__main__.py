"""``python -m voxcast.measure CELLS OUT``: measure cells on a borrowed machine.

The machine needs a Python with NumPy, the sources of voxcast (``PYTHONPATH=src``), the
requirements of the applications, and the files that `prepare_cells` wrote: a list of cells and,
beside it, their volumes. Runs are recorded in OUT, one folder each, to be copied back. The same
command continues after an interruption.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from voxcast.apps.launch import app_version, choose
from voxcast.errors import RunError, exits_cleanly
from voxcast.files import read_json, sha256_file, write_json
from voxcast.measure.campaign import run_campaign
from voxcast.measure.host import HostFacts, host_class, host_facts
from voxcast.measure.plan import CampaignPlan, CampaignSettings
from voxcast.measure.trace import Conditions
from voxcast.records import App, Cell, as_fields, of_fields

EXPECTED_S = 10.0  # of a run, before any is measured
# In a separate process, so that ours holds no GPU memory.
_TORCH_GPUS = """
import json, torch
print(json.dumps([torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]))
"""

logger = logging.getLogger(__name__)


def prepare_cells(
    path: Path,
    cells: Sequence[Cell],
    apps: Mapping[str, App],
    volumes: Mapping[str, Path],
    recipes: Mapping[str, Any] | None = None,
) -> None:
    """Write ``cells`` for another machine to ``path``, and their volumes beside it.

    Their host class and application version are completed on that machine.
    """
    files = {}
    for volume_id in dict.fromkeys(cell.volume_id for cell in cells if cell.volume_id):
        source = volumes[volume_id]
        target = path.parent / "volumes" / volume_id / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        name = target.relative_to(path.parent).as_posix()
        files[volume_id] = {"file": name, "sha256": sha256_file(target)}
    used = {cell.app: as_fields(apps[cell.app]) for cell in cells}
    content = {"cells": list(map(as_fields, cells)), "apps": used, "volumes": files}
    made = {volume_id: (recipes or {}).get(volume_id) for volume_id in files}
    write_json(path, {**content, "recipes": made})


def read_cells(path: Path, facts: HostFacts) -> tuple[CampaignPlan, dict[str, App]]:
    """Return the plan for this machine, and the applications, that `prepare_cells` wrote.

    Raises
    ------
    RunError
        If the file is missing or damaged, a volume is not the one that was prepared, or an
        application lacks a package here.
    """
    try:
        content = read_json(path)
        apps = {name: of_fields(App, fields) for name, fields in content["apps"].items()}
        planned = [of_fields(Cell, fields) for fields in content["cells"]]
        volumes = {v: path.parent / entry["file"] for v, entry in content["volumes"].items()}
        hashes = {v: entry["sha256"] for v, entry in content["volumes"].items()}
        changed = [file for v, file in volumes.items() if sha256_file(file) != hashes[v]]
        recipes = {v: recipe for v, recipe in content["recipes"].items() if recipe}
    except FileNotFoundError as error:
        raise RunError("no such file", error.filename, "prepare the cells first") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"is broken ({error!r})", path, "prepare it again") from None
    if changed:
        raise RunError("is not the volume that was prepared", changed[0], "copy it again")
    notes, cells = [], {}
    for cell in planned:
        configuration = cell.configuration
        if configuration.gpus > len(facts.gpu_models):
            notes.append(f"{configuration.label}: left out, no such GPU is found here")
            continue
        version = app_version(choose(apps, cell.app), configuration)
        cell = dataclasses.replace(cell, app_version=version, host_class=host_class(facts))
        cells[cell.key] = cell
    plan = CampaignPlan(
        cells, volumes, dict.fromkeys(cells, EXPECTED_S), [], recipes, list(dict.fromkeys(notes))
    )
    return plan, apps


def machine() -> HostFacts:
    """Return the facts of this machine, with its GPUs by torch where the driver lists none."""
    facts = host_facts()
    if not facts.gpu_models:  # not shown in every container
        command = [sys.executable, "-P", "-c", _TORCH_GPUS]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode == 0:
            names = tuple(json.loads(process.stdout.splitlines()[-1]))
            facts = dataclasses.replace(facts, gpu_models=names)
    return facts


@exits_cleanly
def main(argv: Sequence[str] | None = None) -> int:
    """Measure the cells that have no record in the folder yet."""
    parser = argparse.ArgumentParser(
        prog="python -m voxcast.measure", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("cells", type=Path, help="list of cells, with its volumes beside it")
    parser.add_argument("out", type=Path, help="folder that gets one folder per run")
    parser.add_argument("--stop-after", type=float, metavar="S", help="stop after S seconds")
    parser.add_argument("--time-limit", type=float, metavar="S", help="of one run, in seconds")
    args = parser.parse_args(argv)
    facts = machine()
    plan, apps = read_cells(args.cells, facts)
    for note in plan.notes:
        logger.info(note)
    settings = CampaignSettings(
        apps, args.out, conditions=Conditions(args.time_limit), stop_after_s=args.stop_after,
        stop_running=True, repeat_noisy_s=0.0, host=facts,
    )  # fmt: skip
    progress = run_campaign(settings, plan)
    print(f"{len(progress.runs)} runs measured, {progress.left} left of {len(plan.cells)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
