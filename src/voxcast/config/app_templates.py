"""Templates of applications that laboratories run, from public documentation; not run here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import voxcast
from voxcast.config.yaml_files import read_yaml
from voxcast.errors import ConfigError

FOLDER = Path(voxcast.__file__).parent / "apps" / "templates"
KEYS = ("container", "binds", "container_program", "version_command")


@dataclass(frozen=True)
class AppTemplate:
    """An application as its documentation describes it.

    Attributes
    ----------
    app : dict
        Values for ``conf/app``, without a container.
    sources : tuple of str
        Addresses of the documentation or code that the values are from.
    notes : tuple of str
        What a user has to do or to know.
    container, binds : dict
        Image by device, and binds, for running it in a container; empty if there is none.
    container_program : str, optional
        Path of the program in the container, where it differs.
    version_command : str, optional
        Command that prints the version.
    """

    name: str
    description: str
    app: dict[str, Any]
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    container: dict[str, str] = field(default_factory=dict)
    binds: dict[str, str] = field(default_factory=dict)
    container_program: str | None = None
    version_command: str | None = None

    def values(self, *, in_container: bool) -> dict[str, Any]:
        """Return the values for ``conf/app``.

        Raises
        ------
        ConfigError
            If it is to run in a container and has none.
        """
        if not in_container:
            return dict(self.app)
        if not self.container:
            then = "leave out --container, or write one into conf/app"
            raise ConfigError("names no container", self.name, then)
        program, *arguments = self.app["argv"]
        argv = [self.container_program or program, *arguments]
        return {**self.app, "argv": argv, "container": self.container, "binds": self.binds}


def template_names() -> list[str]:
    """Return the names of all templates."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_template(name: str) -> AppTemplate:
    """Return a template.

    Raises
    ------
    ConfigError
        If there is none of this name.
    """
    if name not in template_names():
        then = f"choose from {', '.join(template_names())}"
        raise ConfigError("unknown template", name, then)
    content = read_yaml(FOLDER / f"{name}.yaml")
    return AppTemplate(
        name=name,
        description=content["description"],
        app=content["app"],
        sources=tuple(content["sources"]),
        notes=tuple(content["notes"]),
        **{key: content[key] for key in KEYS if key in content},
    )
