"""The commands of docs/http-recommendations.md, run by a shell against a service on a socket."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
import uvicorn

from model_server import free_port
from page_blocks import BLOCK, PROJECT
from voxcast.serving.model_store import ModelStore
from voxcast.web.application import application
from voxcast.web.settings import Settings

PAGE = PROJECT / "docs/http-recommendations.md"
MARK = "not tested: needs a service; tests/system/docs/test_http_commands.py runs it"
ADDRESS = "127.0.0.1:5001"
pytestmark = pytest.mark.skipif(
    which("curl") is None or which("jq") is None, reason="needs curl and jq"
)


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


def test_each_command_answers_as_the_page_shows(address: str, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    marked = [block["text"] for block in BLOCK.finditer(text) if block["mark"] == MARK]
    assert len(marked) >= 4
    for block in marked:
        for command, printed in _commands(block):
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command.replace(ADDRESS, address)],
                cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
            if printed:
                answer, expected = (json.loads(text) for text in (ended.stdout, printed))
                assert _shape(answer) == _shape(expected), command


def _commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield commands with what the page shows as their output; a script is one command."""
    if not block.startswith("$ "):
        yield block, ""
        return
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed.strip()


def _shape(content: object) -> object:
    """Return the names and the kinds of values of a JSON document, whose numbers may differ."""
    if isinstance(content, dict):
        return {name: _shape(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_shape(content[0])] if content else []
    return "number" if isinstance(content, int | float) else type(content).__name__
