"""A parameter worked out from others, by an arithmetic expression in a campaign's file.

The expression is read as a tree in which only arithmetic is allowed; nothing is ever executed.
"""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "round": round, "int": int}
MAX_LENGTH = 200
MAX_EXPONENT = 64  # of a power: a larger one could keep a machine busy for ever


def evaluate(expression: str, parameters: Mapping[str, Any]) -> float:
    """Return the value of ``expression``, in which the numbers of ``parameters`` may be named.

    Raises
    ------
    ConfigError
        If it holds anything but numbers, names of parameters, ``+ - * / // % **``, ``min``,
        ``max``, ``round`` and ``int``, or has no finite value.

    Examples
    --------
    >>> evaluate("max(1, batch // 2) * 3", {"batch": 9})
    12
    """
    if len(expression) > MAX_LENGTH:
        raise ConfigError(f"is longer than {MAX_LENGTH} characters", expression[:40] + "…")
    try:
        tree = ast.parse(expression, mode="eval")
        value = _value(tree.body, parameters, expression)
    except (SyntaxError, ValueError, RecursionError):
        raise ConfigError("is not an expression", repr(expression)) from None
    except (ArithmeticError, TypeError) as error:
        raise ConfigError(f"has no value ({error})", repr(expression)) from None
    if not math.isfinite(value):
        raise ConfigError("has no finite value", repr(expression))
    return value


def _value(node: ast.AST, parameters: Mapping[str, Any], expression: str) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            known = parameters.get(name)
            if isinstance(known, int | float) and not isinstance(known, bool):
                return known
            numbers = [n for n, v in parameters.items() if isinstance(v, int | float)]
            names = ", ".join(sorted(numbers)) or "none"
            raise ConfigError(
                f"{name} is no parameter with a number", repr(expression), f"known are: {names}"
            )
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand, parameters, expression))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            first = _value(left, parameters, expression)
            second = _value(right, parameters, expression)
            if isinstance(op, ast.Pow) and abs(second) > MAX_EXPONENT:
                raise ConfigError(f"exponent above {MAX_EXPONENT}", repr(expression))
            result = OPERATORS[type(op)](first, second)
            if isinstance(result, complex):
                raise ConfigError("has no real value", repr(expression))
            return result
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(arg, parameters, expression) for arg in args))
    what = type(node).__name__
    then = "write numbers, parameters, + - * / // % **, min, max, round, int"
    raise ConfigError(f"{what} is not allowed", repr(expression), then)
