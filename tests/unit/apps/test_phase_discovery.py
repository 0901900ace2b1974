import re

import pytest

from voxcast.apps.phase_discovery import (
    START_END,
    STATED_SECONDS,
    TIME_STAMPS,
    propose_phases,
)
from voxcast.apps.phase_patterns import phases_from_log

LOGS = {
    START_END: (
        "tool 1.2\nSTART skull strip\nnoise\nEND skull strip\nSTART register\nEND register\n",
        {"skull_strip": (1.0, 3.0), "register": (4.0, 5.0)},
    ),
    STATED_SECONDS: (
        "reading /data/a.nii.gz\nN4 correction took 4.5 s\nregistration time: 12 seconds\n",
        {"n4_correction": (0.0, 4.5), "registration": (4.5, 16.5)},
    ),
}


@pytest.mark.parametrize("kind", [START_END, STATED_SECONDS])
def test_what_is_proposed_reads_the_log_it_was_proposed_from(kind):
    log, expected = LOGS[kind]
    proposal = propose_phases(log.splitlines())
    assert proposal.kind == kind
    written_s = [float(n) for n in range(len(log.splitlines()))]
    phases = phases_from_log(log, proposal.patterns, written_s)
    assert {phase.name: (phase.start_s, phase.end_s) for phase in phases} == expected


def test_start_lines_alone_show_phases_up_to_the_next():
    log = "START load\nSTART smooth\nnoise\nSTART label\nfinished\n"
    proposal = propose_phases(log.splitlines())
    assert proposal.kind == START_END
    phases = phases_from_log(log, proposal.patterns, [0.0, 1.0, 2.0, 4.0, 9.0], runtime_s=9.0)
    assert [(p.name, p.start_s, p.end_s) for p in phases] == [
        ("load", 0.0, 1.0), ("smooth", 1.0, 4.0), ("label", 4.0, 9.0)
    ]  # fmt: skip
    assert propose_phases(["Starting the server", "noise"]).patterns == {}


def test_messages_followed_by_much_of_the_time_start_phases():
    log = (
        "12:00:00 loading /data/a1.nii\n12:00:02 fitting the model\n"
        "12:00:12 writing labels to /out/b.nii\n12:00:20 goodbye\n"
    )
    proposal = propose_phases(log.splitlines())
    assert proposal.kind == TIME_STAMPS
    phases = phases_from_log(log, proposal.patterns)
    assert [(p.name, p.start_s, p.end_s) for p in phases] == [
        ("loading", 0.0, 2.0), ("fitting_the_model", 2.0, 12.0), ("writing_labels_to", 12.0, 12.0),
    ]  # fmt: skip
    # The last lasts to the end of the run, which the profiler knows.
    assert phases_from_log(log, proposal.patterns, runtime_s=21.0)[-1].end_s == 21.0


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
    proposal = propose_phases(lines.splitlines())
    assert list(proposal.patterns) == ["fit"]
    assert re.compile(proposal.patterns["fit"])
    assert len(phases_from_log(lines, proposal.patterns, [0.0, 1.0])) == 1


@pytest.mark.parametrize("log", ["", "no phases here", "12:00:00 a\n12:00:00 b", "started\nended"])
def test_a_log_without_such_lines_proposes_nothing(log):
    assert propose_phases(log.splitlines()).patterns == {}


def test_hundreds_of_steps_are_no_phases():
    log = [f"step{n}x took 2 s" for n in range(100)]
    assert propose_phases(log).patterns == {}
