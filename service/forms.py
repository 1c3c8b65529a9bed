"""Reads images and a name from a form (multipart/form-data) as it arrives; refuses at once what does not fit."""

from collections.abc import Iterable

from multipart import MultipartError, MultipartSegment, PushMultipartParser

from service.image_fields import ImageFields, malformed, unusable
from service.problems import shortened
from service.spool import Blob

LONGEST_BOUNDARY = 200  # characters; RFC 2046 allows 70
_BYTEWISE = "latin-1"


class FormReader:
    def __init__(self, fields: ImageFields, boundary: str | None) -> None:
        if not boundary or "\n" in boundary or len(boundary) > LONGEST_BOUNDARY:
            raise malformed("the Content-Type multipart/form-data has no usable boundary; let your HTTP library set it")
        self._fields = fields
        self._parser = PushMultipartParser(boundary.encode(_BYTEWISE, "replace"), header_charset=_BYTEWISE)
        self._image: Blob | None = None  # that is being read, unless the part is text
        self._text = b""

    def write(self, chunk: bytes) -> None:
        try:
            self._take(self._parser.parse(chunk))
        except MultipartError as error:
            raise _broken(error) from error

    def finish(self) -> None:
        try:
            self._parser.close()
        except MultipartError as error:
            raise _broken(error) from error

    def _take(self, events: Iterable[MultipartSegment | bytes | bytearray | None]) -> None:
        for event in events:
            if event is None:
                self._end()
            elif isinstance(event, MultipartSegment):
                self._begin(event)
            elif self._image is not None:
                self._image.write(bytes(event))
            else:
                self._fields.require_short("name", len(self._text) + len(event))
                self._text += event

    def _begin(self, part: MultipartSegment) -> None:
        """The headers show what the part is, so that a wrong one is refused before it is read."""
        if not part.name:
            raise malformed("a part of the form has no name in its Content-Disposition")
        field = _as_utf8(part.name)
        self._fields.require_known(field)
        wanted = field == self._fields.field
        if wanted and not _is_file(part):
            fault = f"'{field}' holds text where a file is expected; with curl: -F {field}=@image.jpg"
            raise unusable(field, fault)
        if not wanted and _is_file(part):
            raise unusable(field, f"'{field}' holds a file where text is expected")
        filename = _as_utf8(part.filename) if part.filename else None
        self._image, self._text = self._fields.begin_image(filename) if wanted else None, b""

    def _end(self) -> None:
        if self._image is not None:
            return
        try:
            self._fields.set_name(self._text.decode())
        except UnicodeDecodeError:
            raise unusable("name", "the name is not UTF-8; send it in that encoding") from None


def _broken(error: MultipartError) -> Exception:
    why = shortened(str(error))
    return malformed(f"the form cannot be read ({why}); send it complete, as HTTP libraries do")


def _is_file(part: MultipartSegment) -> bool:
    return part.filename is not None or not (part.content_type or "text/plain").startswith("text/")


def _as_utf8(text: str) -> str:
    """The text of a header that was read byte by byte; the file name of an old client may not be UTF-8."""
    return text.encode(_BYTEWISE).decode("utf-8", "replace")
