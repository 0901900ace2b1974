"""Names say what they hold: words that could stand for anything are counted where bound."""

import ast
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[2]
FOLDERS = ("src", "pipelines", "studies", "benchmarks", "docs")
EMPTY = frozenset(
    [
        *("own", "found", "asked", "said", "told", "one", "whole", "known", "judged", "given"),
        *("answered", "shown", "learned", "kept", "made", "done", "what", "who", "which", "thing"),
        *("things", "stuff", "data2", "tmp", "temp", "res", "ret", "val", "obj", "item", "info"),
        *("misc", "there", "those", "these", "it", "that", "this", "way"),
    ]
)


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that is bound, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def empty_names(source: str) -> list[tuple[str, int]]:
    """Return the names of a source text that say nothing, with their lines."""
    names = bound_names(ast.parse(source))
    return [(name, line) for name, line in names if name.strip("_").lower() in EMPTY]


def test_names_say_what_they_hold() -> None:
    places = [
        f"{path.relative_to(PROJECT)}:{line}: {name}"
        for folder in FOLDERS
        for path in sorted((PROJECT / folder).rglob("*.py"))
        for name, line in empty_names(path.read_text(encoding="utf-8"))
    ]
    assert not places
