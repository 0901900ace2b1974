"""A real browser at the page of a real service: its requests, and its complaints."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Playwright

from champions import write_champion
from model_server import free_port, running_server
from recorded_jobs import PREDICTION, job_row
from small_head import write_head
from voxcast.runs.store import add_part
from voxcast.runs.table import frame_of

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium")
NEEDS_CHROMIUM = [
    pytest.mark.chromium,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
ANSWER_MS = 20_000
IMAGE = "sub-01_T1w.nii.gz"
WIDE, PHONE = (1360, 900), (360, 740)


def write_project(folder: Path) -> None:
    """Write a project: a priced cluster, a champion of two applications, jobs, an image."""
    shutil.copy2(ROOT / "params.yaml", folder)
    shutil.copytree(ROOT / "conf", folder / "conf")
    site = folder / "conf" / "submit.yaml"
    site.write_text(site.read_text().replace("cluster: local", "cluster: osc"))
    write_jobs(folder / "data" / "history" / "2026-06-30-submit-1")
    write_champion(folder, 40, "register", "segment")
    (folder / "scans").mkdir()
    write_head(folder / "scans" / IMAGE, spacing_mm=2.5, edge=80)


def write_jobs(folder: Path) -> None:
    """Write jobs of six months, which become slower until some exceed their bounds."""
    random = np.random.default_rng(5)
    jobs = []
    for month in range(1, 7):
        for n in range(24):
            size, started_at = float(random.lognormal(0, 0.5)), f"2026-{month:02}-{n + 1:02}T08:00"
            scaled = {k: size * v for k, v in PREDICTION.items() if k != "confidence"}
            labels = {**PREDICTION, **scaled, "submission": f"s{month}", "task": f"t{n}"}
            runtime_s = 10.0 * size * float(random.lognormal(0.05 * month, 0.15))
            jobs.append(
                job_row(
                    n, f"{started_at}:00+00:00", runtime_s, cpus=1 + n % 2, limit_s=20 * size,
                    peak_rss_bytes=round(2.2e8 * size), labels_json=json.dumps(labels),
                )
            )  # fmt: skip
    folder.parent.mkdir(parents=True, exist_ok=True)
    add_part(folder, frame_of(jobs), {"runs": len(jobs)})


@contextmanager
def served(project: Path, *options: str, token: str | None = None, port: int = 0) -> Iterator[str]:
    """Serve a project by ``voxcast serve``; its address."""
    port = port or free_port()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    environment.pop("VOXCAST_TOKEN", None)
    if token is not None:
        environment["VOXCAST_TOKEN"] = token
    command = [
        sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port), "--project",
        str(project), "--root", str(project / "scans"), *options,
    ]  # fmt: skip
    with running_server(command, port, project, environment, path="/health") as address:
        yield address


@dataclass
class Visit:
    """A visit of the page.

    ``requests`` are the methods and paths that were asked for; ``complaints`` are the messages of
    the console, errors of scripts, violations of the policy, and requests to another host.
    """

    page: Page
    address: str
    requests: list[tuple[str, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        page = self.page
        page.on("request", lambda request: self._note(request.method, request.url))
        page.on("console", self._complain)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    def _note(self, method: str, url: str) -> None:
        if url.startswith(("data:", "blob:")):
            return
        if not url.startswith(self.address + "/"):
            self.complaints.append(f"another host: {url}")
        self.requests.append((method, url.removeprefix(self.address)))

    def _complain(self, message: Any) -> None:
        # A refused request is a message of the browser itself, and shown on the page.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def count(self, path: str) -> int:
        """Return how often a path was posted to, whatever its query."""
        return [(m, address.partition("?")[0]) for m, address in self.requests].count(
            ("POST", path)
        )

    def text(self, selector: str) -> str:
        """Return the visible text of an element, with plain spaces."""
        text = self.page.locator(selector).inner_text()
        return text.replace("\u00a0", " ").replace("\u202f", " ")

    def settled(self) -> None:
        """Wait until every part has the answer to the present question."""
        self.page.wait_for_function(
            "() => document.querySelectorAll('.card').length"
            " && document.querySelector('#sequence .steps')"
            " && document.querySelector('#predictions table')"
            " && !document.querySelector('[aria-busy]')",
            timeout=ANSWER_MS,
        )

    def read_image(self, path: Path) -> None:
        """Choose a file, and wait for the answer."""
        self.page.set_input_files("#file", path)
        self.settled()


@contextmanager
def browser(playwright: Playwright) -> Iterator[Browser]:
    """Start the Chromium of the system."""
    chromium = playwright.chromium.launch(
        executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
    )
    try:
        yield chromium
    finally:
        chromium.close()


@contextmanager
def visit(
    chromium: Browser,
    address: str,
    *,
    size: tuple[int, int] = WIDE,
    scheme: str = "light",
    **options: Any,
) -> Iterator[Visit]:
    """Open the page; at the end there was no complaint and no request to another host."""
    width, height = size
    context = chromium.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, **options
    )
    page = context.new_page()
    page.set_default_timeout(ANSWER_MS)
    visited = Visit(page, address)
    try:
        page.goto(f"{address}/")
        yield visited
        assert not visited.complaints
    finally:
        context.close()


def keep_screenshot(visited: Visit, name: str, folder: Path) -> Path:
    """Write a picture of the whole page into ``VOXCAST_SCREENSHOTS``, or else ``folder``."""
    target = Path(os.environ.get("VOXCAST_SCREENSHOTS") or folder)
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{name}.png"
    visited.page.screenshot(path=path, full_page=True)
    return path
