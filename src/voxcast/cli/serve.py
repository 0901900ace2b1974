"""``voxcast serve``: serve the champion over HTTP with MLflow's server, by default on loopback."""

from __future__ import annotations

import os
import shlex
import socket
import sys

from voxcast.cli.shared_options import add_project_argument, machines_file, registry_address
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError

MAX_COMMAND = 60  # characters shown of another program's command line


def main(argv: list[str]) -> int:
    """Become the server of the champion, until SIGTERM, SIGINT or SIGHUP."""
    parser = VerbParser(prog="voxcast serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1: this machine only")
    parser.add_argument("--port", type=int, default=5001, help="default 5001")
    parser.add_argument("--workers", type=int, default=1, help="number of processes (default 1)")
    add_project_argument(parser)
    args = parser.parse_args(argv)
    if not 1 <= args.port <= 65535:
        raise ConfigError(f"must be 1 to 65535, not {args.port}", "--port")
    if not args.host:  # which would listen on all addresses
        raise ConfigError("is empty", "--host", "leave it out for this machine only")
    if args.workers < 1:
        raise ConfigError(f"must be at least 1, not {args.workers}", "--workers")
    _check_port_is_free(args.host, args.port)
    from voxcast.serving.http_server import command
    from voxcast.serving.machine_file import VARIABLE
    from voxcast.tracking.current_champion import served_champion

    uri = registry_address(args.project)
    version, model = served_champion(uri)
    words = command(model, version, args.host, args.port, args.workers)
    sys.stdout.flush()
    environment = {**os.environ, "MLFLOW_TRACKING_URI": uri}
    if machines := machines_file(args.project):
        environment[VARIABLE] = str(machines)
    os.execve(words[0], words, environment)  # noqa: S606  # no shell, and no second process


def _check_port_is_free(host: str, port: int) -> None:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        reason = _holder(port) or f"cannot listen: {error.strerror or error}"
        raise ConfigError(reason, f"{host}:{port}", "or choose another --port") from None


def _holder(port: int) -> str | None:
    """Return who listens on a port, and how it is ended; None if that cannot be seen."""
    from voxcast.profiling.listeners import listeners
    from voxcast.serving.http_server import served_version

    holders = listeners(port)
    if not holders:
        return None
    versions = {holder.pid: served_version(holder.command) for holder in holders}
    holder = next((h for h in holders if versions[h.pid]), holders[0])
    since = f"since {holder.started_at:%Y-%m-%d %H:%M}"
    if version := versions[holder.pid]:
        use = f"--url http://127.0.0.1:{port}"
        return (
            f"cannot listen: process {holder.pid} serves version {version} here {since}; "
            f"use it with {use}, stop it with `kill {holder.pid}`"
        )
    name = shlex.join(holder.command)
    name = name if len(name) <= MAX_COMMAND else f"{name[:MAX_COMMAND]}…"
    return f"cannot listen: process {holder.pid} ({name}) listens here {since}; stop it"
