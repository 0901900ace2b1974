"""A project for the page, its service, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from page_visits import Visit


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project for the page: a priced cluster, a champion, jobs, and an image."""
    from page_visits import write_project

    folder = tmp_path_factory.mktemp("page")
    write_project(folder)
    return folder


@pytest.fixture(scope="session")
def address(project: Path) -> Iterator[str]:
    """The address of a service of that project, a process of its own."""
    from page_visits import served

    with served(project) as url:
        yield url


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The Chromium of the system; its loop runs in this thread, so it is of one module."""
    from playwright.sync_api import sync_playwright

    from page_visits import browser

    with sync_playwright() as playwright, browser(playwright) as started:
        yield started


@pytest.fixture
def opened(chromium: Browser, address: str) -> Iterator[Visit]:
    """A visit of the page."""
    from page_visits import visit

    with visit(chromium, address) as visited:
        yield visited
