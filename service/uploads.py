"""Pictures and names out of a request, sent as a form or as JSON.

Refuses what does not fit with a problem that says which field or picture is at fault. Looks at no pixels: bytes go on
as they came. Fetches nothing from anywhere.
"""

import binascii
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from dataclasses import field as attribute
from functools import partial
from typing import Any, NoReturn

import anyio.to_thread
from fastapi import Request
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from service.errors import ImageProblem, ParameterProblem, Problem, shortened, unusable_images
from store import names
from store.errors import UnusableName
from store.models import LONGEST_NAME

FORM = "multipart/form-data"
JSON = "application/json"
SMALL_BODY = 64 * 1024  # decoded where it is: a thread would cost more
_BYTEWISE = "latin-1"


@dataclass(frozen=True)
class Upload:
    """One picture as it was sent."""

    index: int
    filename: str | None
    data: bytes = attribute(repr=False)


@dataclass(frozen=True)
class Shots:
    """A class to be taught."""

    name: str
    pictures: list[Upload]


async def read_shots(request: Request, *, max_images: int) -> Shots:
    """A name and pictures: the fields `name` and `shots`."""
    reading = await _read(request, "shots", max_images, names=True)
    if reading.name is None:
        raise _unusable("name", "the name of the class is missing; add a text field 'name'")
    return Shots(clean_name(reading.name), reading.pictures)


async def read_pictures(request: Request, *, field: str, max_images: int) -> list[Upload]:
    """Pictures alone, in the field of that name."""
    return (await _read(request, field, max_images, names=False)).pictures


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


# Reading either kind of body


@dataclass
class _Reading:
    """What has been read so far of the fields that a route takes."""

    field: str
    max_images: int
    names: bool
    name: str | None = None
    pictures: list[Upload] = attribute(default_factory=list)

    def expected(self) -> str:
        return f"the fields are 'name' (text) and '{self.field}'" if self.names else f"the one field is '{self.field}'"

    def require_known(self, field: str) -> None:
        if field != self.field and not (self.names and field == "name"):
            raise _unusable(shortened(field), f"there is no field '{shortened(field)}' here; {self.expected()}")

    def set_name(self, name: str) -> None:
        if self.name is not None:
            raise _unusable("name", "the field 'name' comes twice; send it once")
        self.name = name

    def add(self, data: bytes, filename: str | None) -> None:
        self.pictures.append(Upload(len(self.pictures), filename, data))

    def require_room(self, images: int) -> None:
        if images > self.max_images:
            asked = f"'{self.field}' has more than {self.max_images} pictures"
            raise _unusable(self.field, f"{asked}; send them in several requests", slug="too-many-images")

    def require_pictures(self) -> None:
        if not self.pictures:
            raise _unusable(self.field, f"there is no picture in '{self.field}'; send at least one", slug="no-images")


async def _read(request: Request, field: str, max_images: int, *, names: bool) -> _Reading:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    reading = _Reading(field, max_images, names)
    if kind == FORM:
        await _read_form(request, options.get("boundary"), reading)
    elif kind == JSON:
        body = await request.body()
        if len(body) <= SMALL_BODY:
            _read_json(body, reading)
        else:
            await anyio.to_thread.run_sync(_read_json, body, reading)
    else:
        raise _unsupported(request.headers.get("content-type"))
    reading.require_pictures()
    return reading


def _unsupported(sent: str | None) -> Problem:
    what = f"the body is sent as '{shortened(sent)}'" if sent else "the request has no Content-Type"
    return Problem(
        415,
        "The body is of a type that is not accepted",
        f"{what}; send {FORM} with the pictures as files, or {JSON} with the pictures in base64",
        slug="unsupported-media-type",
        headers={"Accept-Post": f"{FORM}, {JSON}"},
    )


def _malformed(detail: str) -> Problem:
    return Problem(400, "The body cannot be read", detail, slug="malformed-body")


def _unusable(where: str, detail: str, *, slug: str = "invalid-request") -> Problem:
    reasons = [ParameterProblem(where=f"body {where}", reason=detail)]
    return Problem(422, "The body cannot be used", detail, slug=slug, errors=reasons)


# Forms


async def _read_form(request: Request, boundary: str | None, reading: _Reading) -> None:
    """Read to the end even when the form is refused: a client that is still sending would not hear the answer."""
    if not boundary or "\n" in boundary:
        raise _malformed(f"the Content-Type {FORM} names no boundary; leave that header to your HTTP library")
    form = _Form(boundary.encode(_BYTEWISE), reading)
    async for chunk in request.stream():
        form.write(chunk)
    form.finish()


