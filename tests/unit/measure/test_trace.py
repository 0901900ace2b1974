import pytest

from voxcast.measure.trace import Conditions, IdleTime, LogClock


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
