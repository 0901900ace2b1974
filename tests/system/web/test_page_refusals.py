"""The page in a real Chromium where things go wrong: refusals, tokens, hostile names."""

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Route

from page_visits import (
    IMAGE,
    NEEDS_CHROMIUM,
    Visit,
    served,
    visit,
)  # fmt: skip

pytestmark = NEEDS_CHROMIUM
TOKEN = "a-token-of-this-test"  # noqa: S105
HOSTILE = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"


def test_an_unusable_file_is_refused_in_words_and_the_last_answer_stays(
    opened: Visit, project: Path, tmp_path: Path
) -> None:
    opened.read_image(project / "scans" / IMAGE)
    headline = opened.text("#recommendation .headline")
    hostile = tmp_path / "<img src=x onerror=alert(1)>.nii"
    hostile.write_bytes(b"not an image" * 100)
    opened.page.set_input_files("#file", hostile)
    problem = opened.page.locator("#intake-problem [role=alert]")
    problem.wait_for()
    assert len(problem.inner_text().strip()) > 20
    assert opened.text("#scan-name") == IMAGE
    assert opened.text("#recommendation .headline") == headline
    assert opened.page.locator("img[src='x']").count() == 0
    opened.page.fill("#path", f"/nowhere/{HOSTILE}.nii")
    opened.page.press("#path", "Enter")
    opened.page.locator("#intake-problem").get_by_text(
        re.compile("nowhere|allow|root|folder")
    ).wait_for()
    assert opened.page.locator("img[src='x']").count() == 0
    assert opened.page.title() == "voxcast"


def test_names_and_reasons_are_text_whatever_they_contain(opened: Visit, project: Path) -> None:
    def with_hostile_names(route: Route) -> None:
        models = route.fetch().json()
        for facts in models["apps"].values():
            facts["parameters"][HOSTILE] = HOSTILE
            facts["detail"] = HOSTILE
        models["apps"][HOSTILE] = next(iter(models["apps"].values()))
        route.fulfill(json=models)

    def refused(route: Route) -> None:
        route.fulfill(status=400, json={"detail": HOSTILE, "status": 400})

    opened.page.route("**/models", with_hostile_names)
    opened.page.reload()
    opened.page.locator("#learned").get_by_text(HOSTILE).first.wait_for()
    assert HOSTILE in opened.text("#learned")
    opened.page.route("**/predict", refused)
    opened.page.set_input_files("#file", project / "scans" / IMAGE)
    opened.page.locator("#predictions-problem [role=alert]").wait_for()
    assert HOSTILE in opened.text("#predictions-problem")
    assert HOSTILE.replace("_", " ") in opened.page.text_content("#parameters")
    assert HOSTILE in opened.page.text_content("#app")
    opened.page.click("#to-history")
    opened.page.locator("#history .card").first.wait_for()
    assert opened.page.locator("img[src='x']").count() == 0
    assert opened.page.title() == "voxcast: history"


def test_the_token_is_asked_for_and_kept_for_the_tab_alone(
    chromium: Browser, project: Path
) -> None:
    with served(project, token=TOKEN) as url, visit(chromium, url) as opened:
        page = opened.page
        dialog = page.locator("#token-dialog")
        dialog.wait_for()
        assert page.evaluate("() => document.activeElement.id") == "token"
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.get_by_text("The service refused this token.").wait_for()
        page.keyboard.press("Escape")
        page.locator("#service-problem").get_by_text("Token needed").wait_for()
        page.locator("#service-problem").get_by_role("button", name="Try again").click()
        dialog.wait_for()
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        dialog.wait_for(state="hidden")
        page.get_by_text("model version 1").wait_for()
        opened.read_image(project / "scans" / IMAGE)
        assert TOKEN not in page.content()
        assert not any(TOKEN in path for _, path in opened.requests)
        assert page.evaluate("() => localStorage.length") == 0
        assert page.evaluate("() => document.cookie") == ""
        other = page.context.new_page()
        held: list[Route] = []
        other.route("**/sites", lambda route: held.append(route))
        other.goto(f"{url}/")
        other.locator("#token-dialog").wait_for()
        other.keyboard.press("Escape")
        other.get_by_text("Token needed").wait_for()
        with other.expect_response("**/sites"):  # refused after the user has cancelled
            held.pop().continue_()
        other.wait_for_timeout(100)
        assert other.locator("#token-dialog").is_hidden()
