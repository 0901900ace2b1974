"""Whether the rows that a server answers have the columns and kinds of the signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.serving.signature import OUTPUT_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NETWORK_POINTS = 64  # the volume of more has millions of cells
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "double": (int, float), "long": (int,), "boolean": (bool,),
}  # fmt: skip


def problem_of_answers(answers: Sequence[Any]) -> str | None:
    """Return what is wrong with the rows that a server answers, or None."""
    for number, answer in enumerate(answers):
        if not isinstance(answer, dict):
            return f"answers row {number} with something else than an object"
        for name, kind in OUTPUT_TYPES.items():
            if name not in answer:
                return f"answers row {number} without {name}"
            value = answer[name]
            is_kind = isinstance(value, _KINDS[kind])
            is_flag = isinstance(value, bool) and kind != "boolean"
            # What is not finite is null in JSON.
            if (not is_kind or is_flag) and not (value is None and kind == "double"):
                return f"answers row {number} with another kind of {name} than {kind}"
            if isinstance(value, str) and not value.isprintable():  # it could steer a terminal
                return f"answers row {number} with unprintable {name}"
        points = answer["network_points"]
        if points is None or not 0 <= points <= MAX_NETWORK_POINTS:
            return f"answers row {number} with {points} network_points, not 0 to 64"
    return None
