"""Pictures and names out of a request, sent as a form or as JSON.

Refuses what does not fit with a problem that says which field or picture is at fault. Looks at no pixels: bytes go on
as they came. Fetches nothing from anywhere.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import Request
from multipart import parse_options_header

from service.errors import ParameterProblem, Problem, shortened
from service.forms import FormReader
from service.image_fields import ImageFields, Upload, unusable
from service.json_images import JsonReader
from service.limits import expect_images
from store import names
from store.errors import UnusableName
from store.models import LONGEST_NAME

FORM = "multipart/form-data"
JSON = "application/json"
LONGEST_TYPE = 500  # characters of a Content-Type

__all__ = ["PICTURES_BODY", "SHOTS_BODY", "Shots", "Upload", "clean_name", "model_name", "read_pictures", "read_shots"]


@dataclass(frozen=True)
class Shots:
    """A class to be taught."""

    name: str
    pictures: list[Upload]


async def read_shots(request: Request, *, max_images: int) -> Shots:
    """A name and pictures: the fields `name` and `shots`."""
    fields = await _read(request, ImageFields("shots", max_images, has_name=True))
    if fields.name is None:
        raise unusable("name", "the name of the class is missing; add a text field 'name'")
    return Shots(clean_name(fields.name), fields.images)


async def read_pictures(request: Request, *, field: str, max_images: int) -> list[Upload]:
    """Pictures alone, in the field of that name."""
    return (await _read(request, ImageFields(field, max_images, has_name=False))).images


def clean_name(text: str) -> str:
    """A class's name as it is stored."""
    try:
        return names.class_name(text)
    except UnusableName as error:
        raise _bad_name(str(error)) from error


def _bad_name(detail: str) -> Problem:
    reasons = [ParameterProblem(where="name", reason=detail)]
    return Problem(422, "The name cannot be used", detail, slug="invalid-name", errors=reasons)


def model_name(text: str) -> str:
    """A model's name, which is part of its address."""
    try:
        return names.model_name(text)
    except UnusableName as error:
        raise _bad_name(str(error)) from error


async def _read(request: Request, fields: ImageFields) -> ImageFields:
    reader = _reader(request.headers.get("content-type", ""), fields)
    expect_images(request)
    async for chunk in request.stream():
        if chunk:
            reader.write(chunk)
            await fields.spool.settle()
    reader.finish()
    fields.require_images()
    return fields


def _reader(content_type: str, fields: ImageFields) -> FormReader | JsonReader:
    # Cut: taking a very long one apart is slow, and no client sends one.
    kind, options = parse_options_header(content_type[:LONGEST_TYPE])
    if kind == FORM:
        return FormReader(fields, options.get("boundary"))
    if kind == JSON:
        return JsonReader(fields)
    raise _unsupported(content_type)


def _unsupported(sent: str) -> Problem:
    what = f"the body is sent as '{shortened(sent)}'" if sent else "the request has no Content-Type"
    return Problem(
        415,
        "The body is of a type that is not accepted",
        f"{what}; send {FORM} with the pictures as files, or {JSON} with the pictures in base64",
        slug="unsupported-media-type",
        headers={"Accept-Post": f"{FORM}, {JSON}"},
    )


# What OpenAPI says of these bodies

TINY_PICTURE = (  # a PNG of 2 x 2 pixels
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR42mM8EaDBwMDAxMDAwMDAAAAPygFEi5XGRAAAAABJRU5ErkJggg=="
)


def _body_of(others: dict[str, Any], field: str) -> dict[str, Any]:
    binary = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
    base64 = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "string", "contentEncoding": "base64", "description": "A picture, in base64."},
    }
    required = [*others, field]
    example = {name: schema["examples"][0] for name, schema in others.items()} | {field: [TINY_PICTURE]}
    return {
        "required": True,
        "content": {
            FORM: {"schema": _object_schema({**others, field: binary}, required)},
            JSON: {"schema": _object_schema({**others, field: base64}, required), "example": example},
        },
    }


def _object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# For a route's `openapi_extra={"requestBody": …}`: that of `read_pictures` by its field, and that of `read_shots`.
PICTURES_BODY = partial(_body_of, {})
SHOTS_BODY = _body_of(
    {"name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "examples": ["red panda"]}}, "shots"
)
