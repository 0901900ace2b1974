"""Campaigns of applications that are a few words of a shell."""

from pathlib import Path
from typing import Any

import yaml


def write_campaign(
    project: Path, name: str, script: str, words: list[str], sweeps: dict[str, Any], **app: Any
) -> None:
    """Describe an application of a shell, which reads no image, and a campaign of it."""
    described = {
        "version": "1", "input": "none", "argv": ["bash", "-c", script, *words],
        "expected_startup_s": 0.1, "expected_s_per_mvoxel": 0.0, **app,
    }  # fmt: skip
    composed = {"defaults": [f"_base@{name}", "_self_"], name: described}
    (project / f"conf/app/{name}.yaml").write_text(yaml.safe_dump(composed))
    campaign = {
        "defaults": ["_base", *(f"_sweep@sweeps.{sweep}" for sweep in sweeps), "_self_",
                     {"override /app@_global_.app": [name]},
                     {"override /device@_global_.device": ["cpu"]},
                     {"override /images@_global_.images": "one"}],
        "name": name, "seed": 1, "metronome": False, "sweeps": sweeps,
    }  # fmt: skip
    (project / f"conf/campaign/{name}.yaml").write_text(yaml.safe_dump(campaign))
