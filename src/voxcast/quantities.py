"""Parsing and formatting of times, sizes, money and counts; the package's only parser of units."""

from __future__ import annotations

import math
import re

from voxcast.errors import ConfigError

# Decimal units are SI (GB = 10**9 bytes), binary ones IEC (GiB = 2**30); Slurm's bare K, M, G and
# Nextflow's KB, MB, GB are binary and are parsed by `slurm_bytes` and `nextflow_bytes`. Clock
# times differ too: 2:30 is 2 h 30 min for users and 2 min 30 s for Slurm.
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SLURM_BYTES = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_NEXTFLOW_BYTES = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40, "pb": 2**50}
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER_UNIT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]+)\s*")
_DURATION = re.compile(r"\s*(\d{1,9})\s*(d|h|min|m)\s*(\d{1,9})\s*(h|min|m|s)\s*", re.I | re.A)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{1,2})(?::(\d{1,2}(?:\.\d+)?))?")
_SLURM_CLOCK = re.compile(r"(?:(?:(\d{1,6})-)?(\d{1,6}):)?(\d{1,3}):(\d{1,2}(?:\.\d{1,9})?)")
_USD = re.compile(
    r"\s*(?:\$\s*)?([+-]?(?:\d{1,12}\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)\s*(?:USD)?\s*", re.IGNORECASE
)
_NEXTFLOW_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|d|h|m|s)")
_NEXTFLOW_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_bytes(text: str) -> int:
    """Parse a size such as ``1.5GB`` or ``512MiB`` into bytes.

    Raises
    ------
    ConfigError
        If there is no number, no unit, or the size is negative.

    Examples
    --------
    >>> parse_bytes("1.5GB"), parse_bytes("2 MiB")
    (1500000000, 2097152)
    """
    return round(_scaled(text, _BYTES, "size", "1.5GB or 512MiB"))


def slurm_bytes(text: str) -> int:
    """Parse a size in the format of Slurm, ``340K`` or ``1.5G``, whose units are binary.

    Examples
    --------
    >>> slurm_bytes("340K")
    348160
    """
    return round(_scaled(text, _SLURM_BYTES, "Slurm size", "340K or 1.5G"))


def parse_seconds(text: str) -> float:
    """Parse a duration: ``90s``, ``1.5h``, ``2:30`` (h:min), ``1-02:03:04`` (d-h:min:s).

    What `format_seconds` writes, such as ``2 h 13 min``, is one, too.

    Examples
    --------
    >>> parse_seconds("1.5h"), parse_seconds("1-02:03:04"), parse_seconds("1h30m")
    (5400.0, 93784.0, 5400.0)
    """
    clock = _CLOCK.fullmatch(text.strip())
    if clock:
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    parts = _DURATION.fullmatch(text)
    if parts and _SECONDS[parts[2].lower()] > _SECONDS[parts[4].lower()]:
        return sum(float(parts[n]) * _SECONDS[parts[n + 1].lower()] for n in (1, 3))
    return _scaled(text, _SECONDS, "duration", "90s, 30min, 1h30min or 02:30:00")


def parse_usd(text: str) -> float:
    """Parse an amount of money: ``0.50``, ``0.50 USD`` or ``$0.50``.

    Examples
    --------
    >>> parse_usd("0.50"), parse_usd("$2"), parse_usd("1.5 USD"), parse_usd("1e3")
    (0.5, 2.0, 1.5, 1000.0)
    """
    match = _USD.fullmatch(text)
    if match is None:
        raise ConfigError(f"not an amount of US dollars: {text!r}", then="write it as 0.50")
    value = float(match[1])
    if value < 0:
        raise ConfigError(f"an amount of US dollars cannot be negative here: {text!r}")
    return value


def memory_option(memory_bytes: float, cpus: int, *, per_cpu: bool = False) -> str:
    """Return the option of ``sbatch`` that requests memory, of a job or of each of its CPUs.

    Examples
    --------
    >>> memory_option(3 * 2**30, 6), memory_option(3 * 2**30, 6, per_cpu=True)
    ('--mem=3072M', '--mem-per-cpu=512M')
    """
    if per_cpu:
        return f"--mem-per-cpu={slurm_memory(memory_bytes / cpus)}"
    return f"--mem={slurm_memory(memory_bytes)}"


