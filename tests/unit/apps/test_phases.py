"""Phases in logs: by patterns, by proposed ones, and by the times in front of lines."""

import math
from pathlib import Path

import pytest
import yaml

from voxcast.apps.new import propose_phases
from voxcast.apps.phase_log import FORMS, phases_from_log, stamp_seconds, unwrapped

# What the container prints, as published with its runs on a many-core CPU.
SLANT_LOG = """\
Processing /INPUTS/test_volume.nii.gz
*******preprocessing time: 2839.628881 seconds
*******segmentation time: 7551.472055 seconds
Elapsed time is 189.978879 seconds.
*******postprocessing time: 3176.751577 seconds
*******generating pdf time: 50.7 seconds
*******generating text file time: 17.1 seconds
"""
PATTERNS = {"load": r"load: (?P<seconds>\S+) s", "fit": r"fit: (?P<seconds>\S*) s"}


def test_the_slant_log_is_read_with_its_patterns():
    conf = Path(__file__).parents[3] / "conf" / "app" / "slant.yaml"
    slant = yaml.safe_load(conf.read_text())["slant"]
    phases = phases_from_log(SLANT_LOG, slant["phase_patterns"])
    assert [phase.name for phase in phases] == slant["phases"]
    assert phases[0].start_s == 0
    assert phases[1].start_s == phases[0].end_s == 2839.628881
    assert phases[-1].end_s == pytest.approx(13635.65, abs=0.01)


def test_order_is_that_of_the_log_and_a_phase_may_come_twice():
    phases = phases_from_log("fit: 2 s load: 1 s\r\nfit: 3 s", PATTERNS)
    spans = [(phase.name, phase.start_s, phase.end_s) for phase in phases]
    assert spans == [("fit", 0, 2), ("load", 2, 3), ("fit", 3, 6)]


def test_an_unmatched_group_gives_no_duration():
    assert phases_from_log("load", {"load": r"load(: (?P<seconds>\d+))?"}) == ()
    assert phases_from_log("anything", {}) == ()


MARKS = {
    "fit": r"(?:(?P<start>START)|(?P<end>END)) fit",
    "write": r"(?:(?P<start>START)|(?P<end>END)) write",
}


def test_marks_without_a_time_have_the_time_at_which_they_were_written():
    log = "hello\nSTART fit\nEND fit\nSTART write\n"
    phases = phases_from_log(log, MARKS, [0.1, 0.2, 3.2, 4.0], 5.5)
    assert [(p.name, p.start_s, p.end_s) for p in phases] == [
        ("fit", 0.2, 3.2), ("write", 4.0, 5.5),
    ]  # fmt: skip
    assert phases_from_log(log, MARKS) == ()  # no time is known


def test_times_in_front_are_related_to_the_run_by_the_least_delay():
    patterns = {
        "a": r"(?P<time>\S+) (?P<start>a)",
        "b": r"(?P<time>\S+) (?P<start>b)",
    }
    # Written late: the first two lines came with the third.
    phases = phases_from_log("23:59:58 a\n00:00:01 b\n00:00:05 a", patterns, [9.5, 9.5, 9.5], 11)
    assert [(p.name, p.start_s, p.end_s) for p in phases] == [
        ("a", 2.5, 5.5), ("b", 5.5, 9.5), ("a", 9.5, 11.0),
    ]  # fmt: skip


LOGS = [
    (
        "tool 1.2\nSTART skull strip\nnoise\nEND skull strip\nSTART register\nEND register\n",
        {"skull_strip": (1.0, 3.0), "register": (4.0, 5.0)},
    ),
    (
        "reading /data/a.nii.gz\nN4 correction took 4.5 s\nregistration time: 12 seconds\n",
        {"n4_correction": (0.0, 4.5), "registration": (4.5, 16.5)},
    ),
]


@pytest.mark.parametrize(("log", "expected"), LOGS)
def test_what_is_proposed_reads_the_log_it_was_proposed_from(log, expected):
    written_s = [float(n) for n in range(len(log.splitlines()))]
    phases = phases_from_log(log, propose_phases(log.splitlines()), written_s)
    assert {phase.name: (phase.start_s, phase.end_s) for phase in phases} == expected


@pytest.mark.parametrize(
    "lines",
    [
        "2024-05-01 12:00:00,5 START fit\n2024-05-01 12:00:09,5 END fit",
        "starting fit\nfinished fit",
        "Begin: fit\nDone: fit",
        "fit: 2.5 sec",
        "fit finished in 3 seconds",
        "[fit time = 1e1 s]",
    ],
)
def test_spellings_of_one_step(lines):
    patterns = propose_phases(lines.splitlines())
    assert list(patterns) == ["fit"]
    assert len(phases_from_log(lines, patterns, [0.0, 1.0])) == 1


@pytest.mark.parametrize("log", ["", "no phases here", "START fit\nSTART save", "started\nended"])
def test_a_log_without_such_lines_proposes_nothing(log):
    assert propose_phases(log.splitlines()) == {}


EXAMPLES = (
    "2024-05-01 12:00:00,123",
    "2024:05:01:12:00:00",
    "240501-12:00:00,123",
    "Wed May  1 12:00:00 UTC 2024",
    "12:00:00.123",
)


def test_every_form_is_read_anywhere_in_a_line():
    assert len(EXAMPLES) == len(FORMS)
    for example in EXAMPLES:
        assert stamp_seconds(f"[{example}] message") % 86400 == pytest.approx(43200, abs=0.5)


def test_dates_count():
    first, later = "2024-02-28T23:59:59.5", "2024/02/29 00:00:00"
    assert stamp_seconds(later) - stamp_seconds(first) == pytest.approx(0.5)
    assert stamp_seconds("Feb 29 00:00:00 2024") == stamp_seconds("240229-00:00:00")


@pytest.mark.parametrize("text", ["", "24:00:00", "12:61:00", "1:2:3"])
def test_numbers_that_are_no_time_are_skipped(text):
    assert math.isnan(stamp_seconds(text))


def test_a_bare_clock_goes_on_after_midnight():
    assert unwrapped([86399.0, 1.0, 2.0, 86399.0, 3.0]) == [
        86399.0, 86401.0, 86402.0, 2 * 86400 - 1, 2 * 86400 + 3,
    ]  # fmt: skip
