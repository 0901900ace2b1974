"""Tables of docs/serving.md: speed and memory of the service, and generated requests."""

from __future__ import annotations

from table_text import markdown, results


def service_speed() -> str:
    """Return speed and memory of the service beside MLflow's server."""
    figures = results("bench/service.json")
    service, mlflow, bounds = figures["voxcast"], figures["mlflow"], figures["bounds"]
    growth = {name: of["memory_growth"] for name, of in (("v", service), ("m", mlflow))}
    rows = [
        ["ready after its start", *(f"{of['ready_s']:.1f} s" for of in (service, mlflow)),
         f"≤ {bounds['ready_s']} s"],
        ["predictions a second, 32 clients",
         *(f"{of['requests_per_s']:.0f}" for of in (service, mlflow)),
         f"≥ {bounds['requests_per_s']}"],
        ["half of them within", *(f"{of['p50_ms']:.0f} ms" for of in (service, mlflow)), ""],
        ["99 % of them within", *(f"{of['p99_ms']:.0f} ms" for of in (service, mlflow)),
         f"≤ {bounds['p99_ms']} ms"],
        ["memory", *(f"{of['memory_after_bytes'] / 1e6:.0f} MB" for of in (service, mlflow)), ""],
        [f"growth of memory, {service['requests']:,} and {mlflow['requests']:,} requests",
         *(f"{100 * value:.1f} %" for value in growth.values()),
         f"≤ {100 * bounds['memory_growth']:.0f} %"],
    ]  # fmt: skip
    return markdown(["header only, both on two cores", "voxcast", "MLflow", "allowed"], rows)


def openapi_fuzz() -> str:
    """Return how requests made from the OpenAPI document were answered."""
    figures = results("service/openapi_fuzz.json")
    rows = [
        [f"`{operation}`", *(f"{count:,}" for count in _classes(statuses))]
        for operation, statuses in figures["status_by_operation"].items()
    ]
    head = ["question", "answered", "refused", "failed", "no answer"]
    return markdown(head, [*rows, ["all", *(f"{n:,}" for n in _classes(figures["status"]))]])


def _classes(statuses: dict[str, int]) -> tuple[int, int, int, int]:
    """Return how many were answered, refused, failed, or not answered at all."""
    first = {kind: sum(n for status, n in statuses.items() if status[0] == kind) for kind in "245"}
    return first["2"], first["4"], first["5"], statuses.get("no answer", 0)


TABLES = (service_speed, openapi_fuzz)
