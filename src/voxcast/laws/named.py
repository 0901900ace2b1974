"""Laws by the text a command line takes, ``lognormal(3,0.5)``.

Arguments come in the order and parametrisation of the papers on reservations for stochastic jobs
(Aupy et al., IPDPS 2019, table 1; Gainaru et al., IPDPS 2020), which is not SciPy's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from voxcast.errors import ConfigError
from voxcast.laws.bounded import Beta, BoundedPareto, Pareto, Uniform
from voxcast.laws.distributions import Gamma, Lognormal, TruncatedNormal, Weibull
from voxcast.laws.scipy_law import ScipyLaw

_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\(([^()]*)\)\s*")
_EXAMPLE = "write it as lognormal(3,0.5)"


@dataclass(frozen=True)
class NamedLaw:
    """How a law is written: names of its arguments, and which of them must be above 0.

    Where there are `low` and `high` they must rise from 0; ``endless`` lets the latter be inf.
    """

    make: Callable[..., ScipyLaw]
    arguments: tuple[str, ...]
    positive: tuple[str, ...] = ()
    endless: bool = False


NAMED: dict[str, NamedLaw] = {
    "exponential": NamedLaw(lambda rate: Weibull(1.0, 1 / rate), ("rate",), ("rate",)),
    "weibull": NamedLaw(
        lambda scale, shape: Weibull(shape, scale), ("scale", "shape"), ("scale", "shape")
    ),
    "gamma": NamedLaw(
        lambda shape, rate: Gamma(shape, 1 / rate), ("shape", "rate"), ("shape", "rate")
    ),
    "lognormal": NamedLaw(
        lambda mu, sigma: Lognormal(sigma, math.exp(mu)), ("mu", "sigma"), ("sigma",)
    ),
    "truncnormal": NamedLaw(
        lambda mean, variance, low, high: TruncatedNormal(mean, math.sqrt(variance), low, high),
        ("mean", "variance", "low", "high"), ("variance",), endless=True,
    ),
    "pareto": NamedLaw(Pareto, ("scale", "shape"), ("scale", "shape")),
    "uniform": NamedLaw(Uniform, ("low", "high")),
    "beta": NamedLaw(Beta, ("a", "b"), ("a", "b")),
    "boundedpareto": NamedLaw(
        BoundedPareto, ("low", "high", "shape"), ("low", "shape")
    ),
}  # fmt: skip


def parse_law(text: str) -> ScipyLaw:
    """Return the law that ``text`` names, see `NAMED`.

    Raises
    ------
    ConfigError
        If there is no such law, its arguments are not what it takes, or its mean is not finite.

    Examples
    --------
    >>> parse_law("gamma(2,2)")
    Gamma(shape=2.0, scale=0.5)
    >>> parse_law("truncnormal(8,2,0,inf)").support
    (0.0, inf)
    """
    call = _CALL.fullmatch(text)
    if call is None:
        raise ConfigError("is no law", repr(text), _EXAMPLE)
    name, given = call[1].lower(), call[2].split(",")
    if name not in NAMED:
        raise ConfigError("unknown law", name, f"known are {', '.join(NAMED)}")
    how = NAMED[name]
    wanted = f"{name}({','.join(how.arguments)})"
    if len(given) != len(how.arguments):
        number = len(given) if call[2].strip() else 0
        raise ConfigError(f"takes {len(how.arguments)} arguments, not {number}", wanted)
    values = {
        argument: _number(part, f"{argument} of {wanted}", how.endless and argument == "high")
        for argument, part in zip(how.arguments, given, strict=True)
    }
    for argument in how.positive:
        if not values[argument] > 0:
            raise ConfigError(
                f"must be above 0, not {values[argument]:g}", f"{argument} of {wanted}"
            )
    if "high" in values and not 0 <= values["low"] < values["high"]:
        limits = f"{values['low']:g} and {values['high']:g}"
        raise ConfigError(f"needs 0 <= low < high, not {limits}", wanted)
    try:
        # Far beyond what a double holds SciPy warns and answers inf or nan, which is judged here.
        with np.errstate(all="ignore"):
            law = how.make(*values.values())
            mean = law.mean
    except (OverflowError, ZeroDivisionError):
        mean = math.inf
    if mean == math.inf:
        raise ConfigError("has an infinite mean", text.strip(), "no request is enough on average")
    if not mean > 0:
        raise ConfigError("has no mean that a double can hold", text.strip())
    return law


def _number(text: str, where: str, may_be_infinite: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"must be a number, not {text.strip()!r}", where) from None
    if math.isnan(value) or (math.isinf(value) and not may_be_infinite):
        raise ConfigError(f"must be finite, not {value}", where)
    return value
