"""A virtual environment that holds the wheel and chosen dependencies, and nothing else."""

import contextlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(dependencies: list[str]) -> set[str]:
    """Return the names of ``dependencies`` and of all that those need, with the extras named."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(text) for text in dependencies]
    while waiting:
        requirement = waiting.pop()
        name, extras = normalised(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        for text in importlib.metadata.requires(name) or []:
            needed = Requirement(text)
            wanted = needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in {"", *extras}
            )
            if wanted:
                waiting.append(needed)
    return {name for name, _ in seen}


def wheel_environment(folder: Path, dependencies: list[str]) -> Path:
    """Build the wheel and install it in a new environment in ``folder``; return that."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(PROJECT)]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = folder.glob("voxcast-*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    # The installed dependencies stand in for a download of several hundred megabytes.
    for name in required(dependencies):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            distribution = importlib.metadata.distribution(name)
            for top in {path.parts[0] for path in distribution.files or []}:
                link, source = packages / top, Path(str(distribution.locate_file(top)))
                if top not in ("..", "__pycache__") and not link.exists():
                    link.symlink_to(source.resolve())
    install = ["--python", str(venv / "bin" / "python"), "install", "--no-deps", str(wheel)]
    subprocess.run([*pip, *install], check=True)
    return venv
