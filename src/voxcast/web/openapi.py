"""Bodies of questions in the OpenAPI document: handlers read them from several kinds of bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI
    from pydantic import BaseModel

_REFERENCE = "#/components/schemas/{model}"
_components: dict[str, Any] = {}


def json_body(kind: type[BaseModel]) -> dict[str, Any]:
    """Return ``openapi_extra`` of a route that reads a question as JSON."""
    schema = kind.model_json_schema(ref_template=_REFERENCE)
    _components.update(schema.pop("$defs", {}))
    _components[kind.__name__] = schema
    reference = {"$ref": _REFERENCE.format(model=kind.__name__)}
    content = {"application/json": {"schema": reference}}
    return {"requestBody": {"required": True, "content": content}}


def add_components(app: FastAPI) -> None:
    """Add the questions of all routes to the components of an application's document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        document.setdefault("components", {}).setdefault("schemas", {}).update(_components)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation extends it
