"""Times that applications print in front of their messages, in the forms that are common."""

from __future__ import annotations

import re
from datetime import date

_CLOCK = r"(?P<h>\d\d):(?P<min>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Most specific first: a date with a clock contains a clock.
FORMS = {
    "2024-05-01 12:00:00,123": rf"(?P<y>\d{{4}})[-/](?P<m>\d\d)[-/](?P<d>\d\d)[T _-]{_CLOCK}",
    "2024:05:01:12:00:00": rf"(?P<y>\d{{4}}):(?P<m>\d\d):(?P<d>\d\d):{_CLOCK}",
    "240501-12:00:00,123": rf"(?P<y>\d\d)(?P<m>\d\d)(?P<d>\d\d)-{_CLOCK}",
    "Wed May  1 12:00:00 UTC 2024": (
        rf"(?:[A-Z][a-z]{{2}} )?(?P<m>{'|'.join(_MONTHS)}) +(?P<d>\d\d?) {_CLOCK}"
        r"(?: [A-Z]{2,5})? (?P<y>\d{4})"
    ),
    "12:00:00.123": rf"(?<![\d:]){_CLOCK}(?![\d:])",
}
_PATTERNS = [re.compile(form) for form in FORMS.values()]
_GROUP = re.compile(r"\?P<\w+>")
DAY_S = 86400.0


def stamp_seconds(text: str) -> float | None:
    """Return the time that a text begins with, in seconds since an arbitrary day.

    A clock without a date counts from midnight.

    Examples
    --------
    >>> stamp_seconds("240501-00:00:01,500") - stamp_seconds("2024-04-30T23:59:59")
    2.5
    >>> stamp_seconds("00:01:01") is not None, stamp_seconds("no time") is None
    (True, True)
    """
    for pattern in _PATTERNS:
        match = pattern.match(text)
        if match is not None:
            return _seconds(match)
    return None


def stamp_form(line: str) -> tuple[str, int, int] | None:
    """Return the first time in a line: its form as a pattern without groups, start and end.

    Numbers that are no date or no time of day, such as a month 13, are skipped.
    """
    for form, pattern in zip(FORMS.values(), _PATTERNS, strict=True):
        match = pattern.search(line)
        if match is not None and _seconds(match) is not None:
            return _GROUP.sub("?:", form), match.start(), match.end()
    return None


def unwrapped(seconds: list[float]) -> list[float]:
    """Return times in order of writing with a day added at each midnight of a bare clock.

    Examples
    --------
    >>> unwrapped([86390.0, 5.0, 6.0])
    [86390.0, 86405.0, 86406.0]
    """
    days, previous, times = 0.0, float("-inf"), []
    for clock_s in seconds:
        if clock_s + days < previous - DAY_S / 2:
            days += DAY_S
        times.append(clock_s + days)
        previous = times[-1]
    return times


def _seconds(match: re.Match[str]) -> float | None:
    fields = match.groupdict()
    hour, minute, second = (int(fields[name]) for name in ("h", "min", "s"))
    if hour > 23 or minute > 59 or second > 60:  # 60 is a leap second
        return None
    days = 0
    if "m" in fields:
        month, year = fields["m"], int(fields["y"])
        number = _MONTHS.index(month) + 1 if month in _MONTHS else int(month)
        try:
            days = date(year + 2000 if year < 100 else year, number, int(fields["d"])).toordinal()
        except ValueError:
            return None
    fraction_s = float(f"0.{fields['f'] or 0}")
    return days * DAY_S + 3600 * hour + 60 * minute + second + fraction_s
