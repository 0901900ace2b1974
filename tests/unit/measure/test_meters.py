import os
from pathlib import Path

import pytest

from voxcast.measure import meters
from voxcast.measure.processes import remove_groups

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
