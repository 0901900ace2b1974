"""Rules of the source that ruff does not know; imports between rooms are in pyproject.toml."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
MODULES = sorted(SOURCE.rglob("*.py"))
MAX_LINES = 700
UNPICKLING = {"pickle", "cloudpickle", "joblib", "dill", "marshal"}
FORBIDDEN_TEXTS = ("shell=True", "os.system", "allow_pickle=True")
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "misc.py"}


def test_modules_are_short_unpickle_nothing_and_start_no_shell() -> None:
    wrong = []
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        imported = {
            name.split(".")[0]
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None) or "", *(a.name for a in node.names)]
        }
        if len(text.splitlines()) > MAX_LINES:
            wrong.append(f"{path}: more than {MAX_LINES} lines")
        if path.name in FORBIDDEN_NAMES:
            wrong.append(f"{path}: says nothing of its content")
        wrong += [f"{path}: imports {name}" for name in imported & UNPICKLING]
        wrong += [f"{path}: {found}" for found in FORBIDDEN_TEXTS if found in text]
    assert not wrong


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
