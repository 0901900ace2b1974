"""HTML pages from the templates of this package."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from voxcast.report.wording import heading

if TYPE_CHECKING:
    from collections.abc import Mapping


# A space after a number or a time unit and before a unit, or around "to", "of" and "±".
_WITHIN_VALUE = re.compile(
    r"(?<=[\d×]) (?=(?:%|[kMGT]?B|ms|s|min|h|d|USD|to|of|±)(?![\w]))"
    r"|(?<=\bto|\bof|.±|.\bh) (?=[\d−-])|(?<=min) (?=\d)|(?<=%) (?=to\b)"
)


def render(template: str, content: Mapping[str, Any]) -> str:
    """Fill a template of this package; all text is escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"nonbreaking": _nonbreaking, "heading": heading}
    return environment.get_template(template).render(content) + "\n"


def _source(name: str) -> str:
    return resources.files("voxcast.report").joinpath(name).read_text(encoding="utf-8")


def _nonbreaking(text: str) -> str:
    """Keep a number and its unit, and the ends of a range, on one line; sentences may break."""
    return _WITHIN_VALUE.sub("\u00a0", text)
