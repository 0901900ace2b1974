import pytest

from voxcast.profiling.limits import Quiet, RunLimits


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        ((1.0, 10, 0.0, 0), None),
        ((5.0, 10, 0.0, 0), "timeout"),
        ((1.0, 101, 0.0, 0), "out_of_memory"),
        ((5.0, 101, 0.0, 0), "out_of_memory"),
        ((1.0, 10, 0.0, 1), "out_of_memory"),  # the kernel saw what we did not
        ((4.0, 10, 3.0, 0), "stalled"),
    ],
)
def test_each_limit_gives_its_outcome(seen, outcome):
    assert RunLimits(5.0, 100, 3.0).reached(*seen) == outcome


def test_without_limits_nothing_stops_a_run():
    assert RunLimits().reached(1e9, 10**15, 1e9, 0) is None


def test_quiet_ends_with_cpu_with_io_and_with_a_busy_gpu():
    quiet = Quiet(10.0)
    assert quiet.seen(4.0, 0.05, 0.0) == 4.0
    assert quiet.seen(5.0, 0.11, 0.0) == 0.0  # 1 % of a core over ten seconds
    assert quiet.seen(9.0, 0.12, 0.0) == 4.0
    assert quiet.seen(10.0, 0.12, 1.0) == 0.0
    assert quiet.seen(12.0, 0.12, 1.0) == 2.0
    assert quiet.seen(13.0, 0.12, 1.0, gpu_busy=True) == 0.0


def test_less_than_a_hundredth_of_a_core_is_quiet_for_as_long_as_it_lasts():
    quiet = Quiet(10.0)
    seen = [quiet.seen(t, 0.005 * t, 0.0) for t in range(11)]
    assert seen[-1] == 10.0
    assert Quiet(None).seen(100.0, 0.0, 0.0) == 0.0
