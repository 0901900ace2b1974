"""``voxcast app list|show``: the applications of a project."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path

from voxcast.errors import ConfigError

CONF_APP = Path("conf/app")


def list_apps(*, as_json: bool) -> int:
    """Print the applications of the project in the current folder, and the templates."""
    from voxcast import config
    from voxcast.apps.new import load_template, template_names

    apps = {name: _summary(name) for name in config.options(CONF_APP)}
    templates = {name: load_template(name).description for name in template_names()}
    if as_json:
        print(json.dumps({"apps": apps, "templates": templates}, indent=2))
        return 0
    for name, text in apps.items():
        print(f"{name:24} {text}")
    print("templates, for `voxcast app new NAME --template TEMPLATE`; not run here:")
    for name, text in templates.items():
        print(f"{name:24} {text}")
    return 0


def _summary(name: str) -> str:
    from voxcast import config

    try:
        app = config.load_app(CONF_APP, name)
    except ConfigError as error:
        if error.problem == "needs a value":  # the file is to be filled in for each call
            needed = str(error.where).rpartition(": ")[2]
            return f"for any program: needs {needed}, see `voxcast measure --help`"
        return str(error)
    return f"{app.version}: {app.module or shlex.join(app.argv)}"


def show_app(name: str, *, as_json: bool) -> int:
    """Print the file of an application, and its gaps.

    Raises
    ------
    ConfigError
        If the application is unknown, or its file is invalid.
    """
    from voxcast import config
    from voxcast.apps.checks import gaps_of

    app = config.load_app(CONF_APP, name)
    if as_json:
        print(json.dumps(asdict(app), indent=2))
    else:
        print((CONF_APP / f"{name}.yaml").read_text(encoding="utf-8"), end="")
        for gap in gaps_of(app):
            print(f"{gap.urgency:12} {gap.text}")
    return 0
