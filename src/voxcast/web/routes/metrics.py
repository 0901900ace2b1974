"""``GET /metrics``: numbers of the service as Prometheus reads them, of this process alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

if TYPE_CHECKING:
    from voxcast.web.model_switch import ModelSwitch

router = APIRouter()

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
# Times at which counters began, a series beside each of them.
disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client lacks the type

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 20_000)


class Metrics:
    """The counters of one service; labels are routes and statuses, never chosen by a client."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # memory, CPU time, open files
        self._requests = Counter(
            "voxcast_requests", "Requests answered", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "voxcast_request_seconds", "Time to answer", ["route"], buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self.in_flight = Gauge(
            "voxcast_requests_in_flight", "Requests being answered", registry=registry
        )
        self._rows = Histogram(
            "voxcast_batch_rows", "Rows of a call of the model", buckets=ROWS, registry=registry
        )
        self._model = Gauge(
            "voxcast_model_info", "Version of the model that is served", ["version"],
            registry=registry,
        )  # fmt: skip
        self._switches = Gauge(
            "voxcast_model_switches", "How often another version took over", registry=registry
        )
        self._refused = Gauge(
            "voxcast_model_versions_refused", "Versions that cannot be served", registry=registry
        )

    def count_answer(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def observe_rows(self, rows: int) -> None:
        """Count a call of the model."""
        self._rows.observe(rows)

    def text(self, switch: ModelSwitch) -> bytes:
        """Return all of them in Prometheus' text format."""
        self._model.clear()
        if switch.champion is not None:
            self._model.labels(switch.champion.version).set(1)
        self._switches.set(switch.switches)
        self._refused.set(len(switch.refused))
        return generate_latest(self.registry)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return the metrics of this process."""
    state = request.app.state
    return Response(state.metrics.text(state.switch), media_type=CONTENT_TYPE_LATEST)
