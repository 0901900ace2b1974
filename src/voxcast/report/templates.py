"""HTML pages from the templates of this package."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from voxcast.report.formatting import heading

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """Allow a line break only before a bracket and after a comma or dot, not before a unit."""
    return re.sub(r"(?<![,·]) (?![(·])", "\u00a0", text)
