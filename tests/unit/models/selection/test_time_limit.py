"""The time limit ends code that cannot be asked to stop, also where it swallows exceptions."""

import contextlib
import math
import threading
import time

import pytest

from voxcast.models.fit_times import TimeUpError, time_limit


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_block_is_stopped_and_the_next_is_not() -> None:
    with pytest.raises(TimeUpError), time_limit(0.05):
        spin(60)
    with time_limit(60):
        spin(0.01)
    with time_limit(math.inf):
        spin(0.01)
    with pytest.raises(TimeUpError), time_limit(0):
        pytest.fail("the block must not start")


def test_swallowed_and_replaced_exceptions_end_the_block_all_the_same() -> None:
    def swallows() -> None:
        for _ in range(3):
            with contextlib.suppress(BaseException):  # as in a callback of a library
                spin(60)

    with pytest.raises(TimeUpError), time_limit(0.05):
        swallows()

    def replaces() -> None:
        try:
            spin(60)
        except BaseException:
            raise ValueError("not a valid buffer") from None

    with pytest.raises(TimeUpError), time_limit(0.05):
        replaces()


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="ours"), time_limit(60):
        raise ValueError("ours")


def test_there_is_no_limit_in_another_thread() -> None:
    ended = []

    def work() -> None:
        with time_limit(0.01):
            spin(0.1)
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [True]
