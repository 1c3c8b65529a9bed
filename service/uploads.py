"""Pictures and names out of a request, sent as a form or as JSON.

Refuses what does not fit with a problem that says which field or picture is at fault. Looks at no pixels: bytes go on
as they came. Fetches nothing from anywhere.
"""

import binascii
import json
import re
import unicodedata
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as attribute
from functools import partial
from typing import Any, NoReturn

import anyio.to_thread
from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import ImageProblem, ParameterProblem, Problem, shortened, unusable_images
from store.models import LONGEST_NAME

FORM = "multipart/form-data"
JSON = "application/json"
MODEL_NAME = r"[a-z0-9][a-z0-9_-]{0,62}"
SMALL_BODY = 64 * 1024  # decoded where it is: a thread would cost more

# Reserved for pictographs by Unicode itself: an emoji that is younger than this Python looks unassigned there.
_PICTOGRAPHS = range(0x1F000, 0x1FB00)
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # show another name than is stored
_REFUSED = {
    "Cc": "a control character or line break",
    "Cs": "half a surrogate pair",
    "Cn": "a character that does not exist",
    "Zl": "a line break",
    "Zp": "a line break",
}
_INVISIBLE = ("Z", "M", "Cf")


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
    """A class's name as it is stored: trimmed, composed, and the same to the eye as to a comparison."""
    name = text.strip()
    if len(name) <= 4 * LONGEST_NAME:  # composing shortens at most fourfold, and is slow on what is very long
        name = unicodedata.normalize("NFC", name)
    if len(name) > LONGEST_NAME:
        raise _bad_name(f"the name has {len(name)} characters; take at most {LONGEST_NAME}")
    for character in name:
        if why := _why_refused(character):
            raise _bad_name(f"the name contains {why} (U+{ord(character):04X}); leave it out")
    if all(unicodedata.category(character).startswith(_INVISIBLE) for character in name):
        raise _bad_name("the name is empty; give it a character that can be seen")
    return name


def _why_refused(character: str) -> str | None:
    if character in _DIRECTIONS:
        return "a character that turns the direction of text"
    category = unicodedata.category(character)
    if category == "Cn" and ord(character) in _PICTOGRAPHS:
        return None
    return _REFUSED.get(category)


def _bad_name(detail: str) -> Problem:
    reasons = [ParameterProblem(where="name", reason=detail)]
    return Problem(422, "The name cannot be used", detail, slug="invalid-name", errors=reasons)


def model_name(text: str) -> str:
    """A model's name, which is part of its address."""
    if re.fullmatch(MODEL_NAME, text):
        return text
    allowed = "take 1 to 63 of a-z, 0-9, '-' and '_', and begin with a letter or digit"
    raise _bad_name(f"'{shortened(text)}' cannot name a model; {allowed}")


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
    kind, options = parse_options_header(request.headers.get("content-type"))
    reading = _Reading(field, max_images, names)
    if kind == FORM.encode():
        await _read_form(request, options.get(b"boundary"), reading)
    elif kind == JSON.encode():
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


async def _read_form(request: Request, boundary: bytes | None, reading: _Reading) -> None:
    """Read to the end even when the form is refused: a client that is still sending would not hear the answer."""
    if not boundary:
        raise _malformed(f"the Content-Type {FORM} names no boundary; leave that header to your HTTP library")
    form = _Form(boundary, reading)
    async for chunk in request.stream():
        form.write(chunk)
    form.finish()


class _Form:
    """Parts of a form, kept in memory: the request's size is capped before it comes here."""

    def __init__(self, boundary: bytes, reading: _Reading) -> None:
        self._reading = reading
        self._refusal: Problem | None = None
        self._ended = False
        self._header = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._field = ""
        self._filename: str | None = None
        self._is_file = False
        self._data = bytearray()
        self._parser: MultipartParser | None = None
        self._attempt(lambda: self._begin(boundary))

    def write(self, chunk: bytes) -> None:
        parser = self._parser
        if parser is not None and self._refusal is None:
            self._attempt(lambda: parser.write(chunk))

    def finish(self) -> None:
        if self._refusal is None and not self._ended:
            self._refusal = _malformed("the form ends before its closing boundary; send it whole")
        if self._refusal is not None:
            raise self._refusal

    def _attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Problem as problem:
            self._refusal = problem
        except FormParserError as error:
            self._refusal = _malformed(f"the form cannot be read ({shortened(str(error))})")

    def _begin(self, boundary: bytes) -> None:
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )

    def _on_part_begin(self) -> None:
        self._headers = {}
        self._data = bytearray()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _on_headers_finished(self) -> None:
        """Known by its headers alone what the part is: what is not wanted is not kept."""
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        if b"name" not in options:
            raise _malformed("a part of the form has no name in its Content-Disposition")
        self._field = options[b"name"].decode("utf-8", "replace")
        self._reading.require_known(self._field)
        filename = options.get(b"filename")
        self._filename = filename.decode("utf-8", "replace") if filename else None
        kind = self._headers.get(b"content-type", b"text/plain")
        self._is_file = filename is not None or not kind.lower().startswith(b"text/")
        self._require_kind()

    def _require_kind(self) -> None:
        wanted = self._field == self._reading.field
        if wanted and not self._is_file:
            fault = f"'{self._field}' holds text where a file is expected; with curl: -F {self._field}=@picture.jpg"
            raise _unusable(self._field, fault)
        if self._is_file and not wanted:
            raise _unusable(self._field, f"'{self._field}' holds a file where text is expected")
        if wanted:
            self._reading.require_room(len(self._reading.pictures) + 1)

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def _on_part_end(self) -> None:
        if self._is_file:
            self._reading.add(bytes(self._data), self._filename)
            return
        try:
            self._reading.set_name(self._data.decode())
        except UnicodeDecodeError:
            raise _unusable("name", "the name is not UTF-8; send it in that encoding") from None

    def _on_end(self) -> None:
        self._ended = True


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
