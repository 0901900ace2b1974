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
from voxcast.laws.families import Gamma, Lognormal, TruncatedNormal, Weibull
from voxcast.laws.scipy_law import ScipyLaw

_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\(([^()]*)\)\s*")
_EXAMPLE = "write it as lognormal(3,0.5)"


@dataclass(frozen=True)
class NamedLaw:
    """How a law is written: names of its arguments, which of them must be above 0, an order."""

    make: Callable[..., ScipyLaw]
    arguments: tuple[str, ...]
    positive: tuple[str, ...]
    ordered: tuple[str, ...] = ()


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
        ("mean", "variance", "low", "high"), ("variance",), ("low", "high"),
    ),
    "pareto": NamedLaw(Pareto, ("scale", "shape"), ("scale", "shape")),
    "uniform": NamedLaw(Uniform, ("low", "high"), (), ("low", "high")),
    "beta": NamedLaw(Beta, ("a", "b"), ("a", "b")),
    "boundedpareto": NamedLaw(
        BoundedPareto, ("low", "high", "shape"), ("low", "shape"), ("low", "high")
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
        argument: _number(part, f"{argument} of {wanted}", infinite=argument == "high")
        for argument, part in zip(how.arguments, given, strict=True)
    }
    _check(values, how, wanted)
    try:
        # Far beyond what a double holds SciPy warns and answers inf or nan, which is judged here.
        with np.errstate(all="ignore"):
            law = how.make(*values.values())
            mean = law.mean
    except (OverflowError, ZeroDivisionError):
        mean = math.inf
    if not (math.isfinite(mean) and mean > 0):
        raise ConfigError("its mean is not a positive finite number", text.strip())
    return law


def _number(text: str, where: str, *, infinite: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"must be a number, not {text.strip()!r}", where) from None
    if math.isnan(value) or (math.isinf(value) and not infinite):
        raise ConfigError(f"must be finite, not {value}", where)
    return value


def _check(values: dict[str, float], how: NamedLaw, wanted: str) -> None:
    for name in how.positive:
        if not values[name] > 0:
            raise ConfigError(f"must be above 0, not {values[name]:g}", f"{name} of {wanted}")
    if how.ordered:
        low, high = (values[name] for name in how.ordered)
        if not 0 <= low < high:
            raise ConfigError(f"needs 0 <= low < high, not {low:g} and {high:g}", wanted)
    if how.make is Pareto and values["shape"] <= 1:
        raise ConfigError("has an infinite mean", wanted, "its shape must be above 1")
    if how.make is not TruncatedNormal and math.isinf(values.get("high", 0.0)):
        if "variance" not in values:
            raise ConfigError("must be finite, not inf", f"high of {wanted}")
