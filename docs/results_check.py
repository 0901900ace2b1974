"""Say which published results are older than the code and the data that they come from.

``make results-check`` compares, by the history of git, the commit that last changed each file in
``published/`` with the commits that changed what its stage in ``dvc.yaml`` depends on. Results of
no stage, such as those of benchmarks, are listed with the command of their page.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[1]
GRAPHS = ("dvc.yaml", "pipelines/dvc.yaml")


def stages(project: Path) -> dict[str, list[str]]:
    """Return the dependencies that git tracks, by what a stage writes in ``results/``."""
    by_output: dict[str, list[str]] = {}
    for graph in GRAPHS:
        content = yaml.safe_load((project / graph).read_text(encoding="utf-8"))
        for stage in content["stages"].values():
            for cell in _cells(stage):
                wanted = [_filled(dep, cell) for dep in _paths(stage.get("deps", []))]
                tracked = [dep for dep in wanted if not dep.startswith(("results", "build"))]
                for output in (_filled(out, cell) for out in _paths(_outputs(stage))):
                    if output.startswith("results/"):
                        by_output[output.removeprefix("results/")] = tracked
    return by_output


def _cells(stage: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of a stage's matrix; one empty cell without."""
    matrix = stage.get("matrix", {})
    return [dict(zip(matrix, row, strict=True)) for row in itertools.product(*matrix.values())]


def _outputs(stage: dict[str, Any]) -> list[Any]:
    return [*stage.get("outs", []), *stage.get("metrics", []), *stage.get("plots", [])]


def _paths(entries: list[Any]) -> list[str]:
    return [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]


def _filled(path: str, cell: dict[str, Any]) -> str:
    for name, value in cell.items():
        path = path.replace(f"${{item.{name}}}", str(value))
    return path


def commits_since(project: Path, published: str, paths: list[str]) -> list[str]:
    """Return the commits, one line each, that changed paths after a published file was changed."""
    commit = _git(project, "log", "-1", "--format=%H", "--", published)
    return _git(
        project, "log", "--oneline", "--no-merges", f"{commit}..HEAD", "--", *paths
    ).splitlines()


def _git(project: Path, *words: str) -> str:
    command = ["git", "-C", str(project), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Print a line for each published file that a stage writes and that is older."""
    by_output = stages(PROJECT)
    older, current, others = [], 0, []
    for path in sorted(path for path in (PROJECT / "published").rglob("*") if path.is_file()):
        name = path.relative_to(PROJECT / "published").as_posix()
        output = next((out for out in by_output if f"{name}/".startswith(f"{out}/")), None)
        if output is None:
            others.append(name)
        elif commits := commits_since(PROJECT, f"published/{name}", by_output[output]):
            older.append(f"{name}: {len(commits)} commits since, the last {commits[0]}")
        else:
            current += 1
    print("\n".join(older) or "no result of a stage is older than what it depends on")
    print(f"{current} are current; of no stage: {', '.join(others)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
