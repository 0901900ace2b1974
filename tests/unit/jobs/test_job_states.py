"""What Slurm says of jobs, in lines that Slurm 22.05 wrote."""

from __future__ import annotations

import pytest

from voxcast.jobs.slurm import from_sacct, from_scontrol

LINE = (
    "{id}|{raw}|{state}|{exit}|61|00:01.500|{rss}|200M|n1|2026-11-23T04:04:09|"
    "2026-11-23T04:04:10|Unknown"
)


def lines(*rows: tuple[str, str, str, str]) -> str:
    return "\n".join(
        LINE.format(id=job, raw="7", state=state, exit=exit_code, rss=rss)
        for job, state, exit_code, rss in rows
    )


CASES = {
    "completed": ([("7_1", "COMPLETED", "0:0", ""), ("7_1.batch", "COMPLETED", "0:0", "120M")],
                  "completed"),
    "too long": ([("7_1", "TIMEOUT", "0:0", ""), ("7_1.batch", "CANCELLED", "0:15", "9M")],
                 "timeout"),
    "killed by the kernel": ([("7_1", "OUT_OF_MEMORY", "0:125", ""),
                              ("7_1.batch", "OUT_OF_MEMORY", "0:125", "1200K")], "out_of_memory"),
    "killed by Slurm": ([("7_1", "FAILED", "0:9", ""),
                         ("7_1.batch", "CANCELLED by 0", "0:9", "310M")],
                        "out_of_memory"),
    "ends well after a part was killed": (
        [("7_1", "COMPLETED", "0:0", ""), ("7_1.batch", "OUT_OF_MEMORY", "0:0", "")],
        "out_of_memory"),
    "a step killed by Slurm": ([("7_1", "FAILED", "9:0", ""), ("7_1.batch", "FAILED", "9:0", "9M"),
                                ("7_1.0", "CANCELLED by 0", "0:9", "310M")], "out_of_memory"),
    "goes on after Slurm killed a step": (
        [("7_1", "COMPLETED", "0:0", ""), ("7_1.batch", "COMPLETED", "0:0", "9M"),
         ("7_1.0", "CANCELLED by 0", "0:9", "310M")], "out_of_memory"),
    "a step cancelled by its user": (
        [("7_1", "FAILED", "9:0", ""), ("7_1.batch", "FAILED", "9:0", "9M"),
         ("7_1.0", "CANCELLED by 1000", "0:9", "9M")], "failed"),
    "a step that ended with the script": (
        [("7_1", "COMPLETED", "0:0", ""), ("7_1.batch", "COMPLETED", "0:0", "9M"),
         ("7_1.0", "CANCELLED", "0:15", "9M")], "completed"),
    "killed by somebody": ([("7_1", "FAILED", "0:9", ""), ("7_1.batch", "FAILED", "0:9", "9M")],
                           "failed"),
    "its error": ([("7_1", "FAILED", "3:0", ""), ("7_1.batch", "FAILED", "3:0", "9M")], "failed"),
    "by its user": ([("7_1", "CANCELLED by 1000", "0:0", "")], "cancelled"),
    "preempted": ([("7_1", "PREEMPTED", "0:0", "")], "preempted"),
    "the node": ([("7_1", "NODE_FAIL", "0:0", "")], "node_failure"),
    "cut off": ([("7_1", "OUT_OF_ME+", "0:125", "")], "out_of_memory"),
    "running": ([("7_1", "RUNNING", "0:0", "")], None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_state_tells_the_outcome(name: str) -> None:
    rows, outcome = CASES[name]
    ((key, state),) = from_sacct(lines(*rows)).items()
    assert key == ("7", 1)
    assert state.outcome == outcome
    assert (state.runtime_s, state.facts["cpu_s"], state.facts["node"]) == (61.0, 1.5, "n1")


def test_the_note_of_slurm_in_the_log_tells_that_memory_was_too_little() -> None:
    text = lines(("7_1", "FAILED", "1:0", ""), ("7_1.batch", "FAILED", "1:0", "9M"))
    noted = from_sacct(text, lambda _: ["slurmstepd: error: Job 7 exceeded memory limit"])
    assert noted["7", 1].outcome == "out_of_memory"
    assert from_sacct(text)["7", 1].outcome == "failed"


def test_waiting_tasks_in_one_line_are_all_there() -> None:
    states = from_sacct(lines(("7_[2,4-6%2]", "CANCELLED by 0", "0:0", ""),
                              ("7_1", "RUNNING", "0:0", "")))  # fmt: skip
    assert {number for _, number in states} == {1, 2, 4, 5, 6}
    assert {states["7", n].outcome for n in (2, 4, 5, 6)} == {"cancelled"}
    assert states["7", 1].is_running


def test_scontrol_says_the_same_without_times_of_the_processor() -> None:
    text = (
        "JobId=9 ArrayJobId=7 ArrayTaskId=2 JobName=x JobState=FAILED Reason=NonZeroExitCode "
        "ExitCode=0:9 RunTime=00:01:01 SubmitTime=2026-11-23T04:04:09 StartTime=Unknown "
        "NodeList=n1\n"
        "JobId=7 ArrayJobId=7 ArrayTaskId=3-5%2 JobName=x JobState=PENDING ExitCode=0:0 "
        "RunTime=00:00:00 NodeList=\n"
    )
    states = from_scontrol(text)
    assert states["7", 2].outcome == "out_of_memory"
    assert (states["7", 2].runtime_s, states["7", 2].facts["cpu_s"], states["7", 2].job) == (
        61.0,
        None,
        "9",
    )
    assert [states["7", n].state for n in (3, 4, 5)] == ["PENDING"] * 3


def test_unreadable_lines_are_left_out() -> None:
    assert from_sacct("garbage\n|||\n8|8|RUNNING\n8_1|8|RUN") == {}
    whole = lines(("8_1", "RUNNING", "0:0", ""))
    assert set(from_sacct(f"{whole}\n{whole[:20].replace('8_1', '8_2')}")) == {("8", 1)}
    assert from_scontrol("JobId=9 ArrayJobId=7 ArrayTaskId=2 JobName=x\n") == {}
    assert from_scontrol("slurm_load_jobs error\n") == {}
