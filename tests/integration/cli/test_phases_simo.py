"""``voxcast phases signature VALUES.txt``: the published segment, and files without values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_every_verb import refusal

from commands import attempt as voxcast

PUBLISHED = Path(__file__).parents[2] / "data" / "pas2p_deepgalaxy.json"


@pytest.fixture
def values(tmp_path) -> Path:
    rows = json.loads(PUBLISHED.read_text(encoding="utf-8"))["ticks"]
    path = tmp_path / "simo.txt"
    path.write_text("".join(f"{row['simo']}\n" for row in rows) + "\n")
    return path


def test_the_phases_of_the_published_segment(values) -> None:
    completed = voxcast(
        "phases",
        "signature",
        str(values),
        "--tolerance",
        "1",
        "--json",
        cwd=values.parent,
    )
    phases = json.loads(completed.stdout)["phases"]
    assert [phase["founder"] for phase in phases] == [50, 47, 45, 54, 63, 52, 60]
    assert [phase["weight"] for phase in phases] == [11, 16, 4, 2, 2, 1, 1]
    assert phases[2]["ticks"] == [4, 11, 16, 28]
    assert sorted(tick for phase in phases for tick in phase["ticks"]) == list(range(37))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "must have one finite number a line"),
        (b"50\n\nfifty\n", "fifty"),
        (b"50\nnan\n", "must have one finite number a line"),
        (b"\xff\xfe", "must have one number a line"),
    ],
)
def test_a_file_without_values(content, words, tmp_path) -> None:
    (tmp_path / "simo.txt").write_bytes(content)
    line = refusal("phases", "signature", "simo.txt", cwd=tmp_path)
    assert line.startswith("simo.txt: ")
    assert words in line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("none.txt",), "none.txt: no such file"),
        (("v.txt", "--tolerance", "-1"), "--tolerance: must be 0 or more, not -1"),
        (("v.txt", "--tolerance", "nan"), "--tolerance: must be 0 or more, not nan"),
        (("v.txt", "--min-share", "2"), "--min-share: must be 0 to 1, not 2"),
    ],
)
def test_a_mistake_in_the_options(options, line, tmp_path) -> None:
    assert refusal("phases", "signature", *options, cwd=tmp_path) == line
