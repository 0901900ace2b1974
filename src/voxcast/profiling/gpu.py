"""The GPUs of this machine, as its driver lists them."""

from __future__ import annotations

from pathlib import Path

NVIDIA = Path("/proc/driver/nvidia/gpus")


def gpu_models(folder: Path = NVIDIA) -> tuple[str, ...]:
    """Return the model of each NVIDIA GPU, by bus address; empty without a driver."""
    models = []
    for information in sorted(folder.glob("*/information")):
        lines = information.read_text(encoding="utf-8", errors="replace").splitlines()
        models += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return tuple(models)
