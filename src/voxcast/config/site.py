"""The schema of ``conf/cluster`` and ``conf/policy``, in terms of `voxcast.allocation`.

Amounts with a unit are texts in the files. Null in a node type stands for the value of this
machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from voxcast.allocation.assessment import Policy
from voxcast.allocation.site import (
    MEMORY_FLOOR_BYTES,
    Billing,
    Cluster,
    MemoryCounted,
    NodeType,
    Partition,
)
from voxcast.allocation.waiting import Waiting
from voxcast.config.sections import (
    ByName,
    Keys,
    RuleError,
    Section,
    at_least,
    between,
    quantity,
    rule,
)
from voxcast.quantities import parse_bytes, parse_seconds

MAX_MEMORY_MARGIN = 10  # times the predicted memory; a larger margin is a mistake


@dataclass(frozen=True)
class Here:
    """The size of this machine, for node types that leave it open."""

    cores: int
    memory_bytes: int
    gpus: int

    @classmethod
    def of_this_machine(cls) -> Here:
        """Return what this machine has."""
        from voxcast.profiling.host import host_facts

        facts = host_facts()
        return cls(facts.cores, facts.memory_bytes, len(facts.gpu_models))


def of_this_machine(field: str) -> BeforeValidator:
    """Return a validator that replaces null by the value of this machine."""

    def look_up(value: Any, validation: ValidationInfo) -> Any:
        context = validation.context or {}
        return getattr(context["here"](), field) if value is None else value

    return BeforeValidator(look_up)


SECONDS = quantity(parse_seconds)
BYTES = quantity(parse_bytes)
SECONDS_OR_NULL = quantity(parse_seconds, optional=True)
BYTES_OR_NULL = quantity(parse_bytes, optional=True)
LIMIT = rule(lambda value: value is None or value > 0, "must be above 0; null for none")
Amount = Annotated[
    float,
    rule(lambda value: math.isfinite(value) and value >= 0, "must not be negative, and finite"),
]

BILLING = Keys(
    {
        "core_step": Annotated[int, at_least(1)],
        "time_step_s": Annotated[float, SECONDS, Field(alias="time_step")],
        "minimum_s": Annotated[float, SECONDS, Field(alias="minimum")],
    }
)
NODE_TYPES = ByName(
    {
        "cores": Annotated[int, at_least(1), of_this_machine("cores")],
        "memory_bytes": Annotated[
            int,
            rule(lambda value: value >= 1, "must be above 0"),
            of_this_machine("memory_bytes"),
            BYTES_OR_NULL,
            Field(alias="memory"),
        ],
        "gpus": Annotated[int, at_least(0), of_this_machine("gpus")],
        "usd_per_core_hour": Amount,
        "usd_per_gpu_hour": Amount,
        "usd_per_gb_hour": Amount,
    },
    spread=("prices",),
)
WAITING = Keys(
    {"alpha": Amount, "gamma_s": Annotated[float, rule(math.isfinite, "must be a number")]}
)
PARTITIONS = ByName(
    {
        "max_walltime_s": Annotated[
            float | None, LIMIT, SECONDS_OR_NULL, Field(alias="max_walltime")
        ],
        "max_cores": Annotated[int | None, LIMIT],
        "max_memory_bytes": Annotated[int | None, LIMIT, BYTES_OR_NULL, Field(alias="max_memory")],
        "waiting": Annotated[Waiting, WAITING],
        "memory_per_cpu": bool,
    }
)
POLICIES = ByName(
    {
        "confidence": Annotated[float, between(0.5, 1)],
        "memory_margin": Annotated[
            float,
            rule(
                lambda value: 0 <= value <= MAX_MEMORY_MARGIN,
                f"must not be negative, and at most {MAX_MEMORY_MARGIN}",
            ),
        ],
        "hour_in_core_hours": Amount,
    }
)
PolicyByName = Annotated[dict[str, Policy], POLICIES]


class RequestSteps(Section):
    """The steps to which requests are rounded up, the least memory, and how memory is counted."""

    walltime_s: Annotated[float, SECONDS, Field(alias="walltime_step")]
    memory_bytes: Annotated[int, BYTES, Field(alias="memory_step")]
    memory_floor_bytes: Annotated[int, BYTES, Field(alias="memory_floor")] = MEMORY_FLOOR_BYTES
    memory_counted: MemoryCounted | None = None
    mapped_files_bytes: Annotated[int | None, BYTES_OR_NULL, Field(alias="mapped_files")] = None


class ClusterFile(Section):
    """A file of ``conf/cluster``."""

    billing: Annotated[Billing, BILLING]
    request: RequestSteps
    node_types: Annotated[tuple[NodeType, ...], NODE_TYPES, rule(bool, "needs at least one")]
    partitions: Annotated[tuple[Partition, ...], PARTITIONS]

    @model_validator(mode="after")
    def _check(self) -> ClusterFile:
        names = [partition.name for partition in self.partitions]
        for node in self.node_types:
            if node.partition not in names:
                raise RuleError(
                    f"no such partition; choose from {', '.join(names) or 'none'}",
                    f"node_types.{node.name}.partition",
                )
        return self

    def cluster(self, name: str) -> Cluster:
        """Return the cluster as the library takes it."""
        return Cluster(
            name,
            self.node_types,
            self.partitions,
            self.billing,
            self.request.walltime_s,
            self.request.memory_bytes,
            self.request.memory_floor_bytes,
            self.request.memory_counted,
            self.request.mapped_files_bytes,
        )