class _Form:
    """Parts of a form, kept in memory: the request's size is capped before it comes here."""

    def __init__(self, boundary: bytes, reading: _Reading) -> None:
        self._reading = reading
        self._refusal: Problem | None = None
        self._parser = PushMultipartParser(boundary, header_charset=_BYTEWISE)
        self._part: MultipartSegment | None = None
        self._data: list[bytes] = []  # of the part, as it came

    def write(self, chunk: bytes) -> None:
        if chunk and self._refusal is None:
            self._attempt(lambda: self._take(self._parser.parse(chunk)))

    def finish(self) -> None:
        if self._refusal is None:
            self._attempt(self._parser.close)
        if self._refusal is not None:
            raise self._refusal

    def _attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Problem as problem:
            self._refusal = problem
        except MultipartError as error:
            why = shortened(str(error))
            self._refusal = _malformed(f"the form cannot be read ({why}); send it whole, as HTTP libraries make it")

    def _take(self, events: Iterable[MultipartSegment | bytes | None]) -> None:
        for event in events:
            if isinstance(event, bytes):
                self._data.append(event)
            elif event is not None:
                self._require_fitting(event)
                self._part, self._data = event, []
            else:
                self._end()

    def _require_fitting(self, part: MultipartSegment) -> None:
        """Known by its headers alone what the part is: what is not wanted is not kept."""
        if not part.name:
            raise _malformed("a part of the form has no name in its Content-Disposition")
        field = _as_utf8(part.name)
        self._reading.require_known(field)
        wanted = field == self._reading.field
        if wanted and not _is_file(part):
            fault = f"'{field}' holds text where a file is expected; with curl: -F {field}=@picture.jpg"
            raise _unusable(field, fault)
        if not wanted and _is_file(part):
            raise _unusable(field, f"'{field}' holds a file where text is expected")
        if wanted:
            self._reading.require_room(len(self._reading.pictures) + 1)

    def _end(self) -> None:
        part, data = self._part, b"".join(self._data)
        assert part is not None
        if _is_file(part):
            self._reading.add(data, _as_utf8(part.filename) if part.filename else None)
            return
        try:
            self._reading.set_name(data.decode())
        except UnicodeDecodeError:
            raise _unusable("name", "the name is not UTF-8; send it in that encoding") from None


def _is_file(part: MultipartSegment) -> bool:
    return part.filename is not None or not (part.content_type or "text/plain").startswith("text/")


def _as_utf8(text: str) -> str:
    """Of a header that was read byte by byte; an old client's file name need not be UTF-8."""
    return text.encode(_BYTEWISE).decode("utf-8", "replace")


# JSON


def _read_json(body: bytes, reading: _Reading) -> None:
    content = _parse(body)
    if not isinstance(content, dict):
        raise _unusable(reading.field, f"the body is {_kind(content)} and must be an object; {reading.expected()}")
    for field in content:
        reading.require_known(field)
    if reading.names and "name" in content:
        if not isinstance(content["name"], str):
            raise _unusable("name", f"'name' is {_kind(content['name'])} and must be a string")
        reading.set_name(content["name"])
    _read_base64(content.get(reading.field, []), reading)


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise _malformed("the body is nested too deeply; this takes one flat object") from None
    except UnicodeDecodeError:
        raise _malformed("the body is not UTF-8; send JSON in that encoding") from None
    except ValueError as error:
        raise _malformed(f"the body is not JSON ({shortened(str(error))})") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    field, times = Counter(name for name, _ in pairs).most_common(1)[0] if pairs else ("", 0)
    if times > 1:
        raise _unusable(shortened(field), f"the field '{shortened(field)}' comes {times} times; send it once")
    return dict(pairs)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _read_base64(entries: Any, reading: _Reading) -> None:
    field = reading.field
    if not isinstance(entries, list):
        raise _unusable(field, f"'{field}' is {_kind(entries)} and must be a list of pictures in base64")
    reading.require_room(len(entries))
    problems = []
    for index, entry in enumerate(entries):
        try:
            reading.add(_decode_base64(entry), None)
        except ValueError as error:
            problems.append(ImageProblem(index=index, filename=None, reason=str(error)))
    if problems:
        raise unusable_images(problems, len(entries))


def _decode_base64(entry: Any) -> bytes:
    """The bytes behind base64 as people have it: with line breaks, or copied out of a data URI."""
    if not isinstance(entry, str):
        raise ValueError(f"this is {_kind(entry)} and must be a string of base64")
    text = entry.strip()
    if text[:5].lower() == "data:":
        head, _, text = text.partition(",")
        if not head.lower().endswith(";base64"):
            raise ValueError("this data URI is not base64; it must read data:image/…;base64,…")
    try:
        return b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"this is not base64 ({error}); addresses and file names are not accepted") from None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


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
