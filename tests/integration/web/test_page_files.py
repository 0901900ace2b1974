"""The files of the page: types, caching, the policy, and that nothing comes from elsewhere."""

import re

import pytest
from fastapi.testclient import TestClient

from voxcast.web.application import INDEX, PAGE
from voxcast.web.observation import POLICY

FILES = sorted(path.name for path in PAGE.iterdir())
SCRIPTS = [name for name in FILES if name.endswith(".js")]
XML_NAMESPACE = "http://www.w3.org/2000/svg"


def source(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/page/base.css", "text/css; charset=utf-8"),
        ("/page/main.js", "text/javascript; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
    ],
)
def test_a_file_is_sent_with_its_type_and_the_policy(
    service: TestClient, path: str, media_type: str
) -> None:
    answer = service.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media_type
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = service.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == answer.headers["etag"]
    other = service.get(path, headers={"If-None-Match": '"another"'})
    assert other.content == answer.content


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2fpage.py", "../page.py", "%2e%2e/page.py", "x" * 500, "a%00b"]
)
def test_other_files_are_not_sent(service: TestClient, name: str) -> None:
    assert service.get(f"/page/{name}").status_code == 404


def test_the_policy_allows_nothing_that_is_written_into_the_document() -> None:
    assert "unsafe" not in POLICY
    document = source("index.html")
    assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", document)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", document))


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_loaded_from_another_host(name: str) -> None:
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", source(name)))
    assert addresses <= {XML_NAMESPACE}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_small_and_makes_no_markup_of_text(name: str) -> None:
    text = source(name)
    assert len(text.splitlines()) <= 200
    markup = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    )
    assert not re.search(markup, text)
    for module in re.findall(r"from \"\./([\w.]+)\"", text):
        assert module in SCRIPTS


def test_the_document_names_files_that_there_are() -> None:
    named = set(re.findall(r"(?:src|href)=\"page/([\w.]+)\"", source("index.html")))
    assert named <= set(FILES)
    imported = {m for name in SCRIPTS for m in re.findall(r"from \"\./([\w.]+)\"", source(name))}
    assert imported | {"main.js"} == set(SCRIPTS)
    assert set(FILES) == named | imported | {INDEX}


def test_labels_and_ids_of_the_scripts_are_in_the_document() -> None:
    document = source("index.html")
    ids = re.findall(r"\bid=\"([\w-]+)\"", document)
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r"\b(?:for|aria-labelledby|aria-describedby)=\"([\w-]+)\"", document))
    assert targets <= set(ids)
    for name in SCRIPTS:
        assert set(re.findall(r"byId\(\"([\w-]+)\"\)", source(name))) <= {*ids, "script-text"}
