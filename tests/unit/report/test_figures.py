"""Marks of intervals that are cut, and families with the same values."""

import re

import pytest

from voxcast.records import TARGETS
from voxcast.report.canvas import INK, interval, panel
from voxcast.report.coverage import reliability_panels
from voxcast.report.figures import coverage_panels
from voxcast.report.templates import _nonbreaking


@pytest.mark.parametrize(
    ("ends", "marks"),
    [((2.0, 8.0), ""), ((-1.0, 8.0), "<"), ((2.0, 11.0), ">"), ((-1.0, 11.0), "<>"),
     ((11.0, 12.0), ">")],
)  # fmt: skip
def test_an_interval_beyond_the_axis_gets_an_arrow(ends: tuple[float, float], marks: str) -> None:
    with panel() as (_, axes):
        interval(axes, 0.0, ends, (0.0, 10.0), INK)
        arrows = [line for line in axes.lines if line.get_marker() in ("<", ">")]
        assert "".join(str(line.get_marker()) for line in arrows) == marks
        for line in axes.lines:
            assert all(0 <= float(x) <= 10 for x in line.get_xdata())


def test_families_with_the_same_coverage_share_a_line() -> None:
    full = {"under_request": 0.0, "under_request_low": 0.0, "under_request_high": 0.8}
    missed = {"under_request": 0.5, "under_request_low": 0.1, "under_request_high": 0.9}
    metrics = {f"family_{n}": dict.fromkeys(TARGETS, full) for n in range(15)}
    metrics["other"] = dict.fromkeys(TARGETS, missed)
    drawings = coverage_panels(metrics, 0.95)
    assert len(drawings) == len(TARGETS)
    for drawing in drawings:
        labels = re.findall(r"<text[^>]*>([^<]*)</text>", str(drawing.svg))
        assert "15 models" in labels
        assert "other" in labels
        assert "family 0" not in labels
        assert drawing.caption.startswith("15 models: family 0, family 1, ")


def test_reliability_is_drawn_with_its_intervals() -> None:
    points = [
        {"nominal": p, "below": below, "subjects": 20, "interval": [low, high]}
        for p, below, low, high in ((0.5, 9, 0.23, 0.68), (0.95, 20, 0.83, 1.0))
    ]
    scores = {"crps_log": 0.0312, "reliability": points}
    drawings = reliability_panels(dict.fromkeys(TARGETS, scores), "segment")
    assert len(drawings) == len(TARGETS)
    assert "45 % at 50 %, 100 % at 95 %" in str(drawings[0].svg).replace("\u00a0", " ")
    assert drawings[0].caption.endswith("3.1 %.")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("13 % (10 to 15 %)", ["13 %", "(10 to 15 %)"]),
        ("measured on one machine", ["measured", "on", "one", "machine"]),
        ("6.8 % (6.1 to 7.6 %) for 100 % of the cost",
         ["6.8 %", "(6.1 to 7.6 %)", "for", "100 %", "of", "the", "cost"]),
        ("2 h 13 min", ["2 h 13 min"]),
        ("4.06 · 5.86 · 13.3 s", ["4.06", "·", "5.86", "·", "13.3 s"]),
    ],
)  # fmt: skip
def test_values_stay_on_one_line_and_sentences_break(text: str, lines: list[str]) -> None:
    assert [line.replace("\u00a0", " ") for line in _nonbreaking(text).split(" ")] == lines
