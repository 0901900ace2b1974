"""``voxcast serve``: answer predictions over HTTP, by default to this machine only."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from voxcast import project as projects
from voxcast.cli import options
from voxcast.errors import ConfigError
from voxcast.quantities import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN_VARIABLE = "VOXCAST_TOKEN"  # noqa: S105  # a name
MIN_TOKEN, MAX_TOKEN = 16, 4096  # letters
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def serve(
    host: Annotated[
        str, Option("--host", metavar="NAME", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[int, Option("--port", metavar="N", help="Port to listen on.")] = 5001,
    token_file: Annotated[
        Path | None,
        Option(
            "--token-file",
            metavar="FILE",
            help=f"Bearer token of the clients (or {TOKEN_VARIABLE}); needed unless only this "
            "machine can connect.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        Option("--allow-host", metavar="NAME", help="Answer to this name too, as of a proxy."),
    ] = None,
    root: Annotated[
        list[Path] | None,
        Option("--root", metavar="DIR", help="Folder whose images may be named by their path."),
    ] = None,
    max_upload: Annotated[
        str, Option("--max-upload", metavar="SIZE", help="Largest image that is received.")
    ] = "512MiB",
    poll: Annotated[str, Option("--poll", hidden=True)] = "2s",
    project: options.Project = None,
) -> int:
    """Serve predictions, and a page, over HTTP until the process is stopped.

    When the champion changes, later requests are answered by the new one. The champion of an
    MLflow server or a database, see MLFLOW_TRACKING_URI, is fetched.
    """
    from voxcast.serving.client import is_loopback

    poll_s = options.seconds(poll, "--poll") or 0.0
    max_bytes = options.quantity(parse_bytes, max_upload, "--max-upload")
    token = _token(token_file)
    options.refuse_if(
        (not 1 <= port <= 65535, f"must be 1 to 65535, not {port}", "--port", None),
        # It would listen on all addresses.
        (not host, "is empty", "--host", "leave it out for this machine only"),
        (poll_s < 0.1, "must be at least 0.1s", "--poll", None),
        (token is None and not is_loopback(host),
         "others can reach this address, so a token is needed", host,
         f"name a file by --token-file, or set {TOKEN_VARIABLE}"),
        *((not folder.is_dir(), "is no folder", folder, "--root names a folder of images")
          for folder in root or ()),
    )  # fmt: skip
    roots = tuple(folder.resolve() for folder in root or ())
    _check_port_is_free(host, port)
    from voxcast.serving.machines import MACHINES
    from voxcast.serving.model_store import MODELS, ModelStore
    from voxcast.tracking.address import TRACKING_VARIABLE, path_of

    uri, folder = os.environ.get(TRACKING_VARIABLE), projects.find(project)
    registry = uri if uri and path_of(uri) is None else None
    if folder is None and registry is None:
        raise projects.none_here()
    store = ModelStore(Path(MODELS).resolve() if folder is None else folder / MODELS)
    if registry is None:
        store.champion()  # so that a project without a champion is refused in a line
    from voxcast.web import server

    machines = None if folder is None else folder / MACHINES
    settings = server.Settings(
        store, folder, registry, machines, token, roots, poll_s,
        _names(host, allow_host or ()), max_bytes,
    )  # fmt: skip
    server.serve(settings, host, port)
    return 0


def _names(host: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Return the names to which the service answers; empty for any.

    Where others can connect, the token keeps pages of other sites out, and the names by which
    this machine is known are not all known to it.
    """
    from voxcast.serving.client import is_loopback

    if not is_loopback(host) and not allowed:
        return ()
    literal = f"[{host}]" if ":" in host else host
    names = (*LOOPBACK_NAMES, literal, *allowed)
    return tuple(dict.fromkeys(name.lower() for name in names))


def _token(path: Path | None) -> str | None:
    """Return the token of a file or of the environment; None if there is neither.

    Raises
    ------
    ConfigError
        If it is short, has spaces, or the file cannot be read.
    """
    where, token = str(path or TOKEN_VARIABLE), os.environ.get(TOKEN_VARIABLE)
    if path is not None:
        try:
            token = path.read_text(encoding="ascii").strip()
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", path) from None
        except UnicodeDecodeError:
            raise ConfigError("must be of ASCII letters and digits", path) from None
    if token is None:
        return None
    then = "make one by `openssl rand -hex 32`"
    if len(token) < MIN_TOKEN:
        raise ConfigError(f"a token has at least {MIN_TOKEN} letters", where, then)
    if len(token) > MAX_TOKEN or not re.fullmatch("[!-~]+", token):
        raise ConfigError("must be one word of printable ASCII letters", where, then)
    return token


def _check_port_is_free(host: str, port: int) -> None:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        reason = f"cannot listen: {error.strerror or error}"
        then = f"choose another --port, or stop what listens: `ss -ltnp 'sport = :{port}'`"
        raise ConfigError(reason, f"{host}:{port}", then) from None
