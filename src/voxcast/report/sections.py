"""Pages of sections, each a title, one sentence, figures and tables: one template for all."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING

from voxcast.report.wording import heading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

TEMPLATE = "page.html.j2"
# A space after a number or a time unit and before a unit, or around "to", "of" and "±".
_WITHIN_VALUE = re.compile(
    r"(?<=[\d×]) (?=(?:%|[kMGT]?B|ms|s|min|h|d|USD|to|of|±)(?![\w]))"
    r"|(?<=\bto|\bof|.±|.\bh) (?=[\d−-])|(?<=min) (?=\d)|(?<=%) (?=to\b)"
)


@dataclass(frozen=True)
class Drawing:
    """An inline element, such as an ``svg``, and its caption."""

    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A caption, and rows of text by column, of which the first is the row head."""

    caption: str
    rows: Sequence[Mapping[str, str]]

    @property
    def columns(self) -> list[str]:
        """The columns of all rows; a row need not have all of them."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


@dataclass(frozen=True)
class Section:
    """A title, one sentence about it, figures and tables."""

    title: str
    sentence: str
    figures: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Part:
    """Sections under a title, with results as cards and limits as a list."""

    title: str
    sections: Sequence[Section]
    lead: str = ""
    cards: Mapping[str, str] = field(default_factory=dict)
    cautions: Sequence[str] = ()


def page(head: Part, parts: Sequence[Part], *, kind: str = "report", commands: str = "") -> str:
    """Return an HTML page; all text is escaped.

    Parameters
    ----------
    head : Part
        Title, lead, cards and cautions of the page.
    kind : str
        Word above the title.
    commands : str
        Next commands, a line each.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"nonbreaking": _nonbreaking, "heading": heading}
    source = resources.files("voxcast.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    content = {"head": head, "parts": parts, "kind": kind, "commands": commands}
    return environment.from_string(source).render(content) + "\n"


def _nonbreaking(text: str) -> str:
    """Keep a number and its unit, and the ends of a range, on one line; sentences may break."""
    return _WITHIN_VALUE.sub("\u00a0", text)
