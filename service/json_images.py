"""Reads images and a name from JSON as it arrives: {"name": "...", "shots": ["<base64>", ...]} and nothing else.

It builds no tree of what a caller sends. The parser knows the one allowed form and refuses at the first byte that does
not fit; base64 is decoded piece by piece. So a body costs what its images cost, whatever it contains.
"""

import json
import re
from binascii import Error, a2b_base64
from collections.abc import Generator
from typing import TypeVar

from engine.errors import BadImage, UnusableImages
from service.image_fields import ImageFields, malformed, unusable
from service.spool import Blob

_SPACE = re.compile(rb"[ \t\r\n]*+")
_LITERAL = re.compile(rb"[-+.0-9A-Za-z]*+")
# The content of a string, up to its end or to an escape that has not arrived completely.
_RUN = re.compile(rb'(?>[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_LONGEST_ESCAPE = len(rb"\u0000")
_KINDS = {
    **dict.fromkeys(b"-0123456789", "a number"),
    **dict.fromkeys(b"tf", "true or false"),
    ord("{"): "an object",
    ord("["): "a list",
    ord('"'): "a string",
    ord("n"): "null",
}

Result = TypeVar("Result")
Step = Generator[None, None, Result]
"""Yields when it needs more bytes than there are."""


class JsonReader:
    def __init__(self, fields: ImageFields) -> None:
        self._fields = fields
        self._buffer = b""
        self._at = 0
        self._ended = False
        self._steps = self._document()
        next(self._steps)

    def write(self, chunk: bytes) -> None:
        rest = self._buffer[self._at :]  # a few bytes at most
        self._buffer, self._at = rest + chunk if rest else chunk, 0
        next(self._steps)

    def finish(self) -> None:
        self._ended = True
        for _ in self._steps:
            pass

    def _more(self) -> Step[None]:
        if self._ended:
            raise malformed("the body is not JSON (it ends too early)")
        yield

    def _next(self) -> Step[int]:
        """The next byte that is not white space; it is not consumed."""
        while True:
            self._skip(_SPACE)
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            yield from self._more()

    def _skip(self, pattern: re.Pattern[bytes]) -> bytes:
        found = pattern.match(self._buffer, self._at)
        assert found is not None  # each pattern matches the empty string, too
        self._at = found.end()
        return found.group()

    def _take(self, expected: bytes) -> Step[int]:
        """Consume the next byte, which must be one of these."""
        byte = yield from self._next()
        if byte not in expected:
            raise malformed(f"the body is not JSON ('{expected.decode()[-1]}' is missing)")
        self._at += 1
        return byte

    def _kind(self, byte: int) -> str:
        if byte not in _KINDS:
            raise malformed("the body is not JSON (a value is missing)")
        return _KINDS[byte]

    def _document(self) -> Step[None]:
        yield
        byte = yield from self._next()
        if byte != ord("{"):
            detail = f"the body is {self._kind(byte)} and must be an object; {self._fields.expected()}"
            raise unusable(self._fields.field, detail)
        self._at += 1
        yield from self._members()
        while not self._ended:
            self._skip(_SPACE)
            if self._at < len(self._buffer):
                raise malformed("the body is not JSON (something follows the object)")
            yield

    def _members(self) -> Step[None]:
        seen: set[str] = set()
        if (yield from self._next()) == ord("}"):
            self._at += 1
            return
        while True:
            yield from self._take(b'"')
            field = yield from self._text("")
            self._fields.require_known(field)
            if field in seen:
                raise unusable(field, f"the field '{field}' appears twice; send it once")
            seen.add(field)
            yield from self._take(b":")
            yield from self._images() if field == self._fields.field else self._name()
            if (yield from self._take(b",}")) == ord("}"):
                return

    def _name(self) -> Step[None]:
        byte = yield from self._next()
        if byte != ord('"'):
            raise unusable("name", f"'name' is {self._kind(byte)} and must be a string")
        self._at += 1
        self._fields.set_name((yield from self._text("name")))

    def _images(self) -> Step[None]:
        field = self._fields.field
        byte = yield from self._next()
        if byte != ord("["):
            raise unusable(field, f"'{field}' is {self._kind(byte)} and must be a list of images in base64")
        self._at += 1
        if (yield from self._next()) == ord("]"):
            self._at += 1
            return
        bad: list[BadImage] = []
        while True:
            index = len(self._fields.images)
            image = self._fields.begin_image(None)
            if reason := (yield from self._image(image)):
                bad.append(BadImage(index, None, reason))
            if (yield from self._take(b",]")) == ord("]"):
                break
        if bad:
            raise UnusableImages(bad, index + 1)

    def _image(self, image: Blob) -> Step[str | None]:
        """Returns what is wrong with it."""
        byte = yield from self._next()
        kind = self._kind(byte)
        if byte == ord('"'):
            self._at += 1
            return (yield from self._base64(image))
        reason = f"this is {kind} and must be a string of base64"
        if byte in b"[{":  # its content need not be read
            index = len(self._fields.images) - 1
            raise UnusableImages([BadImage(index, None, reason)], index + 1)
        while not self._ended:
            self._skip(_LITERAL)
            if self._at < len(self._buffer):
                break
            yield from self._more()
        return reason

    def _text(self, field: str) -> Step[str]:
        """The rest of a string, after its first quote."""
        raw = b""
        while (piece := (yield from self._piece())) is not None:
            raw += piece
            self._fields.require_short(field, len(raw))
        try:
            text: str = json.loads(b'"%b"' % raw)
        except ValueError:
            raise malformed("the body is not UTF-8; send JSON in that encoding") from None
        return text

    def _base64(self, image: Blob) -> Step[str | None]:
        decoder, reason = Base64Decoder(image), None
        while (piece := (yield from self._piece())) is not None:
            reason = reason or decoder.write(_unescaped(piece))
        return reason or decoder.finish()

    def _piece(self) -> Step[bytes | None]:
        """A part of a string, with its escapes; None at its end."""
        while True:
            if piece := self._skip(_RUN):
                return piece
            left = len(self._buffer) - self._at
            if left and self._buffer[self._at] == ord('"'):
                self._at += 1
                return None
            if left and (self._buffer[self._at] != ord("\\") or left >= _LONGEST_ESCAPE):
                raise malformed("the body is not JSON (a string holds a control character or an unknown escape)")
            yield from self._more()


def _unescaped(piece: bytes) -> bytes:
    """Byte by byte, because a character may be split between two pieces; base64 contains no other characters."""
    if b"\\" not in piece:
        return piece
    text: str = json.loads(f'"{piece.decode("latin-1")}"')
    return text.encode("latin-1", "replace")


class Base64Decoder:
    """Decodes base64 as people have it: with line breaks, or copied from a data URI.

    Its methods return what is wrong, if anything is.
    """

    LONGEST_HEAD = 300  # characters before the comma of a data URI

    def __init__(self, image: Blob) -> None:
        self._image = image
        self._head: bytes | None = b""
        self._rest = b""  # up to four characters: the last ones may be padding

    def write(self, text: bytes) -> str | None:
        if self._head is None:
            return self._decode(text)
        self._head += text
        return self._begin() if len(self._head) > self.LONGEST_HEAD else None

    def finish(self) -> str | None:
        return (self._begin() if self._head is not None else None) or self._decode(b"", last=True)

    def _begin(self) -> str | None:
        assert self._head is not None
        text, self._head = self._head.lstrip(), None
        if text[:5].lower() == b"data:":
            head, _, text = text.partition(b",")
            if not head.lower().endswith(b";base64"):
                return "this data URI is not base64; it must have the form data:image/…;base64,…"
        return self._decode(text)

    def _decode(self, text: bytes, *, last: bool = False) -> str | None:
        text = self._rest + text.translate(None, b" \t\r\n\f\v")
        whole = len(text) if last else max(0, (len(text) - 1) // 4 * 4)
        if not last and b"=" in text[:whole]:
            return _not_base64("there is more after its padding")
        self._rest = text[whole:]
        try:
            if decoded := a2b_base64(text[:whole], strict_mode=True):
                self._image.write(decoded)
        except (Error, ValueError) as error:
            return _not_base64(str(error))
        return None


def _not_base64(why: str) -> str:
    return f"this is not base64 ({why}); URLs and file names are not accepted"
