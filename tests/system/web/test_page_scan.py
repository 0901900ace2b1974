"""The first view in a real Chromium: a scan, its prediction, and what limits change."""

import base64
import re
from pathlib import Path

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Route

from page_visits import (
    IMAGE,
    NEEDS_CHROMIUM,
    PHONE,
    Visit,
    keep_screenshot,
    visit,
)  # fmt: skip

pytestmark = NEEDS_CHROMIUM

PAUSE_MS = 500  # longer than the page waits for another change
# At once, as a busy machine may let pass more time than that between two keys.
THREE_STEPS = """slider => {
  for (let step = 0; step < 3; step++) {
    slider.stepDown();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  }
}"""
OUTLINE = "() => getComputedStyle(document.activeElement).outlineStyle"


def drop(visited: Visit, path: Path) -> None:
    """Drop a file onto the zone, as the mouse does."""
    content = base64.b64encode(path.read_bytes()).decode()
    transfer = visited.page.evaluate_handle(
        """([name, content]) => {
            const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name));
            return transfer;
        }""",
        [path.name, content],
    )
    for event in ("dragenter", "dragover", "drop"):
        visited.page.dispatch_event("#drop", event, {"dataTransfer": transfer})


def test_a_dropped_scan_is_shown_predicted_and_requested(
    opened: Visit, project: Path, tmp_path: Path
) -> None:
    drop(opened, project / "scans" / IMAGE)
    opened.settled()
    assert opened.text("#scan-name") == IMAGE
    assert "80 × 80 × 80 voxels · 2.5 × 2.5 × 2.5 mm" in opened.text("#scan-facts")
    pictures = opened.page.locator("#slices img")
    assert pictures.evaluate_all("all => all.map((one) => one.complete && one.naturalWidth)") == [
        80, 80, 80,
    ]  # fmt: skip
    assert opened.page.locator("#characteristics tbody tr").count() >= 10
    assert opened.page.locator("#characteristics .trained").count() > 0
    assert re.search(r"\d (s|min|h)\b", opened.text("#recommendation dd >> nth=0"))
    assert re.search(r"\d (kB|MB|GB)", opened.text("#recommendation dd >> nth=1"))
    assert opened.page.locator("#predictions tbody tr").count() == 2
    assert opened.page.locator("#trade .point").count() >= 2
    assert opened.page.locator("#trade .point.chosen").count() == 1
    assert opened.page.locator("#sequence .strategies > li").count() >= 3
    assert opened.page.locator("#because li").count() >= 1
    assert opened.text("#script-text").startswith("#!/bin/bash")
    assert opened.count("/images") == 1
    keep_screenshot(opened, "scan-light-wide", tmp_path)


def test_limits_change_the_request_without_another_upload(opened: Visit, project: Path) -> None:
    opened.read_image(project / "scans" / IMAGE)
    before = opened.count("/recommend")
    slider = opened.page.locator("#deadline-range")
    slider.focus()
    with opened.page.expect_response("**/recommend"):
        slider.evaluate(THREE_STEPS)
    assert slider.get_attribute("aria-valuetext") == opened.page.input_value("#deadline") != ""
    opened.settled()
    assert opened.count("/recommend") == before + 1  # three steps, one question
    slider.press("Home")  # far below the fastest
    opened.page.get_by_text("No configuration is within the limits. The nearest:").wait_for()
    assert "No configuration is within the limits" in opened.page.text_content("#status")
    slider.press("End")
    opened.page.locator("#trade .point.chosen").wait_for()
    opened.page.get_by_text("No configuration is within").first.wait_for(state="detached")
    assert opened.page.input_value("#deadline") == ""
    before = opened.text("#policy-hint")
    opened.page.select_option("#policy", "safe")
    opened.settled()
    assert opened.text("#policy-hint") != before
    assert opened.count("/images") == 1


def test_an_answer_to_an_older_question_is_dropped(opened: Visit, project: Path) -> None:
    opened.read_image(project / "scans" / IMAGE)
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    opened.page.route("**/recommend", hold_the_first)
    with opened.page.expect_request("**/recommend"):
        opened.page.fill("#deadline", "0.1 s")  # nothing is within it
    opened.page.fill("#deadline", "")
    opened.settled()
    answer = held[0].fetch()
    assert answer.json()["chosen"] is None
    held[0].fulfill(response=answer)
    opened.page.wait_for_timeout(300)
    assert opened.page.locator("#trade .point.chosen").count() == 1
    assert opened.page.get_by_text("No configuration is within").count() == 0


def test_everything_is_done_from_the_keyboard(
    chromium: Browser, address: str, project: Path
) -> None:
    granted = {"permissions": ["clipboard-read", "clipboard-write"]}
    with visit(chromium, address, **granted) as opened:
        page = opened.page
        page.wait_for_function("() => document.getElementById('model').textContent !== ''")

        def tab_to(identity: str, most: int = 60) -> None:
            for _ in range(most):
                page.keyboard.press("Tab")
                if page.evaluate("() => document.activeElement.id") == identity:
                    assert page.evaluate(OUTLINE) == "solid"
                    return
            raise AssertionError(f"the Tab key does not reach {identity}")

        tab_to("path")
        page.keyboard.type(str(project / "scans" / IMAGE))
        page.keyboard.press("Enter")
        opened.settled()
        assert page.evaluate("() => document.activeElement.id") == "scan-name"
        assert page.text_content("#status")
        tab_to("policy")
        page.keyboard.press("ArrowDown")
        tab_to("deadline")
        page.keyboard.type("3 h")
        page.wait_for_timeout(PAUSE_MS)  # the answer to the deadline draws the plot anew
        opened.settled()
        tab_to("budget")
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("() => document.activeElement.classList.contains('point')"):
                break
        first = page.evaluate("() => document.activeElement.getAttribute('aria-label')")
        page.keyboard.press("ArrowRight")
        second = page.evaluate("() => document.activeElement.getAttribute('aria-label')")
        assert first != second
        assert page.text_content("#trade .readout") == second
        tab_to("copy-script")
        page.keyboard.press("Enter")
        page.locator("#script").get_by_text("Copied", exact=True).wait_for()
        copied = page.evaluate("() => navigator.clipboard.readText()")
        assert copied == page.text_content("#script-text")


def test_a_phone_needs_no_sideways_scrolling(
    chromium: Browser, address: str, project: Path, tmp_path: Path
) -> None:
    for width in (PHONE[0], 320):
        with visit(chromium, address, size=(width, PHONE[1]), scheme="dark") as opened:
            opened.read_image(project / "scans" / IMAGE)
            for view in ("#to-history", "#to-scan"):
                opened.page.click(view)
                opened.page.wait_for_timeout(200)
                widest = opened.page.evaluate("() => document.documentElement.scrollWidth")
                assert widest <= width, view
            assert opened.text("#summary") != ""
            if width == PHONE[0]:
                keep_screenshot(opened, "scan-dark-phone", tmp_path)
