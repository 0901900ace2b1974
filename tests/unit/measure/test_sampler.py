import os
import time

from voxcast.measure import meters, processes
from voxcast.measure.meters import Throttle, TreeCounters
from voxcast.measure.processes import Stat

STAT = b"42 (my (odd) app) S 7 42 42 0 -1 4194304 9 9 0 0 120 30 40 10 20 0 5 0 1234 99 8 7\n"
STATUS = b"Name:\tapp\nVmRSS:\t 900 kB\nRssAnon:\t 500 kB\nRssFile:\t 300 kB\nRssShmem:\t 100 kB\n"
ROLLUP = b"""[rollup]\nPss:  400 kB\nPss_Anon:  250 kB\nPss_File: 100 kB\nPss_Shmem:  50 kB
Anonymous:  500 kB
"""
IO = b"""rchar: 100\nwchar: 20\nsyscr: 5\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 8192
cancelled_write_bytes: 0
"""


def test_kernel_texts_of_a_process_are_read():
    assert processes.parse_stat(STAT) == processes.Stat("S", 7, 2.0, 5, 1234)
    assert meters.parse_resident(STATUS) == (500 * 1024, 100 * 1024)
    assert meters.parse_resident(b"Name:\tzombie\n") == (0, 0)
    assert meters.parse_shares(ROLLUP) == (500 * 1024, 250 * 1024, 50 * 1024)
    assert meters.parse_shares(b"[rollup]\nPss:  400 kB\n") is None  # before Linux 5.4
    assert meters.parse_traffic(IO) == (4096, 8192, 120)


def test_an_ended_process_reads_as_none():
    pid = os.fork()
    if not pid:
        os._exit(0)
    assert processes.read_stat(pid) is not None  # running, or a zombie
    os.waitpid(pid, 0)
    assert processes.read_stat(pid) is None
    assert processes.read(pid, "io") is None
    assert processes.alive({pid, os.getpid()}) == {os.getpid()}


def of(started, ppid):
    return Stat("R", ppid, 0.0, 1, started)


def test_counters_inherited_by_a_parent_count_once():
    counters = TreeCounters(1)
    assert counters.add_sample({1: (of(0, 99), (1.0,)), 2: (of(5, 1), (2.0,))}) == (3.0,)
    assert counters.add_sample({1: (of(0, 99), (3.5,))}) == (3.5,)
    assert counters.lost == (0.0,)


def test_counters_of_an_orphan_are_retained_and_sums_never_decrease():
    counters = TreeCounters(2)
    counters.add_sample({1: (of(0, 99), (1.0, 0.0)), 2: (of(5, 1), (2.0, 8.0))})
    counters.add_sample({2: (of(5, 0), (3.0, 8.0))})  # its parent is gone, and has lost 1 s
    assert counters.sums == (4.0, 8.0)
    assert counters.add_sample({}) == (4.0, 8.0)
    assert counters.lost == (4.0, 8.0)


def test_a_reused_pid_is_another_process():
    counters = TreeCounters(1)
    counters.add_sample({2: (of(5, 0), (3.0,))})
    assert counters.add_sample({2: (of(6, 0), (0.5,))}) == (3.5,)


def test_one_very_expensive_sample_does_not_end_the_sampling():
    throttle = Throttle(1e-9, longest_pause_s=0.01)
    with throttle.reading():
        sum(range(10_000))
    time.sleep(0.02)
    assert throttle.due()
