"""How often a client may ask, by a clock of the test."""

from voxcast.web.guards.rate_limit import RateLimit


def test_a_client_that_was_silent_for_long_has_no_more_than_a_burst() -> None:
    now = [0.0]
    limit = RateLimit(2.0, clock=lambda: now[0])
    assert [limit.wait_s("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]
    now[0] = 3600.0
    assert [limit.wait_s("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]
    assert limit.wait_s("b") == 0.0
