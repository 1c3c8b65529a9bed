"""The fields of a body with images, in either format: which are allowed, and what was read from them."""

from dataclasses import dataclass
from dataclasses import field as attribute

from service.problems import ParameterProblem, Problem, shortened
from service.spool import Blob, Spool

LONGEST_TEXT = 16 * 1024  # bytes of a text field: far more than a name may have, so that the rule for names decides


@dataclass(frozen=True)
class Upload:
    """One image as it was sent."""

    index: int
    filename: str | None
    source: bytes | Blob = attribute(repr=False)

    @property
    def data(self) -> bytes:
        """Reads a large image from its file each time: call it once, and not on the event loop."""
        return self.source if isinstance(self.source, bytes) else self.source.read()


@dataclass
class ImageFields:
    """What has been read so far."""

    field: str  # the one that holds the images
    max_images: int
    has_name: bool
    name: str | None = None
    images: list[Upload] = attribute(default_factory=list)
    spool: Spool = attribute(default_factory=Spool)

    def expected(self) -> str:
        if self.has_name:
            return f"the fields are 'name' (text) and '{self.field}'"
        return f"the one field is '{self.field}'"

    def require_known(self, field: str) -> None:
        if field != self.field and not (self.has_name and field == "name"):
            raise unusable(shortened(field), f"there is no field '{shortened(field)}' here; {self.expected()}")

    def set_name(self, name: str) -> None:
        if self.name is not None:
            raise unusable("name", "the field 'name' appears twice; send it once")
        self.name = name

    def require_short(self, field: str, length: int) -> None:
        if length > LONGEST_TEXT:
            raise unusable(field, f"'{field}' has more than {LONGEST_TEXT} bytes; shorten it")

    def begin_image(self, filename: str | None) -> Blob:
        self.require_room(len(self.images) + 1)
        blob = self.spool.blob()
        self.images.append(Upload(len(self.images), filename, blob))
        return blob

    def require_room(self, images: int) -> None:
        if images > self.max_images:
            asked = f"'{self.field}' has more than {self.max_images} images"
            raise unusable(self.field, f"{asked}; send them in several requests", slug="too-many-images")

    def require_images(self) -> None:
        if not self.images:
            raise unusable(self.field, f"there is no image in '{self.field}'; send at least one", slug="no-images")


def malformed(detail: str) -> Problem:
    return Problem(400, "The body cannot be read", detail, slug="malformed-body")


def unusable(where: str, detail: str, *, slug: str = "invalid-request") -> Problem:
    reasons = [ParameterProblem(where=f"body {where}", reason=detail)]
    return Problem(422, "The body cannot be used", detail, slug=slug, errors=reasons)