def slurm_seconds(text: str) -> float:
    """Parse a duration in the format of Slurm's accounting, ``[[D-]HH:]MM:SS[.fraction]``.

    Examples
    --------
    >>> slurm_seconds("1-02:03:04"), slurm_seconds("02:30.500")
    (93784.0, 150.5)
    """
    clock = _SLURM_CLOCK.fullmatch(text.strip())
    if clock is None:
        raise ConfigError(f"not a Slurm duration: {text!r}", then="write it as D-HH:MM:SS")
    days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def nextflow_seconds(text: str) -> float:
    """Parse a duration in the format of Nextflow, ``1m 5s`` or ``350ms``.

    Examples
    --------
    >>> nextflow_seconds("1m 5s"), nextflow_seconds("1d 2h")
    (65.0, 93600.0)
    """
    parts = [_NEXTFLOW_TIME.fullmatch(part) for part in text.split()]
    if not parts or not all(parts):
        raise ConfigError(f"not a Nextflow duration: {text!r}", then="write it as 1h 2m 3s")
    return sum(float(part[1]) * _NEXTFLOW_SECONDS[part[2]] for part in parts if part)


def nextflow_bytes(text: str) -> int:
    """Parse a size in the format of Nextflow, ``1.2 GB``, whose units are binary.

    Examples
    --------
    >>> nextflow_bytes("1.5 KB")
    1536
    """
    return round(_scaled(text, _NEXTFLOW_BYTES, "Nextflow size", "1.2 GB"))


def _scaled(text: str, units: dict[str, float] | dict[str, int], noun: str, example: str) -> float:
    match = _NUMBER_UNIT.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise ConfigError(f"not a {noun}: {text!r}", then=f"write a number and a unit: {example}")
    value = float(match[1]) * units[match[2].lower()]
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"a {noun} cannot be negative or infinite: {text!r}")
    return value


def format_bytes(size_bytes: float) -> str:
    """Format a size with three significant digits in decimal units.

    Examples
    --------
    >>> format_bytes(1_234_000_000), format_bytes(850)
    ('1.23 GB', '850 B')
    """
    for unit in ("TB", "GB", "MB", "kB"):
        factor = _BYTES[unit.lower()]
        if abs(size_bytes) >= factor:
            return f"{_three_digits(size_bytes / factor)} {unit}"
    return f"{size_bytes:.0f} B"


def format_seconds(duration_s: float) -> str:
    """Format a duration in the largest suitable unit.

    Examples
    --------
    >>> format_seconds(4.216), format_seconds(95), format_seconds(8000)
    ('4.22 s', '1 min 35 s', '2 h 13 min')
    """
    if not math.isfinite(duration_s):
        return "unknown"
    if duration_s < 60:
        return f"{_three_digits(duration_s)} s"
    minutes, seconds = divmod(round(duration_s), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_short_seconds(duration_s: float) -> str:
    """Format a duration that may be far below a second.

    Examples
    --------
    >>> format_short_seconds(4.216), format_short_seconds(0.0123), format_short_seconds(1e-20)
    ('4.22 s', '12.3 ms', '0 s')
    """
    for unit, factor in (("ms", 1e3), ("µs", 1e6), ("ns", 1e9)):
        if abs(duration_s) * factor >= 1 and abs(duration_s) < 1e3 / factor:
            return f"{_three_digits(duration_s * factor)} {unit}"
    return format_seconds(round(duration_s, 9))


def counted(n: int, noun: str) -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> counted(1, "subject"), counted(2, "CPU"), counted(3, "process")
    ('1 subject', '2 CPUs', '3 processes')
    """
    return f"{n} {noun}{'' if n == 1 else 'es' if noun.endswith('s') else 's'}"


def format_voxels(count: float) -> str:
    """Format a number of voxels with three significant digits, in millions where it is large.

    Examples
    --------
    >>> format_voxels(10_223_616), format_voxels(4096)
    ('10.2 million voxels', '4096 voxels')
    """
    if count < 10_000:
        return f"{count:.0f} voxels"
    return f"{_three_digits(count / 1e6)} million voxels"


def slurm_clock(duration_s: float) -> str:
    """Format a duration for Slurm, ``[D-]HH:MM:SS``, rounded up to seconds.

    Examples
    --------
    >>> slurm_clock(59.2), slurm_clock(93784)
    ('00:01:00', '1-02:03:04')
    """
    minutes, seconds = divmod(math.ceil(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02}:{minutes:02}:{seconds:02}"
    return f"{days}-{clock}" if days else clock


def slurm_memory(size_bytes: float) -> str:
    """Format a size for ``--mem`` of Slurm, rounded up to its M, which is 2**20 bytes.

    Examples
    --------
    >>> slurm_memory(1e9), slurm_memory(2**20), slurm_memory(2**20 + 1)
    ('954M', '1M', '2M')
    """
    return f"{math.ceil(size_bytes / _SLURM_BYTES['m'])}M"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 3)}f}"
