"""Imports go down the floors, sideways only inside a room; the command line stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "voxcast"
FLOORS = {
    "log": 0, "errors": 0, "project": 0, "quantities": 0, "files": 0, "records": 0,
    "text_table": 0, "commits": 0, "content_cache": 0,
    "images": 1, "laws": 1, "apps": 1,
    "history": 2,
    "profiling": 3, "features": 3, "phases": 3, "allocation": 3,
    "models": 4, "campaigns": 4,
    "serving": 5, "jobs": 5,
    "hpc": 6,
    "audit": 6, "tracking": 6, "studies": 6, "analysis": 6,
    "report": 7, "config": 7,
    "web": 8,
    "cli": 9,
}  # fmt: skip
# Sideways between rooms of one floor, each for a reason.
SIDEWAYS = {
    ("studies", "hpc"),  # workers of a search give signs of life as those of a pool
    ("errors", "errors"),
    ("errors", "log"),  # an entry point sets up where messages go
    ("quantities", "errors"),  # a wrong unit is the user's error
    ("project", "errors"),
    ("campaigns", "models"),  # which runs to make next depends on what a model is unsure of
    *(("content_cache", other) for other in ("errors", "files", "quantities")),
    ("records", "files"),  # a cell's key is the hash of its content
}
MLFLOW_ROOMS = {"tracking", "serving"}
MODULES = sorted(SOURCE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules.add(node.module or "")
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def room(name: str) -> str:
    return name.split(".")[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_only_point_to_lower_floors(path: Path) -> None:
    relative = path.relative_to(SOURCE)
    package = relative.parts[0].removesuffix(".py")
    if package == "__init__":
        return  # it imports when it is used, see below
    for name in imports(path):
        if not name.startswith("voxcast.") or room(name) == "__version__":
            continue
        other = room(name)
        if package != other and (package, other) not in SIDEWAYS:
            assert FLOORS[other] < FLOORS[package], f"{relative} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_mlflow_lives_in_tracking_and_serving(path: Path) -> None:
    package = path.relative_to(SOURCE).parts[0]
    if package not in MLFLOW_ROOMS:
        assert not {n for n in imports(path) if n.split(".")[0] == "mlflow"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_is_unpickled_and_no_shell_is_started(path: Path) -> None:
    text = path.read_text()
    assert not imports(path) & {"pickle", "cloudpickle", "joblib", "dill", "marshal"}
    assert "shell=True" not in text
    assert "os.system" not in text
    assert "allow_pickle=True" not in text


def test_a_module_is_small() -> None:
    long = {str(p.relative_to(SOURCE)): n for p in MODULES
            if (n := len(p.read_text().splitlines())) > 700}  # fmt: skip
    assert not long
    assert not {p.name for p in MODULES} & {"utils.py", "helpers.py", "common.py", "misc.py"}


def test_the_package_alone_imports_nothing_of_it() -> None:
    code = "import sys, voxcast; assert not [n for n in sys.modules if n.startswith('voxcast.')]"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from voxcast.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'mlflow', 'pandas', 'numpy', 'sklearn', 'ants'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
