"""Laws parsed from text on the command line, such as ``lognormal(3,0.5)``.

Order and parametrisation of the arguments are those of the papers on stochastic jobs
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
    """A law that can be written on the command line.

    Attributes
    ----------
    arguments : tuple of str
        Names, in order. Where there are ``low`` and ``high``, 0 <= low < high must hold.
    positive : tuple of str
        Arguments that must be above 0.
    high_may_be_infinite : bool
        Whether ``high`` may be infinite.
    """

    make: Callable[..., ScipyLaw]
    arguments: tuple[str, ...]
    positive: tuple[str, ...] = ()
    high_may_be_infinite: bool = False


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
        ("mean", "variance", "low", "high"), ("variance",), high_may_be_infinite=True,
    ),
    "pareto": NamedLaw(Pareto, ("scale", "shape"), ("scale", "shape")),
    "uniform": NamedLaw(Uniform, ("low", "high")),
    "beta": NamedLaw(Beta, ("a", "b"), ("a", "b")),
    "boundedpareto": NamedLaw(
        BoundedPareto, ("low", "high", "shape"), ("low", "shape")
    ),
}  # fmt: skip


def parse_law(text: str) -> ScipyLaw:
    """Return the law that ``text`` describes; see `NAMED`.

    Raises
    ------
    ConfigError
        If the law is unknown, its arguments are invalid, or its mean is not finite.

    Examples
    --------
    >>> parse_law("gamma(2,2)")
    Gamma(shape=2.0, scale=0.5)
    >>> parse_law("truncnormal(8,2,0,inf)").support
    (0.0, inf)
    """
    call = _CALL.fullmatch(text)
    if call is None:
        raise ConfigError("cannot be parsed as a law", repr(text), _EXAMPLE)
    name, texts = call[1].lower(), call[2].split(",")
    if name not in NAMED:
        raise ConfigError("unknown law", name, f"choose from {', '.join(NAMED)}")
    named_law = NAMED[name]
    signature = f"{name}({','.join(named_law.arguments)})"
    if len(texts) != len(named_law.arguments):
        number = len(texts) if call[2].strip() else 0
        raise ConfigError(f"takes {len(named_law.arguments)} arguments, not {number}", signature)
    values = {
        argument: _number(
            part,
            f"{argument} of {signature}",
            named_law.high_may_be_infinite and argument == "high",
        )
        for argument, part in zip(named_law.arguments, texts, strict=True)
    }
    for argument in named_law.positive:
        if not values[argument] > 0:
            raise ConfigError(
                f"must be above 0, not {values[argument]:g}", f"{argument} of {signature}"
            )
    if "high" in values and not 0 <= values["low"] < values["high"]:
        limits = f"{values['low']:g} and {values['high']:g}"
        raise ConfigError(f"needs 0 <= low < high, not {limits}", signature)
    try:
        # Out of the range of a double SciPy warns and returns inf or nan, both handled below.
        with np.errstate(all="ignore"):
            law = named_law.make(*values.values())
            mean = law.mean
    except (OverflowError, ZeroDivisionError):
        mean = math.inf
    if mean == math.inf:
        raise ConfigError(
            "has an infinite mean", text.strip(), "no request has a finite mean cost"
        )
    if not mean > 0:
        raise ConfigError("has a mean out of the range of a double", text.strip())
    return law


def _number(text: str, where: str, may_be_infinite: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"must be a number, not {text.strip()!r}", where) from None
    if math.isnan(value) or (math.isinf(value) and not may_be_infinite):
        raise ConfigError(f"must be finite, not {value}", where)
    return value
