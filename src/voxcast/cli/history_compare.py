"""CPU against GPU, by application and phase, for ``voxcast history compare``."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.allocation.site import Prices
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.analysis.devices import DeviceComparison

SMALLEST_GAINS = 3  # listed for each comparison


def compare_runs(
    histories: Sequence[Path],
    usd_per_core_hour: float | None,
    usd_per_gpu_hour: float | None,
    project: Path | None,
    *,
    as_json: bool,
) -> int:
    """Print the comparison, or the device that has no runs."""
    options_usd = {
        "usd_per_core_hour": usd_per_core_hour, "usd_per_gpu_hour": usd_per_gpu_hour,
    }  # fmt: skip
    usd = {name: price for name, price in options_usd.items() if price is not None}
    from voxcast.analysis.devices import compare_devices, devices_without_runs
    from voxcast.analysis.runs_on_record import runs_on_record
    from voxcast.report.wording import missing_devices

    if histories:
        runs, phases = runs_on_record(histories)
    else:
        root = projects.require(project)
        folders = [root / "data" / "history", root / "data" / "runs"]
        runs, phases = runs_on_record(folders, named=False)
    prices = Prices(**usd)
    missing = missing_devices(devices_without_runs(runs))
    comparisons = [] if missing else compare_devices(runs, phases, prices)
    if as_json:
        rows = [_json(comparison) for comparison in comparisons]
        content = {"runs": len(runs), "missing": missing, "prices": vars(prices)}
        print(json.dumps({**content, "comparisons": rows}, indent=2, allow_nan=False))
        return 0
    if missing or not comparisons:
        print(missing or "no task was run on both devices")
        return 0
    for comparison in comparisons:
        print(_text(comparison))
    print(
        f"voxcast: {len(runs)} runs on record; {prices.usd_per_core_hour:g} USD per core-hour, "
        f"{prices.usd_per_gpu_hour:g} USD per GPU-hour; intervals: 95 %, Student's t by subject",
        file=sys.stderr,
    )
    return 0


def _text(comparison: DeviceComparison) -> str:
    from voxcast.quantities import counted
    from voxcast.report.wording import (
        amount,
        device_label,
        device_machines,
        percent,
        smallest_gains,
    )

    pairs, speedup = comparison.pairs, comparison.speedup
    cv, memory, usd = comparison.cv_percent, comparison.memory_bytes, comparison.usd
    interval = f"{speedup.low:.3g} to {speedup.high:.3g}" if speedup.bounded else "no interval"
    lines = [
        f"{device_label(comparison)}: {speedup.value:.3g}× on the GPU "
        f"({interval}; {counted(len(pairs), 'pair')})",
        f"  on {device_machines(comparison)}",
        f"  median {format_seconds(pairs['cpu_s'].median())} on the CPU, "
        f"{format_seconds(pairs['gpu_s'].median())} on the GPU",
        f"  CV of repeats {percent(cv[0])} on the CPU, {percent(cv[1])} on the GPU",
        f"  memory {amount('peak_rss_bytes', memory[0])}, "
        f"GPU memory {amount('peak_gpu_bytes', memory[1])}",
        f"  {1000 * usd[0]:.2g} USD per 1000 runs on the CPU, {1000 * usd[1]:.2g} USD on the GPU",
        f"  smallest speed-up: {'; '.join(smallest_gains(comparison, SMALLEST_GAINS))}",
    ]
    return "\n".join(lines)


def _json(comparison: DeviceComparison) -> dict[str, Any]:
    def finite(value: float) -> float | None:
        return float(value) if math.isfinite(value) else None

    return {
        "app": comparison.app,
        "phase": comparison.phase or None,
        "scale": comparison.scale,
        "cpus": comparison.cpus,
        "gpu_cpus": comparison.gpu_cpus,
        "gpus": comparison.gpus,
        "hosts": list(comparison.hosts),
        "pairs": len(comparison.pairs),
        "speedup": comparison.speedup.value,
        "speedup_low": finite(comparison.speedup.low),
        "speedup_high": finite(comparison.speedup.high),
        "cv_percent": [finite(v) for v in comparison.cv_percent],
        "memory_bytes": [finite(v) for v in comparison.memory_bytes],
        "usd": list(comparison.usd),
        "least": comparison.pairs.head(SMALLEST_GAINS).to_dict("records"),
    }
