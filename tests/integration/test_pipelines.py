"""Every stage script can be started, the seldom ones too, and interrupted at any moment."""

import importlib.util
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
SCRIPTS = sorted((PROJECT / "pipelines").glob("*.py"))
GRAPH = yaml.safe_load((PROJECT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
STAGE_SCRIPTS = sorted({PROJECT / stage["cmd"].split()[1] for stage in GRAPH.values()})
# Runs a script and interrupts it at its first import that takes time.
INTERRUPTED = """
import builtins, os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by tests in the background
plain = builtins.__import__
def interrupted(name, names=None, *rest, **keywords):
    first = name in ("__future__", "voxcast.interruptions")
    if (names or {}).get("__file__") == sys.argv[1] and not first:
        os.kill(os.getpid(), signal.SIGINT)
    return plain(name, names, *rest, **keywords)
builtins.__import__ = interrupted
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.fixture(autouse=True)
def interruptions() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_imports_existing_names(script: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"stage_{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert callable(module.main)


@pytest.mark.parametrize("script", STAGE_SCRIPTS, ids=lambda path: path.stem)
def test_an_interruption_of_the_imports_of_a_stage_is_quiet(script: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, script], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == ""
