"""The file ``conf/app/NAME.yaml`` of a user's application, written from a command line."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import TypeAdapter

from voxcast.apps.app_checks import check_app
from voxcast.config.schema import AppByName
from voxcast.config.validation import validated
from voxcast.config.yaml_files import read_yaml
from voxcast.errors import ConfigError
from voxcast.files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from voxcast.records import App

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_CPUS = re.compile(r"(?<!\{)\{cpus\}(?!\})")


def check_name(name: str) -> None:
    """Check that a name can be that of a file and a key.

    Raises
    ------
    ConfigError
        If it cannot.
    """
    if not _NAME.fullmatch(name):
        then = "use letters, digits and _, beginning with a letter"
        raise ConfigError("cannot be the name of an application", name, then)


def argv_of(command: str) -> list[str]:
    """Return a command line as arguments; ``{cpus}`` is another name of ``{threads}``.

    Raises
    ------
    ConfigError
        If it is empty, cannot be split, or needs a shell.

    Examples
    --------
    >>> argv_of("tool --in {image} 'a b' -j {cpus}")
    ['tool', '--in', '{image}', 'a b', '-j', '{threads}']
    """
    try:
        words = shlex.split(command)
    except ValueError:  # shlex knows this and a backslash at the end
        problem = f"a quotation mark is not closed, or a backslash is at its end: {command}"
        raise ConfigError(problem, "--command") from None
    if not words:
        raise ConfigError("is empty", "--command", "give e.g. 'tool {image} {out}'")
    shell = [word for word in words if word in ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1")]
    if shell:
        then = "put the command line in a script and name that"
        raise ConfigError(f"{shell[0]} needs a shell, and none is used", "--command", then)
    if "${" in command:
        then = "no shell expands it; give a value, or a --parameter"
        raise ConfigError("holds ${", "--command", then)
    return [_CPUS.sub("{threads}", word) for word in words]


def app_of(conf_app: Path, name: str, values: dict[str, Any]) -> App:
    """Return the application with the ``values`` of its file, checked.

    Parameters
    ----------
    conf_app : Path
        The folder ``conf/app``, which holds the values of all other keys.
    """
    base = read_yaml(conf_app / "_base.yaml", "run `voxcast init` first")
    adapter: TypeAdapter[dict[str, App]] = TypeAdapter(AppByName)
    app = validated(adapter, {name: {**base, **values}}, conf_app / f"{name}.yaml")[name]
    check_app(app)
    return app


def write_app(path: Path, name: str, values: dict[str, Any], comments: Iterable[str] = ()) -> None:
    """Write ``conf/app/NAME.yaml`` atomically, with the keys that differ from ``_base.yaml``."""
    short = {key: value for key, value in values.items() if key != "phase_patterns"}
    content = _yaml({name: short}, None)  # lists and mappings of plain values on one line
    if patterns := values.get("phase_patterns"):
        content += textwrap.indent(_yaml({"phase_patterns": patterns}, False), "  ")
    head = "".join(f"# {comment}\n" for comment in comments)
    write_text(path, f"{head}defaults:\n  - _base@{name}\n  - _self_\n{content}")


def _yaml(content: dict[str, Any], flow: bool | None) -> str:
    text: str = yaml.safe_dump(
        content, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=flow
    )
    return text
