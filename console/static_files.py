"""The files of the console in memory: read once, compressed once, each with its ETag."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
RELEASE = "{release}"  # in the page: replaced by the release's name, so that its files can be cached for ever
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
_HIDDEN = {".md", ".txt"}  # licences and notes: in the package, not on the page
_WORTH_COMPRESSING = 256  # bytes


@dataclass(frozen=True)
class StaticFile:
    content: bytes
    compressed: bytes | None  # gzip, where that is smaller
    media_type: str
    etag: str


class StaticFiles:
    """All files below a folder, by their path."""

    def __init__(self, folder: Path = FOLDER) -> None:
        contents = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix not in _HIDDEN
        }
        self.release = _digest(b"".join(name.encode() + content for name, content in contents.items()))[:12]
        contents[PAGE] = contents[PAGE].replace(RELEASE.encode(), self.release.encode())
        self._files = {name: _static_file(name, content) for name, content in contents.items()}

    def find(self, path: str) -> StaticFile | None:
        return self._files.get(path)

    def paths(self) -> list[str]:
        return sorted(self._files)


def _static_file(name: str, content: bytes) -> StaticFile:
    media_type = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    text = media_type.startswith("text/") or media_type == "image/svg+xml"
    compressed = gzip.compress(content, mtime=0) if text and len(content) >= _WORTH_COMPRESSING else None
    if text:
        media_type += "; charset=utf-8"
    return StaticFile(content, compressed, media_type, f'"{_digest(content)[:32]}"')


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
