"""Commands as users give them: in processes of their own, or in this one where that is faster."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from voxcast.cli import main

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a user: the programs of this interpreter, and our package."""
    strange = ("MLFLOW_", "GIT_", "VOXCAST_P")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(strange)}
    return {
        **kept,
        "PATH": f"{BIN}{os.pathsep}{kept['PATH']}",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{kept.get('PYTHONPATH', '')}".rstrip(os.pathsep),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "DVC_NO_ANALYTICS": "true",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "t",
        "GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "t@t",
        **more,
    }  # fmt: skip


def run(
    folder: Path, *command: object, codes: tuple[int, ...] = (0,), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, as a user does."""
    ended = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment(**variables),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode in codes, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended


@dataclass(frozen=True)
class Answer:
    """What a call of the command line printed."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def called(*words: object) -> int:
    """Call the command line in this process, and let its errors through."""
    code: int = main.__wrapped__([str(word) for word in words])
    return code


def ended(
    main: Callable[[], object], cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Call an entry point in this process; return what a process of its own would end with."""
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(err):
        for name in ("VOXCAST_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        with contextlib.redirect_stdout(out):
            try:
                code = main()
            except SystemExit as end:
                code = end.code
    for number, handler in handlers.items():
        signal.signal(number, handler)
    status = code if isinstance(code, int) else int(code is not None)
    return subprocess.CompletedProcess([], status, out.getvalue(), err.getvalue())


def attempt(
    *words: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Call the command line in this process, whatever its exit code is."""
    return ended(lambda: main([str(word) for word in words]), cwd, **variables)


def refusal(*words: object, cwd: Path, **variables: str) -> str:
    """Return the one line by which the command line refuses, without its prefix."""
    completed = attempt(*words, cwd=cwd, **variables)
    assert (completed.returncode, completed.stdout) == (2, ""), completed
    (line,) = completed.stderr.splitlines()
    assert line.startswith("voxcast: ")
    return line.removeprefix("voxcast: ")


def call(main: Callable[[], object], *, project: Path | None = None, code: int = 0) -> Answer:
    """Call an entry point in this process, in the folder of a project if there is one."""
    completed = ended(main, project)
    assert completed.returncode == code, f"{completed.stdout}\n{completed.stderr}"
    return Answer(completed.stdout, completed.stderr)


def voxcast(*words: object, project: Path | None = None, code: int = 0) -> Answer:
    """Call the command line in this process, in the folder of a project if there is one."""
    return call(lambda: main([str(word) for word in words]), project=project, code=code)


def clone(folder: Path, wanted: Callable[[pd.DataFrame], pd.DataFrame] | None = None) -> Path:
    """Copy what git tracks, and what is new, into a repository of its own.

    ``wanted`` chooses the recorded runs that stay, of the reference campaign alone.
    """
    names = run(ROOT, "git", "ls-files", "-co", "--exclude-standard").stdout.splitlines()
    for name in names:
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    if wanted is not None:
        for campaign in (folder / "data/history").glob("*/"):
            if campaign.name != "reference":
                shutil.rmtree(campaign)
        for part in sorted((folder / "data/history").glob("*/*/runs.parquet")):
            wanted(pd.read_parquet(part)).to_parquet(part)
    run(folder, "git", "init", "-q")
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-qm", "clone")
    return folder
