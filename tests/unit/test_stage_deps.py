"""Every stage of the DVC graphs depends on the code that it runs.

The static import closure of a stage script (imports inside functions included) must lie within the
dependencies of the stage, so that `dvc repro` says "up to date" only where it is true.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src"
GRAPHS = ("dvc.yaml", "pipelines/dvc.yaml")
# Code that a stage may use without depending on it, and the reason.
IGNORED = {
    "src/voxcast/__init__.py": "the version only",
    "src/voxcast/commits.py": "provenance, not the result",
    "src/voxcast/errors.py": "messages of failures, after which a stage has no result",
    "src/voxcast/interruptions.py": "how a stage is ended",
    "src/voxcast/log.py": "messages on stderr",
    "src/voxcast/files.py": "atomic writes; the content is the caller's",
    "src/voxcast/content_cache.py": "gives back what the same inputs gave before",
    "src/voxcast/quantities.py": "parses and formats units",
    "src/voxcast/refusals.py": "words of refusals, after which a stage has no result",
    "src/voxcast/records.py": "fields, and keys that a golden file holds unchanged",
    # A study prepares images of a recorded campaign by it; they are checked against the record.
    "src/voxcast/config": "its result is params.yaml, on which stages depend by value",
}


def stages() -> Iterator[tuple[str, Path, list[str]]]:
    """Yield name, script and dependencies (relative to the project) of every stage."""
    for graph in GRAPHS:
        for name, stage in yaml.safe_load((PROJECT / graph).read_text())["stages"].items():
            folder = (PROJECT / graph).parent / stage.get("wdir", ".")
            assert folder.resolve() == PROJECT
            yield name, PROJECT / stage["cmd"].split()[1], stage["deps"]


STAGES = list(stages())


def within(path: str, folders: Iterator[str] | list[str] | dict[str, str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


@functools.cache
def imported_names(path: Path) -> set[str]:
    """Return the names of all imports, apart from those for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    unused = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        for node in ast.walk(statement)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in unused:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.split(".")[0] in ("voxcast", "voxcast_apps")}


@functools.cache
def module_files(name: str, beside: Path) -> list[Path]:
    """Return the file of a module and those of the packages around it that hold code.

    A script may import other files of its folder, ``beside``.
    """
    parts, files = name.split("."), []
    if (neighbour := beside / f"{parts[0]}.py").is_file():
        files.append(neighbour)
    for length in range(1, len(parts) + 1):
        path = SOURCE.joinpath(*parts[:length])
        if path.with_suffix(".py").is_file():
            files.append(path.with_suffix(".py"))
        elif (path / "__init__.py").is_file():
            package = path / "__init__.py"
            if len(ast.parse(package.read_text(encoding="utf-8")).body) > 1:
                files.append(package)
    return files


@functools.cache
def import_closure(script: Path) -> set[str]:
    """Return all files that a script may import; ignored ones are not followed."""
    closure: set[str] = set()
    waiting = [script]
    while waiting:
        for name in imported_names(waiting.pop()):
            for path in module_files(name, script.parent):
                relative = str(path.relative_to(PROJECT))
                if relative not in closure and not within(relative, IGNORED):
                    closure.add(relative)
                    waiting.append(path)
    return closure


@pytest.mark.parametrize(("name", "script", "deps"), STAGES, ids=[name for name, _, _ in STAGES])
def test_a_stage_depends_on_the_code_that_it_runs(
    name: str, script: Path, deps: list[str]
) -> None:
    assert within(str(script.relative_to(PROJECT)), deps)
    missing = sorted(path for path in import_closure(script) if not within(path, deps))
    assert not missing, f"stage {name} lacks deps"


@pytest.mark.parametrize(("name", "script", "deps"), STAGES, ids=[name for name, _, _ in STAGES])
def test_a_stage_depends_on_no_code_that_it_does_not_run(
    name: str, script: Path, deps: list[str]
) -> None:
    closure = import_closure(script)
    # Applications are started as processes, which imports do not show.
    code = [dep for dep in deps if dep.startswith("src/") and dep != "src/voxcast_apps"]
    unused = [dep for dep in code if not any(within(path, [dep]) for path in closure)]
    assert not unused, f"stage {name} would run again for nothing"


def test_ignored_code_exists() -> None:
    for path in IGNORED:
        assert (PROJECT / path).exists(), path
