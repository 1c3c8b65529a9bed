"""Reads images and names from a request, sent as a form or as JSON.

Anything else is refused with a problem that names the field or the image. Decodes no images: their bytes are passed on
as they came. Fetches nothing from a URL.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import Request
from multipart import parse_options_header

from service.forms import FormReader
from service.image_fields import ImageFields, Upload, unusable
from service.json_images import JsonReader
from service.limits import expect_images
from service.problems import Problem, shortened
from store.models import LONGEST_NAME
from store.names import class_name

FORM = "multipart/form-data"
JSON = "application/json"
LONGEST_TYPE = 500  # characters of a Content-Type

__all__ = ["IMAGES_BODY", "SHOTS_BODY", "Shots", "Upload", "read_images", "read_shots"]


@dataclass(frozen=True)
class Shots:
    """A class to be taught."""

    name: str
    images: list[Upload]


async def read_shots(request: Request, *, max_images: int) -> Shots:
    """A class's name as it is stored, and images: the fields `name` and `shots`."""
    fields = await _read(request, ImageFields("shots", max_images, has_name=True))
    if fields.name is None:
        raise unusable("name", "the name of the class is missing; add a text field 'name'")
    return Shots(class_name(fields.name), fields.images)


async def read_images(request: Request, *, field: str, max_images: int) -> list[Upload]:
    """Images only, in the field of that name."""
    return (await _read(request, ImageFields(field, max_images, has_name=False))).images


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
    # Cut, because parsing a very long one is slow, and no client sends one.
    kind, options = parse_options_header(content_type[:LONGEST_TYPE])
    if kind == FORM:
        return FormReader(fields, options.get("boundary"))
    if kind == JSON:
        return JsonReader(fields)
    raise _unsupported(content_type)


def _unsupported(sent: str) -> Problem:
    what = f"the body has the type '{shortened(sent)}'" if sent else "there is no Content-Type"
    return Problem(
        415,
        "The type of the body is not accepted",
        f"{what}; send {FORM} with the images as files, or {JSON} with the images in base64",
        slug="unsupported-media-type",
        headers={"Accept-Post": f"{FORM}, {JSON}"},
    )


# OpenAPI

TINY_IMAGE = (  # a PNG of 2 x 2 pixels
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR42mM8EaDBwMDAxMDAwMDAAAAPygFEi5XGRAAAAABJRU5ErkJggg=="
)


def _body_of(others: dict[str, Any], field: str) -> dict[str, Any]:
    binary = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
    base64 = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "string", "contentEncoding": "base64", "description": "An image, in base64."},
    }
    required = [*others, field]
    example = {name: schema["examples"][0] for name, schema in others.items()} | {field: [TINY_IMAGE]}
    return {
        "required": True,
        "content": {
            FORM: {"schema": _object_schema({**others, field: binary}, required)},
            JSON: {"schema": _object_schema({**others, field: base64}, required), "example": example},
        },
    }


def _object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# For a route's `openapi_extra={"requestBody": …}`: the body of `read_images` by its field, and that of `read_shots`.
IMAGES_BODY = partial(_body_of, {})
SHOTS_BODY = _body_of(
    {"name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "examples": ["red panda"]}}, "shots"
)
