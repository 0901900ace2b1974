"""``voxcast serve``: serve the champion over HTTP with MLflow's server, by default on loopback."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path

from voxcast import project
from voxcast.cli.shared_options import add_project_argument
from voxcast.errors import ConfigError


def _check_port_is_free(host: str, port: int) -> None:
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen: {error}", f"{host}:{port}", "try --port") from None


def main(argv: list[str]) -> int:
    """Run ``mlflow models serve`` on the champion until it exits."""
    parser = argparse.ArgumentParser(prog="voxcast serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1: this machine only")
    parser.add_argument("--port", type=int, default=5001)
    parser.add_argument("--workers", type=int, default=1)
    add_project_argument(parser)
    args = parser.parse_args(argv)
    from voxcast.tracking.registry import CHAMPION_URI, load_champion
    from voxcast.tracking.runs import tracking_uri

    _check_port_is_free(args.host, args.port)
    folder = project.find(args.project) or Path.cwd()
    load_champion(folder)  # a missing model is reported more clearly here than by the server
    command = [
        sys.executable, "-m", "mlflow", "models", "serve", "-m", CHAMPION_URI,
        "--env-manager", "local", "--host", args.host, "--port", str(args.port),
        "--workers", str(args.workers),
    ]  # fmt: skip
    # MLflow looks its server up on the path; this environment must come first.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": tracking_uri(folder)}
    try:
        return subprocess.run(command, env=environment, check=False).returncode
    except KeyboardInterrupt:
        return 130
