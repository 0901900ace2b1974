"""Questions and refusals in the OpenAPI document; FastAPI does not see them.

`voxcast.web.questions.question` reads a body itself, since it may be JSON or multipart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.web.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from pydantic import BaseModel

JSON = "application/json"
_DEFINITIONS = "#/$defs/"
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what is wrong, where, and what to do"},
    },
}
_STATUSES: dict[int | str, str] = {
    "default": "any other refusal",
    400: "the image or a value of a field cannot be used",
    401: "the token is missing or wrong",
    404: "the service has nothing of this",
    413: "the body is too large",
    415: "the body is neither JSON nor multipart",
    422: "a field is unknown, missing or of another type",
    429: "too many requests; see Retry-After",
    503: "no model is loaded; see Retry-After",
}


def problems(*statuses: int | str) -> dict[int | str, dict[str, Any]]:
    """Return the refusals of a route, for its ``responses``."""
    content = {MEDIA_TYPE: {"schema": _PROBLEM}}
    return {status: {"description": _STATUSES[status], "content": content} for status in statuses}


ANY_PROBLEM = problems("default")
QUESTION_PROBLEMS = problems(400, 401, 413, 415, 422, 429, 503)


def json_body(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the body of a question that is JSON, for ``openapi_extra`` of a route."""
    return {"requestBody": {"required": True, "content": {JSON: {"schema": _schema(kind)}}}}


def body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the body of a question about an image, for ``openapi_extra`` of a route.

    Parameters
    ----------
    kind : type
        A subclass of `voxcast.web.questions.ImageQuestion`. As multipart its fields come as text,
        numbers and other values as the text of their JSON.
    """
    schema = _schema(kind)
    fields = {name: _as_text(field) for name, field in schema["properties"].items()}
    upload = {"type": "string", "format": "binary", "description": "a NIfTI image"}
    parts = {"type": "object", "properties": {"file": upload, **fields}, "required": ["file"]}
    content = {
        JSON: {"schema": schema},
        "multipart/form-data": {"schema": {**parts, "additionalProperties": False}},
    }
    return {"requestBody": {"required": True, "content": content}}


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    resolved: dict[str, Any] = _resolved(schema, schema.pop("$defs", {}))
    return resolved


def _resolved(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema with its definitions in the place of references to them."""
    if isinstance(schema, list):
        return [_resolved(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].removeprefix(_DEFINITIONS)], definitions)
    return {name: _resolved(part, definitions) for name, part in schema.items()}


def _as_text(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field as a part of a multipart body."""
    kinds = {field.get("type"), *(kind.get("type") for kind in field.get("anyOf", ()))}
    part: dict[str, Any] = {
        name: field[name] for name in ("description", "examples") if name in field
    }
    if not kinds <= {None, "null", "string"}:
        part["contentMediaType"] = "application/json"
    return part | {"type": "string"}
