"""Every command of README.md and docs/ is run, or carries the reason why it is not."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pandas as pd
import pytest
import uvicorn
import yaml

from model_server import free_port, running_server
from page_blocks import BLOCK, COMMANDS, PAGES, PROJECT, Block, blocks_of, shell_environment
from voxcast.cli import main
from voxcast.serving.model_store import ModelStore
from voxcast.web.application import application
from voxcast.web.server import Settings

LIMIT_S = 120.0
PORT = "5001"  # in the pages; a free one is taken instead
OWN_APPLICATION = next(page for page in PAGES if page.name == "own-data.md")
HTTP_PAGE = PROJECT / "docs/service.md"
HTTP_MARK = "not tested: needs a service; a test of the documentation runs it"
SHOWN_ADDRESS = f"127.0.0.1:{PORT}"
# A command of ours with nothing for a shell to do: no variables, pipes or redirections.
PLAIN = re.compile(r"voxcast [^$|<>&;`\\]*")
RUN = [page for page in PAGES
       if page != OWN_APPLICATION and any(block.runs for block in blocks_of(page))]  # fmt: skip


COMPLETED: set[str] = set()  # commands that an earlier page has run in the same project


def run(block: Block, project: Path, port: str) -> None:
    script = block.commands().replace(PORT, port)
    lines = [line for line in script.splitlines() if line.strip()]
    if block.mark == "test: run" and all(map(PLAIN.fullmatch, lines)):
        for line in lines:
            if line not in COMPLETED:
                run_here(line, f"{block.page}:{block.line}", project)
            COMPLETED.add(line)
    else:
        run_in_a_shell(block, script, project)


def run_here(line: str, where: str, project: Path) -> None:
    """Run a plain command in this process, which has the libraries loaded."""
    arguments = shlex.split(line, comments=True)[1:]
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        for name in set(os.environ) - set(shell_environment()):
            patch.delenv(name)
        for name, value in shell_environment().items():
            patch.setenv(name, value)
        patch.chdir(project)
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code or 0
    assert code == 0, f"{where}\n{line}\n{output.getvalue()}"


def run_in_a_shell(block: Block, script: str, project: Path) -> None:
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=project, env=shell_environment(), capture_output=True, text=True, check=False,
        timeout=LIMIT_S,
    )  # fmt: skip
    where = f"{block.page}:{block.line}"
    assert ended.returncode == 0, f"{where}\n{script}\n{ended.stdout}\n{ended.stderr}"
    if block.mark == "test: output":
        assert ended.stdout.splitlines() == block.output(), where


@contextlib.contextmanager
def served(block: Block, project: Path, port: str) -> Iterator[None]:
    script = f"exec {block.commands().replace(PORT, port).strip()}"
    command = ["bash", "-c", script]
    with running_server(command, int(port), project, shell_environment(), LIMIT_S):
        yield


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_block_of_commands_is_run_or_says_why_not(page: Path) -> None:
    for block in blocks_of(page):
        if block.language in COMMANDS:
            stated = block.runs or block.mark.startswith("not tested: ")
            assert stated, f"{block.page}:{block.line}: a block of commands without a mark"
        else:
            assert not block.runs, f"{block.page}:{block.line}: {block.language} cannot be run"


def run_page(page: Path, project: Path) -> None:
    port = str(free_port())
    with contextlib.ExitStack() as servers:
        for block in blocks_of(page):
            if block.mark.startswith("test: file "):
                target = project / block.mark.removeprefix("test: file ")
                target.write_text(block.text, encoding="utf-8")
            elif block.mark == "test: server":
                servers.enter_context(served(block, project, port))
            elif block.runs:
                run(block, project, port)


@pytest.mark.usefixtures("few_families")
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_commands_of_a_page_work(page: Path, documented_project: Path) -> None:
    run_page(page, documented_project)


def test_the_plots_of_the_graph_have_their_fields(documented_project: Path) -> None:
    ended = subprocess.run(
        ["dvc", "plots", "show", "--json"],
        cwd=documented_project, env=shell_environment(), capture_output=True, text=True,
        check=True, timeout=LIMIT_S,
    )  # fmt: skip
    drawn = json.loads(ended.stdout)
    assert not drawn.get("errors"), drawn["errors"]
    declared = yaml.safe_load((documented_project / "dvc.yaml").read_text())["plots"]
    plots = {name for plot in declared for name in plot}
    assert set(drawn["data"]) == {*plots, "results/evaluate/predictions.csv"}
    for (plot,) in drawn["data"].values():
        x, y, column = (
            plot["content"]["encoding"][axis]["field"] for axis in ("x", "y", "column")
        )
        for point in plot["content"]["data"]["values"]:
            assert float(point[x]) > 0
            assert point[y]
            assert point[column]


def test_a_user_application_is_measured_with_its_phases(documented_project: Path) -> None:
    run_page(OWN_APPLICATION, documented_project)
    parts = sorted((documented_project / "data/history/learn").glob("*/runs.parquet"))
    runs = pd.concat(map(pd.read_parquet, parts))
    phases = pd.concat(pd.read_parquet(part.with_name("phases.parquet")) for part in parts)
    assert set(runs["app"]) == {"recon_all"}
    assert (runs["outcome"] == "completed").all()
    assert set(runs["app_version"]) == {"7.4.1-20230614"}
    described = yaml.safe_load((documented_project / "conf/app/recon_all.yaml").read_text())
    expected = set(described["recon_all"]["phase_patterns"])
    for _, of_run in phases.groupby("cell_key"):
        assert expected <= set(of_run["phase"])


@pytest.fixture(scope="module")
def address(documented_project: Path) -> Iterator[str]:
    """The address of a service in a thread of this process."""
    port = free_port()
    app = application(Settings(ModelStore.of(documented_project), documented_project))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.05)
    yield f"127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.mark.skipif(which("curl") is None or which("jq") is None, reason="needs curl and jq")
def test_each_http_command_answers_as_the_page_shows(address: str, tmp_path: Path) -> None:
    text = HTTP_PAGE.read_text(encoding="utf-8")
    marked = [block["text"] for block in BLOCK.finditer(text) if block["mark"] == HTTP_MARK]
    assert len(marked) >= 4
    for block in marked:
        for command, printed in commands_shown(block):
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command.replace(SHOWN_ADDRESS, address)],
                cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
            if printed:
                answer, expected = (json.loads(text) for text in (ended.stdout, printed))
                assert shape_of(answer) == shape_of(expected), command


def commands_shown(block: str) -> Iterator[tuple[str, str]]:
    """Yield commands with what the page shows as their output; a script is one command."""
    if not block.startswith("$ "):
        yield block, ""
        return
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed.strip()


def shape_of(content: object) -> object:
    """Return the names and the kinds of values of a JSON document, whose numbers may differ."""
    if isinstance(content, dict):
        return {name: shape_of(value) for name, value in content.items()}
    if isinstance(content, list):
        return [shape_of(content[0])] if content else []
    return "number" if isinstance(content, int | float) else type(content).__name__
