"""The pages: size of the README, links, tables that come from results, the site."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import figure
import result_tables
from page_blocks import PAGES, PROJECT
from voxcast.cli import VERBS

SOURCE = PROJECT / "src" / "voxcast"
README_BYTES = 9_000
MOST_PAGES, PAGES_BYTES = 12, 150_000
FIGURE_BYTES = 60_000
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def slugs(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    plain = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles)
    return {re.sub(r"[\s-]+", "-", title) for title in plain}


def test_the_pages_are_few_and_short() -> None:
    assert (PROJECT / "README.md").stat().st_size <= README_BYTES
    pages = [page.stat().st_size for page in PAGES if page.parent.name == "docs"]
    assert len(pages) <= MOST_PAGES
    assert sum(pages) <= PAGES_BYTES


@pytest.mark.parametrize("page", [*PAGES, PROJECT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    sources = re.findall(r'<img src="([^"]+)"', text)
    for target, anchor in [*LINK.findall(text), *((source, "") for source in sources)]:
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor.removeprefix("#") in slugs(path), f"{page.name}: {target}{anchor}"


def test_tables_hold_the_numbers_of_the_results() -> None:
    marked = 0
    for name in result_tables.PAGES:
        text = (PROJECT / name).read_text(encoding="utf-8")
        marked += len(result_tables.MARKED.findall(text))
        assert result_tables.refreshed(text) == text, f"{name} is out of date; run `make docs`"
    assert marked == len(result_tables.TABLES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_number_is_a_negative_zero(page: Path) -> None:
    assert not re.findall(r"(?<![\w.])[-\u2212]0(?:\.0+)? .*", page.read_text(encoding="utf-8"))


def test_a_changed_number_is_detected() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    start = text.index("<!-- table: headline -->")
    changed = text[:start] + text[start:].replace(" % ", "9 % ", 1)
    assert changed != text
    assert result_tables.refreshed(changed) == text


def test_the_limits_of_the_readme_are_those_of_the_results() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    limits = text.partition("## Limits")[2]
    for study in ("heads", "real"):
        results = json.loads((PROJECT / f"published/studies/{study}.json").read_text())
        for app in ("ants_segment", "tile_segment", "ants_register"):
            error = results[app]["errors"]["cpu_s"]["mape"]
            assert f"{error:.1f}" in limits or f"{error:.0f} %" in limits, (study, app)


def test_the_figure_is_that_of_the_results() -> None:
    assert figure.FIGURE.stat().st_size < FIGURE_BYTES
    assert figure.figure() == figure.FIGURE.read_text(encoding="utf-8")


def test_every_verb_is_documented() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert not [verb for verb in VERBS if f"voxcast {verb}" not in text]


def test_the_floors_are_those_that_are_tested() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("<!-- floors -->\n", 1)[1].split("\n\n", 1)[0]
    written = {
        room: int(floor)
        for floor, rooms in re.findall(r"^\| (\d+) \| (.*) \|$", table, re.M)
        for room in re.findall(r"`(\w+)`", rooms)
    }
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    heights = {
        room: height
        for height, rooms in enumerate(reversed(layers))
        for room in re.findall(r"\w+", rooms)
        if (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").is_file()
    }
    assert written.keys() == heights.keys()
    in_order = sorted(written, key=heights.__getitem__)
    assert [written[room] for room in in_order] == sorted(written.values())


def test_named_modules_exist() -> None:
    params = yaml.safe_load((PROJECT / "params.yaml").read_text(encoding="utf-8"))
    for page in (*PAGES, PROJECT / "CONTRIBUTING.md"):
        text = page.read_text(encoding="utf-8")
        rooms = "|".join(path.name for path in SOURCE.iterdir() if path.is_dir())
        for name in re.findall(rf"`(?:voxcast[./])?((?:{rooms})[./][\w./]+)`", text):
            if name.endswith((".parquet", ".tsv", ".json", ".jsonl", ".csv", ".txt")):
                continue  # a file in a folder that has the name of a room
            path = PROJECT / "src" / "voxcast" / name.removesuffix(".py").replace(".", "/")
            member = path.parent.with_suffix(".py")  # a function of a module
            room, key = re.split(r"[./]", name, maxsplit=1)
            if key in params.get(room, {}) or re.fullmatch(r"models/v\d+", name):
                continue  # a key of the configuration, or a version in a project
            exists = path.is_dir() or path.with_suffix(".py").is_file() or member.is_file()
            assert exists, f"{page.name}: {name}"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; pip install -e '.[docs]'")
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)],
        cwd=PROJECT, env={**os.environ, "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "own-data" / "index.html").is_file()
