"""The command of a verb: options parsed by the parameters of a function, and its help."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 100  # of the help
HIDDEN = ("--json", "--project")  # options of every verb, on the screen of `voxcast --help`


class Command(TyperCommand):
    """A command whose help is plain text, and which names an argument too many."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and refuse those that are left."""
        rest = super().parse_args(ctx, args)
        if rest:
            then = f"see `{ctx.info_name} --help`"
            raise ConfigError("one argument too many", rest[0], then)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, without their types."""
        formatter.width = WIDTH
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        parameters: list[Any] = self.get_params(ctx)
        for parameter in parameters:
            if parameter.hidden or set(parameter.opts) & {*HIDDEN, "--help"}:
                continue
            metavar = parameter.metavar or ""
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((metavar, parameter.help or ""))
                continue
            names = ", ".join(sorted(parameter.opts, key=len))
            text = parameter.help or ""
            if parameter.show_default and parameter.default not in (None, False, ""):
                text += f" (default {parameter.default})"
            sections["Options"].append((f"{names} {metavar}".rstrip(), text))
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=26)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the metavars of the arguments, after the options."""
        arguments = (p for p in self.get_params(ctx) if p.param_type_name == "argument")
        return ["[OPTIONS]", *(p.metavar or p.name.upper() for p in arguments)]


def command_of(function: Callable[..., int], name: str) -> TyperCommand:
    """Return the command that a function is, with its docstring as help."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    text = (inspect.getdoc(function) or "").replace("``", "")
    settings = {"allow_extra_args": True, "max_content_width": WIDTH}
    app.command(name, cls=Command, help=text, context_settings=settings)(function)
    command = typer.main.get_command(app)
    if not isinstance(command, TyperCommand):
        raise TypeError(f"{name}: not a single command")
    return command
