from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

import voxcast
from made_up_campaign import Campaign
from voxcast.errors import TableError
from voxcast.report.inputs import Evidence
from voxcast.report.narrative import Findings
from voxcast.report.page import page
from voxcast.report.summary import summary

Build = Callable[..., Path]
SCRIPT = Path(__file__).parents[2] / "pipelines" / "report.py"
VOID = {"meta", "img", "br", "link", "input", "hr"}
SECTIONS = ("models", "predictions", "bounds", "volumes", "runs", "noise", "variation", "cpus",
            "devices", "phases")  # fmt: skip


class Page(HTMLParser):
    """Everything of a page that the tests look at; fails on a tag that is closed wrongly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def rendered(project: Path) -> tuple[Page, str, str]:
    findings = Findings.of(Evidence.read(project))
    html = page(findings, project)
    return Page(html), html, summary(findings, "results/report/index.html")


def lines(text: str) -> dict[str, str]:
    found = dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())
    assert len(text.splitlines()) == 10
    return found


def test_the_stage_writes_a_page_that_loads_nothing(build: Build) -> None:
    project = build()
    subprocess.run([sys.executable, SCRIPT], cwd=project, check=True)
    written = sorted(p.name for p in (project / "results/report").iterdir())
    assert written == ["index.html", "summary.txt"]
    html = (project / "results/report/index.html").read_text(encoding="utf-8")
    assert html == page(Findings.of(Evidence.read(project)), project)
    found = Page(html)
    assert not found.all("script") + found.all("link") + found.all("iframe")
    for _, attrs in found.tags:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert (attrs.get(name) or "#").startswith(("#", "data:image/"))
    assert not re.search(r"@import|url\((?!#)", html)
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {(a.get("href") or "")[1:] for a in found.all("a")}
    assert set(SECTIONS) < targets <= set(ids)
    assert all(i.get("alt") for i in found.all("img"))
    assert len(found.all("img")) == 4
    pictures = [a for a in found.all("svg") if a.get("role") == "img"]
    assert pictures
    assert all(a.get("aria-label") for a in pictures)


def test_the_page_says_who_won_and_what_speaks_against_it(build: Build) -> None:
    found, _, text = rendered(build())
    assert "ridge is champion, version 1" in found.text
    assert "not calibrated: a 95 % bound takes 19 training subjects, there are 8" in found.text
    assert "Only 4 unseen subjects" in found.text
    assert "1 timeout" in found.text
    assert "no GPU on this machine" in found.text
    assert "No run on a GPU is on record, so there is nothing to compare." in found.text
    assert "before all trials of forest" in found.text
    assert "noise floor" in found.text
    said = lines(text)
    assert said["measured"].startswith("29 of 30 runs completed")
    assert "the voxels baseline 20 % (3.3 times the error)" in said["error by CV"]
    assert "4 subjects, 7 runs; noise floor" in said["on unseen"]
    assert said["report"] == "results/report/index.html"
    assert said["next"] == ".venv/bin/voxcast predict data/images/0001.nii.gz"
    assert ".venv/bin/mlflow ui" in said["or"]


def test_four_applications_and_a_gpu_at_once(build: Build) -> None:
    project = build(subjects=16, test_subjects=4, campaign=True, gpu=True)
    found, html, text = rendered(project)
    runs = Evidence.read(project).runs
    for app in runs["app"].unique():
        assert f"{app}: cpu" in found.text
    assert "no image, 72 settings" in found.text.replace("\u00a0", " ")
    assert "3 runs of" in found.text  # disturbed
    assert "on 16 volumes of 16 subjects, with 1, 2 and 4 CPUs on cpu" in lines(text)["measured"]
    assert "cpu, 1 CPU, scaled down" in found.text
    # Planted: how fast the GPU is, its price, how the machine drifted, that networks differ.
    row = r"tile_segment_network, 4 CPUs: whole run, Other CPU, 16 cores, Some GPU\s*16\s*"
    whole = re.search(row + r"([\d.]+)×", found.text)
    assert whole
    assert float(whole[1]) == pytest.approx(5.1, rel=0.05)
    assert "0.09 $ a GPU-hour" in found.text
    assert "tile_segment, 1 CPU against 1 GPU with 4 CPUs: whole run, composed" in found.text
    assert re.search(
        r"changed by (2|3)\.\d % \(\w+, down; its repeats differ by 0\.\d+ %\) at most", found.text
    )
    assert "two (33 % near" in found.text.replace("\u00a0", " ")
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert html.count("<svg") > 20


def test_the_recorded_history_counts_for_devices_alone(build: Build) -> None:
    project = build(subjects=6, test_subjects=2)
    made = Campaign()
    made.training(points=6, gpu=True)
    runs, phases = made.tables()
    part = project / "data" / "history" / "gpu" / "2026-01-01-00aa11bb-1"
    part.mkdir(parents=True)
    runs.to_parquet(part / "runs.parquet", index=False)
    phases.to_parquet(part / "phases.parquet", index=False)
    evidence = Evidence.read(project)
    assert set(evidence.runs["app"]) == {"segment"}
    assert set(evidence.on_record["app"]) == {"segment", "dnn_train"}
    assert set(evidence.phases_on_record["app"]) == {"segment", "dnn_train"}


def test_hostile_names_stay_text(build: Build) -> None:
    bad = "<script>alert(1)</script>$x^$&\"'"
    project = build(app=bad, subject=bad + "{}")
    path = project / "data/catalogue/catalogue.parquet"
    catalogue = pd.read_parquet(path)
    catalogue.loc[0, "problem"] = bad
    catalogue.to_parquet(path)
    found, html, _ = rendered(project)
    assert "<script" not in html
    assert bad in found.text


def test_an_empty_test_side_is_said(build: Build) -> None:
    found, _, text = rendered(build(test_subjects=0))
    assert "checked on no unseen subject" in found.text
    assert not found.all("img")
    assert "nothing is known of unseen ones" in lines(text)["on unseen"]


def test_a_missing_or_broken_image_is_said_in_its_caption(build: Build) -> None:
    project = build()
    shutil.rmtree(project / "data/images")
    (project / "data/images").mkdir()
    (project / "data/images/0012.nii.gz").write_bytes(b"not an image")
    found, _, _ = rendered(project)
    assert not found.all("img")
    assert "no such file" in found.text
    assert found.text.count("No slices: ") == 4


def test_one_configuration_without_repeats(build: Build) -> None:
    found, _, text = rendered(build(cpus=(1,), repeated=0, test_subjects=2))
    assert "Only one configuration was measured" in found.text
    assert "no run was repeated" in lines(text)["noise floor"]
    assert "Only 1 unseen subject:" in found.text
    assert "(no interval)" in found.text


def test_no_gain_and_a_champion_that_stays_are_said(build: Build) -> None:
    kept = {"registered": False, "reason": "not_better", "detail": "0.2 against 0.1"}
    kept |= {"champion": "forest", "version": "3"}
    findings = Findings.of(Evidence.read(build(winner="voxels", receipt=kept)))
    assert findings.headline().startswith("No model beat the voxels baseline")
    assert "version 3 (forest) stays champion (0.2 against 0.1)" in findings.won()
    assert any("ridge has the smaller cross-validated" in c for c in findings.cautions())


def test_a_worse_model_than_the_baseline_is_said(build: Build) -> None:
    findings = Findings.of(Evidence.read(build(subjects=40, test_subjects=20, winner="median")))
    assert "beat median" in " ".join(findings.cautions())


def test_a_missing_input_is_named(build: Build) -> None:
    project = build()
    (project / "results/evaluate/families.json").unlink()
    with pytest.raises(TableError, match=r"families\.json: no such file; run `dvc repro`"):
        Evidence.read(project)


def test_the_template_lies_beside_the_code() -> None:
    assert (Path(voxcast.__file__).parent / "report" / "page.html.j2").is_file()
