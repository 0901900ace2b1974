"""The service beside MLflow's server of the same champion: start, throughput, latency, memory.

The load generator runs in a process of its own on the same cores. Its connections stay open, and
each asks again as soon as it is answered. The question is a header alone, for one allocation.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timing import machine
from voxcast.serving.signature import EXAMPLE
from voxcast.tracking.address import tracking_uri

CLIENTS = 32
WARM_UP = 5_000  # until caches are full, so that growth of memory is growth with requests
REQUESTS = 20_000
MLFLOW_REQUESTS = 1_000
START_S = 120.0
BOUNDS = {"requests_per_s": 300, "p99_ms": 150, "memory_growth": 0.05}


def served(model: str, project: Path, port: int) -> dict[str, list[str]]:
    """Return the command of each server."""
    programs = Path(sys.executable).parent
    return {
        "voxcast": [
            str(programs / "voxcast"), "serve", "--port", str(port), "--project", str(project),
        ],
        "mlflow": [
            str(programs / "mlflow"), "models", "serve", "-m", model, "--port", str(port),
            "--env-manager", "local",
        ],
    }  # fmt: skip


@contextlib.contextmanager
def running(
    command: list[str], project: Path, port: int, log: Path
) -> Iterator[tuple[int, float]]:
    """Run a server; give its process group, and the time from its start to its first answer."""
    environment = {
        **os.environ, "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_TRACKING_URI": tracking_uri(project),
    }  # fmt: skip
    with log.open("w") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        while not _answers(port):
            if process.poll() is not None or time.perf_counter() - start > START_S:
                raise SystemExit(f"{command[0]} does not start: {log.read_text()[-2000:]}")
            time.sleep(0.02)
        yield process.pid, time.perf_counter() - start
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _answers(port: int) -> bool:
    """Whether a prediction is answered, which is what a client waits for."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations", _body("/invocations"),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310  # of this machine
            return bool(json.load(reply)["predictions"])
    except (OSError, urllib.error.URLError):
        return False


def _body(path: str) -> bytes:
    if path == "/predict":
        return json.dumps({"rows": [{**EXAMPLE, "cpus": 1}]}).encode()
    return json.dumps({"dataframe_records": [{**EXAMPLE, "cpus": 1}]}).encode()


def memory_bytes(group: int) -> int:
    """Return the proportional memory of the processes of a group."""
    total = 0
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if folder.name.isdigit() and os.getpgid(int(folder.name)) == group:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += 1024 * sum(int(s.split()[1]) for s in lines if s.startswith("Pss:"))
    return total


def load(port: int, path: str, requests: int, clients: int) -> dict[str, Any]:
    """Ask from another process; return requests a second and latencies."""
    words = ["--generate", str(port), path, str(requests), str(clients)]
    ended = subprocess.run(
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=True
    )
    content: dict[str, Any] = json.loads(ended.stdout)
    return content


async def generate(port: int, path: str, requests: int, clients: int) -> dict[str, Any]:
    """Ask over open connections; every answer must be a prediction."""
    body = _body(path)
    message = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    left, times_s, failed = requests, [], 0

    async def client() -> None:
        nonlocal left, failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0:
            left -= 1
            start = time.perf_counter()
            writer.write(message)
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next(line for line in lines if line.startswith(b"content-length:"))
            answer = await reader.readexactly(int(length.split(b":")[1]))
            times_s.append(time.perf_counter() - start)
            failed += not (head.startswith(b"HTTP/1.1 200") and b"runtime_s_median" in answer)
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    wall_s = time.perf_counter() - start
    cuts = statistics.quantiles(times_s, n=100, method="inclusive")
    return {
        "requests": len(times_s),
        "failed": failed,
        "requests_per_s": len(times_s) / wall_s,
        "p50_ms": 1e3 * cuts[49],
        "p99_ms": 1e3 * cuts[98],
        "max_ms": 1e3 * max(times_s),
    }


def measure(name: str, model: str, project: Path, requests: int, log: Path) -> dict[str, Any]:
    """Start a server, ask it, and return its figures."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = "/predict" if name == "voxcast" else "/invocations"
    command = served(model, project, port)[name]
    with running(command, project, port, log) as (group, ready_s):
        load(port, path, min(WARM_UP, requests), CLIENTS)
        before = memory_bytes(group)
        figures = load(port, path, requests, CLIENTS)
        after = memory_bytes(group)
    return {
        "ready_s": ready_s,
        **figures,
        "memory_before_bytes": before,
        "memory_after_bytes": after,
        "memory_growth": after / before - 1,
    }


def champion(project: Path, folder: Path) -> tuple[str, Path]:
    """Return the model's address and its project; a champion of planted runs if there is none."""
    from voxcast.serving.model_store import ModelStore

    if ModelStore.of(project).pointer().champion is None:
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
        from champions import register_champion  # type: ignore[import-not-found]

        project = folder
        register_champion(project, 20)
        (project / "params.yaml").touch()
    return f"models:/voxcast/{ModelStore.of(project).champion()}", project


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--generate", nargs=4, metavar=("PORT", "PATH", "REQUESTS", "CLIENTS"),
                        help="only ask, and print the latencies")  # fmt: skip
    args = parser.parse_args()
    if args.generate:
        port, path, requests, clients = args.generate
        print(json.dumps(asyncio.run(generate(int(port), path, int(requests), int(clients)))))
        return 0
    figures: dict[str, Any] = {"machine": machine(), "clients": CLIENTS}
    with tempfile.TemporaryDirectory() as name:
        model, project = champion(args.project, Path(name))
        for server, requests in (("voxcast", args.requests), ("mlflow", MLFLOW_REQUESTS)):
            log = Path(name) / f"{server}.log"
            figures[server] = measure(server, model, project, requests, log)
    figures["bounds"] = BOUNDS
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
