import pytest

from voxcast.apps.new import propose_phases
from voxcast.apps.phase_log import phases_from_log

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
