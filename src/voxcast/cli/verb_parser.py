"""The parser of a verb's arguments: its errors are one line, and values may begin with a dash."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# No option begins with a digit, so that this is a value: -2h, -1.5, -.5GB.
_NEGATIVE = re.compile(r"-\.?\d.*")


class VerbParser(argparse.ArgumentParser):
    """A parser whose errors are `ConfigError`: one line and exit code 2, as for other errors.

    A value such as ``-2h`` is the value of the option before it, which then refuses it in its own
    words. The parser of Python takes it for an unknown option.

    The error of a misspelt option names the one that is meant.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._with_value: set[str] = set()
        super().__init__(*args, **kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        """Add an argument, and note whether it takes a value."""
        action = super().add_argument(*args, **kwargs)
        if action.nargs != 0:
            self._with_value.update(action.option_strings)
        return action

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """Parse the arguments, and refuse unknown ones."""
        parsed, left = self.parse_known_args(args, namespace)
        self._refuse(left)
        return parsed

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the arguments, with negative values joined to their options."""
        arguments = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(self._joined(arguments), namespace)

    def parse_intermixed_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """Parse options between paths; after ``--`` all arguments are paths.

        The parser of Python loses the ``--``. A path may begin with ``./`` instead of a dash.
        """
        arguments = sys.argv[1:] if args is None else list(args)
        if "--" in arguments:
            end = arguments.index("--")
            paths = [f"./{p}" if p.startswith("-") else p for p in arguments[end + 1 :]]
            arguments = [*arguments[:end], *paths]
        parsed: argparse.Namespace
        parsed, left = self.parse_known_intermixed_args(arguments, namespace)
        self._refuse(left)
        return parsed

    def format_help(self) -> str:
        """Return the help, without the marks of code in docstrings."""
        return super().format_help().replace("``", "")

    def error(self, message: str) -> NoReturn:
        """Raise the error that `argparse` prints below the usage."""
        verb = self.prog.removeprefix("voxcast ")
        raise ConfigError(message, verb, f"see `{self.prog} --help`")

    def _refuse(self, left: Sequence[str]) -> None:
        for argument in left:
            name = argument.partition("=")[0]
            help_command = f"see `{self.prog} --help`"
            if name.startswith("-"):
                then = meant(name, self._option_string_actions, help_command)
                raise ConfigError("unknown option", name, then)
            raise ConfigError("one argument too many", argument, help_command)

    def _joined(self, arguments: Sequence[str]) -> list[str]:
        joined: list[str] = []
        for n, argument in enumerate(arguments):
            if argument == "--":
                return [*joined, *arguments[n:]]
            if joined and joined[-1] in self._with_value and _NEGATIVE.fullmatch(argument):
                joined[-1] += f"={argument}"
            else:
                joined.append(argument)
        return joined


def meant(word: str, words: Iterable[str], otherwise: str) -> str:
    """Return a question for the word of ``words`` most like ``word``, else ``otherwise``.

    Examples
    --------
    >>> meant("perdict", ["predict", "profile"], "see the list")
    'did you mean predict?'
    """
    alike = difflib.get_close_matches(word, list(words), n=1)
    return f"did you mean {alike[0]}?" if alike else otherwise
