"""Meters, limits and clocks of a run, on recorded texts of the kernel."""

import os
import time
from pathlib import Path

import pytest

from voxcast.measure import meters, processes
from voxcast.measure.gpu import gpu_models
from voxcast.measure.host import cpu_model
from voxcast.measure.meters import Throttle, TreeCounters
from voxcast.measure.processes import Stat, remove_groups
from voxcast.measure.trace import Conditions, IdleTime, LogClock

V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/4f /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V1_MEMBERSHIP = "4:memory:/docker/4f/job\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n"
V2_MOUNTS = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V2_MEMBERSHIP = "0::/user.slice/user-1000.slice/session:2.scope\n"

V1_STAT = "cache 900\nrss 100\nshmem 5\ntotal_cache 9000\ntotal_rss 1000\ntotal_shmem 50\n"
V2_STAT = "anon 1000\nfile 9000\nkernel 77\nshmem 50\nfile_mapped 12\n"
V2_CPU = "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 0\n"


def test_current_groups_are_found_in_both_versions():
    groups = meters.current_groups(V1_MOUNTS, V1_MEMBERSHIP)
    assert groups["memory"] == Path("/sys/fs/cgroup/memory/job")
    assert groups["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert groups["unified"] == Path("/sys/fs/cgroup/unified")
    groups = meters.current_groups(V2_MOUNTS, V2_MEMBERSHIP)
    assert groups == {"unified": Path("/sys/fs/cgroup/user.slice/user-1000.slice/session:2.scope")}


def test_kernel_texts_are_read_without_the_page_cache():
    assert meters.resident_bytes(V1_STAT, 1) == 1050
    assert meters.resident_bytes(V2_STAT, 2) == 1050
    assert meters.usage_s("2500000000\n", 1) == 2.5
    assert meters.usage_s(V2_CPU, 2) == 2.5
    assert meters.oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n") == 3
    assert meters.oom_kills("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n") == 1
    assert meters.oom_kills("oom_kill_disable 0\nunder_oom 0\n") == 0


def test_a_version_2_group_is_read_from_its_files(tmp_path):
    texts = {
        "memory.stat": V2_STAT,
        "cpu.stat": V2_CPU,
        "memory.events": "oom_kill 2\n",
        "cgroup.threads": "7\n8\n9\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    group = meters.GroupMeter(tmp_path, tmp_path, 2)
    assert group.folders == (tmp_path,)
    assert group.read() == (1050, 2.5, 3)
    assert group.oom_kills() == 2
    assert group.peak_bytes() is None
    (tmp_path / "memory.peak").write_text("4096\n")
    assert group.peak_bytes() == 4096


def test_a_created_group_can_be_removed():
    group = meters.open_meter("test", meters.planned_group("test"))
    if group.folders:
        assert all(folder.is_dir() for folder in group.folders)
        remove_groups(group.folders)
        assert not any(folder.exists() for folder in group.folders)


@pytest.mark.parametrize(
    ("version", "limits"),
    [
        (1, {"memory.limit_in_bytes": "5000", "memory.memsw.limit_in_bytes": "5000"}),
        (2, {"memory.max": "5000", "memory.swap.max": "0"}),
    ],
)
def test_the_limit_has_its_files_in_both_versions(tmp_path, version, limits):
    group = meters.GroupMeter(tmp_path, tmp_path, version)
    group.limit_memory(5000)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == limits


def test_the_driver_moves_into_a_child_of_its_version_2_group(tmp_path):
    group = tmp_path / "session.scope"
    group.mkdir()
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (group / "cgroup.subtree_control").write_text("")
    assert meters.delegated(group) == group
    inside = group / meters.DRIVER
    assert (inside / "cgroup.procs").read_text() == str(os.getpid())
    assert (group / "cgroup.subtree_control").read_text() == "+memory"
    assert meters.delegated(inside) == group  # as the kernel describes us from then on


@pytest.mark.parametrize(("procs", "control"), [("1\n{us}\n", ""), ("{us}\n", "cpu memory")])
def test_a_shared_or_already_delegating_version_2_group_is_unchanged(tmp_path, procs, control):
    (tmp_path / "cgroup.procs").write_text(procs.format(us=os.getpid()))
    (tmp_path / "cgroup.subtree_control").write_text(control)
    assert meters.delegated(tmp_path) == tmp_path
    assert not (tmp_path / meters.DRIVER).exists()


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


def test_models_are_read_from_recorded_texts(tmp_path):
    for bus, model in (("0000:41:00.0", "NVIDIA H200"), ("0000:01:00.0", "NVIDIA A100-SXM4-40GB")):
        (tmp_path / bus).mkdir()
        text = f"Model: \t\t {model}\nIRQ:   \t\t 61\n"
        (tmp_path / bus / "information").write_text(text)
    assert gpu_models(tmp_path) == ("NVIDIA A100-SXM4-40GB", "NVIDIA H200")
    assert gpu_models(tmp_path / "none") == ()
    assert cpu_model("CPU implementer\t: 0x41\n") == os.uname().machine


@pytest.mark.parametrize(
    ("idle_times", "outcome"),
    [
        ((1.0, 10, 0.0, 0), None),
        ((5.0, 10, 0.0, 0), "timeout"),
        ((1.0, 101, 0.0, 0), "out_of_memory"),
        ((5.0, 101, 0.0, 0), "out_of_memory"),
        ((1.0, 10, 0.0, 1), "out_of_memory"),  # the kernel saw what we did not
        ((4.0, 10, 3.0, 0), "stalled"),
    ],
)
def test_each_limit_gives_its_outcome(idle_times, outcome):
    assert Conditions(5.0, 3.0, mem_limit_bytes=100).reached(*idle_times) == outcome


def test_quiet_ends_with_cpu_with_io_and_with_a_busy_gpu():
    idle_time = IdleTime(10.0)
    assert idle_time.update(4.0, 0.05, 0.0) == 4.0
    assert idle_time.update(5.0, 0.11, 0.0) == 0.0  # 1 % of a core over ten seconds
    assert idle_time.update(9.0, 0.12, 0.0) == 4.0
    assert idle_time.update(10.0, 0.12, 1.0) == 0.0
    assert idle_time.update(12.0, 0.12, 1.0) == 2.0
    assert idle_time.update(13.0, 0.12, 1.0, gpu_busy=True) == 0.0


def test_a_line_is_written_when_the_file_holds_all_of_it(tmp_path):
    path = tmp_path / "app.log"
    clock = LogClock(path)
    clock.read(0.0)  # the file does not exist yet
    path.write_bytes(b"one\ntw")
    clock.read(1.0)
    clock.read(2.0)
    path.write_bytes("one\ntwo\r\nthr\u00e9e\n".encode())
    clock.read(3.0)
    path.write_bytes(path.read_bytes() + b"\xff after the last reading")
    assert clock.lines() == (
        ["one", "two", "thr\u00e9e", "\ufffd after the last reading"], [1.0, 3.0, 3.0, 3.0],
    )  # fmt: skip
