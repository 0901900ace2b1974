"""Requests generated from the service's OpenAPI document, valid and invalid, to a live service."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from voxcast.images.characteristics import CHARACTERISTICS

CHECKS = ",".join(
    ("not_a_server_error", "status_code_conformance", "content_type_conformance",
     "response_schema_conformance")
)  # fmt: skip
START_S = 60.0


@contextlib.contextmanager
def running_service(port: int, project: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``voxcast serve`` until the block ends."""
    voxcast = str(Path(sys.executable).with_name("voxcast"))
    command = [voxcast, "serve", "--port", str(port), "--project", str(project)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=project)
        try:
            deadline = time.monotonic() + START_S
            while not _is_ready(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(log.read().decode(errors="replace")[-2000:])
                time.sleep(0.1)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def fuzz(port: int, examples: int, seed: int) -> dict[str, Any]:
    """Send the requests; return counts by operation and status, and the checks that failed."""
    schemathesis = str(Path(sys.executable).with_name("schemathesis"))
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        events, document = Path(folder) / "events.ndjson", Path(folder) / "openapi.json"
        document.write_text(
            json.dumps(narrowed(_got(f"{url}/openapi.json"), _got(f"{url}/models")))
        )
        subprocess.run(
            [
                schemathesis, "run", str(document), "--url", url,
                "--checks", CHECKS, "--max-examples", str(examples), "--seed", str(seed),
                "--report", "ndjson", "--report-ndjson-path", str(events),
                "--generation-database", "none", "--continue-on-failure", "--no-shrink",
                "--suppress-health-check", "all", "--warnings", "off",
            ],
            cwd=folder, check=False, stdout=sys.stderr,
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        return counts(events.read_text().splitlines())


def _got(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as reply:  # of this machine
        return json.load(reply)


def narrowed(schema: Any, models: dict[str, Any]) -> Any:
    """Return a document whose texts are often those that the service knows.

    Texts and voxel counts at random would be refused before anything is predicted.
    """
    texts = {"app": list(models["apps"]), "parameters_json": ["{}"], "device": ["cpu"]}
    if isinstance(schema, list):
        return [narrowed(part, models) for part in schema]
    if not isinstance(schema, dict):
        return schema
    narrow = {name: narrowed(part, models) for name, part in schema.items()}
    for name, values in texts.items():
        if isinstance(narrow.get("properties"), dict) and name in narrow["properties"]:
            narrow["properties"][name] = {"anyOf": [{"enum": values}, narrow["properties"][name]]}
    if "volume" in narrow.get("properties", {}):  # a row: without what voxels tell, all or none
        for name in ("volume", *CHARACTERISTICS):
            del narrow["properties"][name]
        narrow["additionalProperties"] = False
    return narrow


def counts(lines: list[str]) -> dict[str, Any]:
    """Count answers by operation and status, and failed checks by name.

    Parameters
    ----------
    lines : list of str
        Events that Schemathesis wrote, each an object with its kind as the only key.
    """
    statuses: dict[str, collections.Counter[str]] = {}
    failures: collections.Counter[str] = collections.Counter()
    for line in lines:
        recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        counter = statuses.setdefault(recorder.get("label", ""), collections.Counter())
        for interaction in recorder.get("interactions", {}).values():
            response = interaction.get("response")
            counter["no answer" if response is None else str(response["status_code"])] += 1
        for checks in recorder.get("checks", {}).values():
            failures.update(check["name"] for check in checks if check["status"] == "failure")
    by_operation = {name: dict(sorted(c.items())) for name, c in sorted(statuses.items()) if c}
    all_statuses = sum(statuses.values(), collections.Counter())
    return {
        "requests": all_statuses.total(),
        "server_errors": sum(n for status, n in all_statuses.items() if status.startswith("5")),
        "without_answer": all_statuses["no answer"],
        "status": dict(sorted(all_statuses.items())),
        "status_by_operation": by_operation,
        "failed_checks": dict(failures),
    }
