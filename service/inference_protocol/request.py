"""Reads an inference request as it arrives: JSON, and after it, if the caller likes, the images as a binary tensor.

As with `/predict`, no tree is built of what a caller sends: images go to the spool piece by piece, and all else is
small or refused. So a request costs what its images cost, whatever it claims of shapes and lengths.
"""

import json
import math
import re
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from service.image_fields import ImageFields, Upload, malformed, unusable
from service.inference_protocol.schemas import INPUT, RequestHead
from service.json_images import JsonReader, Step
from service.limits import expect_images
from service.problems import Problem, shortened

HEAD_LENGTH = "inference-header-content-length"
LARGEST_HEAD = 64 * 1024  # bytes of a request's JSON, without its images
DEEPEST = 8  # lists and objects within each other
_LENGTH = 4  # bytes before each image of a binary tensor, little-endian
_LITERAL = re.compile(rb"[-+.0-9A-Za-z]*+")


async def read_inference(request: Request, *, max_images: int) -> tuple[RequestHead, list[Upload]]:
    """What is asked, and the images."""
    _require_plain(request.headers.get("content-encoding", ""))
    fields = ImageFields(INPUT, max_images, has_name=False)
    reader = InferenceReader(fields, _head_length(request.headers.getlist(HEAD_LENGTH)))
    expect_images(request)
    async for chunk in request.stream():
        if chunk:
            reader.write(chunk)
            await fields.spool.settle()
    return reader.finish(), fields.images


def _require_plain(encoding: str) -> None:
    if encoding.strip().lower() not in {"", "identity"}:
        raise Problem(
            415,
            "The encoding of the body is not accepted",
            f"the body has the encoding '{shortened(encoding)}'; send it as it is: images are compressed already",
            slug="unsupported-media-type",
        )


def _head_length(sent: list[str]) -> int | None:
    if not sent:
        return None
    if len(sent) > 1 or not re.fullmatch(r"[0-9]{1,15}", sent[0], re.ASCII) or not int(sent[0]):
        raise malformed("Inference-Header-Content-Length must be one number: how many bytes of the body are JSON")
    return int(sent[0])


class InferenceReader:
    """`write` what arrives, then `finish`."""

    def __init__(self, fields: ImageFields, head_length: int | None) -> None:
        self._fields = fields
        self._head_length = head_length  # None: all of the body is JSON
        self._missing = head_length or 0  # bytes of the JSON
        self._json = _JsonPart(fields)
        self._head: RequestHead | None = None
        self._tensor: BinaryTensor | None = None

    def write(self, chunk: bytes) -> None:
        if self._head_length is None:
            self._json.write(chunk)
            return
        head, rest = chunk[: self._missing], chunk[self._missing :]
        self._missing -= len(head)
        if head:
            self._json.write(head)
            if not self._missing:
                self._begin_tensor()
        if rest:
            if self._tensor is None:
                raise malformed("bytes follow the JSON, but no input has the parameter 'binary_data_size'")
            self._tensor.write(rest)

    def finish(self) -> RequestHead:
        if self._head is None:
            self._head = self._json.head()
            if self._head.inputs[0].parameters.binary_data_size is not None:
                detail = "'binary_data_size' needs the header Inference-Header-Content-Length: where the JSON ends"
                raise malformed(detail)
        if self._tensor is not None:
            self._tensor.finish()
        self._fields.require_images()
        self._require_shape(self._head)
        return self._head

    def _begin_tensor(self) -> None:
        self._head = self._json.head()
        size = self._head.inputs[0].parameters.binary_data_size
        if size is None:
            return
        if self._fields.images:
            raise unusable("inputs data", "the input has 'data' and 'binary_data_size'; send its images one way only")
        self._fields.require_room(math.prod(self._head.inputs[0].shape))
        self._tensor = BinaryTensor(self._fields, size)

    def _require_shape(self, head: RequestHead) -> None:
        shape, images = head.inputs[0].shape, len(self._fields.images)
        if math.prod(shape) != images:
            detail = f"the shape {shape} of '{INPUT}' is not that of its {images} images; send [{images}]"
            raise unusable("inputs shape", detail)


class BinaryTensor:
    """Elements of type BYTES: the length of each, then its bytes."""

    def __init__(self, fields: ImageFields, size: int) -> None:
        self._fields = fields
        self._size = size
        self._left = size  # bytes of the tensor that have not come
        self._length = b""  # of the next image, as far as it has come
        self._image = fields.spool.blob()
        self._missing = 0  # bytes of the present image

    def write(self, chunk: bytes) -> None:
        if len(chunk) > self._left:
            raise malformed(f"the body is longer than its JSON and the {self._size} bytes of 'binary_data_size'")
        at = 0
        while at < len(chunk):
            if self._missing:
                piece = chunk[at : at + self._missing]
                self._image.write(piece)
                self._missing -= len(piece)
            else:
                piece = chunk[at : at + _LENGTH - len(self._length)]
                self._length += piece
            at += len(piece)
            self._left -= len(piece)
            if len(self._length) == _LENGTH:
                self._begin_image()

    def finish(self) -> None:
        if self._left:
            raise malformed(f"the body ends {self._left} bytes before the {self._size} bytes of 'binary_data_size'")
        if self._length or self._missing:
            raise malformed("the binary tensor ends within an image, or within the length of one")

    def _begin_image(self) -> None:
        length, self._length = int.from_bytes(self._length, "little"), b""
        if length > self._left:
            index = len(self._fields.images)
            raise malformed(f"image {index} has {length} bytes, and {self._left} are left of 'binary_data_size'")
        self._image, self._missing = self._fields.begin_image(None), length


