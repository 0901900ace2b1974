"""The second view in a real Chromium, and the accessibility rules of WCAG 2.2 AA in both."""

from pathlib import Path

import pytest

pytest.importorskip("playwright")
pytest.importorskip("axe_playwright_python")
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from page_visits import (
    IMAGE,
    NEEDS_CHROMIUM,
    PHONE,
    WIDE,
    Visit,
    keep_screenshot,
    visit,
)  # fmt: skip

pytestmark = NEEDS_CHROMIUM
RULES = {
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"],
    }
}


def violations(visited: Visit) -> list[str]:
    """Return the rules of WCAG that the page breaks as it is, with the first element of each."""
    results = Axe().run(visited.page, options=RULES).response
    assert len(results["passes"]) > 10
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in results["violations"]]


def open_history(visited: Visit) -> None:
    visited.page.click("#to-history")
    visited.page.locator("#history .card").first.wait_for(timeout=60_000)
    visited.page.locator("#history svg").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_no_rule_of_wcag_is_broken(
    chromium: Browser, address: str, project: Path, scheme: str, size: tuple[int, int]
) -> None:
    with visit(chromium, address, size=size, scheme=scheme) as opened:
        opened.page.get_by_text("model version 1").wait_for()
        assert violations(opened) == []
        opened.read_image(project / "scans" / IMAGE)
        for summary in opened.page.locator("summary:visible").all():
            summary.click()
        opened.page.fill("#deadline", "soon")
        opened.page.locator("#recommendation-problem [role=alert]").wait_for()
        assert violations(opened) == []
        open_history(opened)
        assert violations(opened) == []


def test_the_history_compares_what_was_requested_used_and_predicted(
    chromium: Browser, address: str, tmp_path: Path
) -> None:
    with visit(chromium, f"{address}") as opened:
        open_history(opened)
        page = opened.page
        assert page.get_attribute("#to-history", "aria-current") == "page"
        assert page.locator(".scatter circle.run").count() == 144
        assert page.locator(".scatter circle.exceeded").count() > 0
        assert "144 runs with a prediction, of 144" in opened.text("#history")
        assert page.locator(".dumbbell .requested").count() == 15
        assert page.locator(".calibration .share").count() == 12  # 6 months, time and memory
        assert "Version 1 is the champion" in opened.text("#history")
        keep_screenshot(opened, "history-light-wide", tmp_path)
        page.select_option("#history-quantity", "memory")
        page.get_by_text("Memory of the newest runs").wait_for()
        page.select_option("#history-app", "segment")
        expect(page.locator(".scatter circle.run")).to_have_count(144)
        page.go_back()
        page.locator("#scan-title").wait_for()
        assert page.get_attribute("#to-scan", "aria-current") == "page"
