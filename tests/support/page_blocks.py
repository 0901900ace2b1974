"""The fenced blocks of README.md and docs/, and the environment in which a reader runs them."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from commands import environment

PROJECT = Path(__file__).parents[2]
PAGES = (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")))
COMMANDS = ("bash", "console")
# A fence, and the comment on the line before it or one line above.
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>(?:test|not tested): [^>]*?) -->\n\n?)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.S | re.M,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with the comment that says whether it is run."""

    page: str
    line: int
    mark: str
    language: str
    text: str

    @property
    def runs(self) -> bool:
        return self.mark in ("test: run", "test: output", "test: server")

    def commands(self) -> str:
        """Return what a shell is to run."""
        if self.language == "bash":
            return self.text
        lines = self.text.splitlines()
        return "\n".join(line[2:] for line in lines if line.startswith("$ ")) + "\n"

    def output(self) -> list[str]:
        """Return the lines that a console block shows as output."""
        return [line for line in self.text.splitlines() if not line.startswith("$ ")]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(PROJECT))
    return [
        Block(name, text.count("\n", 0, match.start("text")), (match["mark"] or "").strip(),
              match["language"], match["text"])
        for match in BLOCK.finditer(text)
    ]  # fmt: skip


def shell_environment() -> dict[str, str]:
    """Return the environment of a reader, who has a stand-in for tools of laboratories."""
    variables = environment()
    stand_in = Path(__file__).parent / "stand_in"
    return {**variables, "PATH": f"{stand_in}{os.pathsep}{variables['PATH']}"}