class _JsonPart(JsonReader):
    """The JSON of a request. The images in it are decoded as they come; all else is kept until it is complete."""

    def __init__(self, fields: ImageFields) -> None:
        self._small: dict[str, Any] = {"inputs": []}
        self._small_bytes = 0
        super().__init__(fields)

    def head(self) -> RequestHead:
        """Call it after the last byte."""
        super().finish()
        try:
            head = RequestHead.model_validate(self._small)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from error
        _require_supported(head)
        return head

    def _members(self) -> Step[None]:
        if (yield from self._next()) == ord("}"):
            self._at += 1
            return
        while True:
            field = yield from self._field(self._small.keys() - {"inputs"})
            if field == "inputs":
                yield from self._inputs()
            else:
                self._small[field] = yield from self._value()
            if (yield from self._take(b",}")) == ord("}"):
                return

    def _inputs(self) -> Step[None]:
        if self._small["inputs"]:
            raise unusable("inputs", "the field 'inputs' appears twice; send it once")
        yield from self._take(b"[")
        if (yield from self._next()) == ord("]"):
            raise unusable("inputs", f"there is no input; send '{INPUT}', of type BYTES")
        yield from self._input()
        if (yield from self._take(b",]")) == ord(","):
            raise unusable("inputs", f"there is more than one input; send '{INPUT}' alone")

    def _input(self) -> Step[None]:
        described: dict[str, Any] = {}
        self._small["inputs"].append(described)
        yield from self._take(b"{")
        if (yield from self._next()) == ord("}"):
            self._at += 1
            return
        while True:
            field = yield from self._field(described.keys())
            if field == "data":
                described[field] = None
                yield from self._data(1)
            else:
                described[field] = yield from self._value()
            if (yield from self._take(b",}")) == ord("}"):
                return

    def _field(self, seen: "set[str] | Any") -> Step[str]:
        """A name and its colon."""
        yield from self._take(b'"')
        field = yield from self._text("")
        self._count(len(field))
        if field in seen:
            raise unusable(shortened(field), f"the field '{shortened(field)}' appears twice; send it once")
        yield from self._take(b":")
        return field

    def _data(self, depth: int) -> Step[None]:
        """Images in base64, in one list or, as the shape may have them, in lists of lists; none of them is empty."""
        byte = yield from self._next()
        if byte != ord("["):
            raise unusable("inputs data", f"'data' is {self._kind(byte)} and must be a list of images in base64")
        self._at += 1
        if depth > DEEPEST:
            raise unusable("inputs data", f"'data' has lists within more than {DEEPEST} lists; send one list")
        if (yield from self._next()) == ord("]"):
            raise unusable("inputs data", "a list in 'data' is empty; send at least one image", slug="no-images")
        while True:
            if (yield from self._next()) == ord("["):
                yield from self._data(depth + 1)
            else:
                yield from self._element()
            if (yield from self._take(b",]")) == ord("]"):
                return

    def _element(self) -> Step[None]:
        image = self._fields.begin_image(None)
        if reason := (yield from self._image(image)):
            raise unusable("inputs data", f"image {len(self._fields.images) - 1}: {reason}", slug="invalid-image")

    def _value(self) -> Step[Any]:
        """Any other value, as long as it is small."""
        raw, depth = bytearray(), 0
        while True:
            byte = yield from self._next()
            piece = yield from self._token(byte)
            self._count(len(piece))
            raw += piece
            depth += (byte in b"[{") - (byte in b"]}")
            if depth > DEEPEST:
                raise unusable("", f"the body has lists or objects within more than {DEEPEST} others")
            if depth <= 0 and byte not in b",:":
                break
        try:
            return json.loads(raw)
        except ValueError:
            raise malformed(f"the body is not JSON (at '{shortened(raw.decode('utf-8', 'replace'))}')") from None

    def _token(self, byte: int) -> Step[bytes]:
        if byte in b"[]{},:":
            self._at += 1
            return bytes([byte])
        if byte == ord('"'):
            self._at += 1
            text = b""
            while (piece := (yield from self._piece())) is not None:
                text += piece
                self._require_small(len(text))
            return b'"' + text + b'"'
        self._kind(byte)
        literal = self._skip(_LITERAL)
        while self._at == len(self._buffer) and not self._ended:  # its end may be in the next chunk
            self._require_small(len(literal))
            yield from self._more()
            literal += self._skip(_LITERAL)
        return literal

    def _count(self, more: int) -> None:
        self._small_bytes += more
        self._require_small(0)

    def _require_small(self, more: int) -> None:
        if self._small_bytes + more > LARGEST_HEAD:
            raise unusable("", f"the body has more than {LARGEST_HEAD} bytes beside its images")


def _require_supported(head: RequestHead) -> None:
    if not head.inputs:
        raise unusable("inputs", f"there is no input; send '{INPUT}', of type BYTES")
    (sent,) = head.inputs
    if sent.name != INPUT:
        raise unusable("inputs name", f"there is no input '{shortened(sent.name)}'; the one input is '{INPUT}'")
    if sent.datatype != "BYTES":
        detail = f"'{INPUT}' is sent as {shortened(sent.datatype)} and must be BYTES: a JPEG, PNG or the like for each"
        raise unusable("inputs datatype", detail)
    for output in head.outputs:
        if output.parameters.classification is not None or output.parameters.shared_memory_region is not None:
            detail = "'classification' and shared memory are not supported; ask for the output 'top_label' instead"
            raise unusable("outputs parameters", detail)
