"""Answers whose body is a stored image: cached by its digest, and shown by a browser as nothing else."""

from collections.abc import Callable
from urllib.parse import quote

from fastapi import Request, Response

from core.pixels import signature
from service.app_context import AppContext
from service.cancellation import while_wanted
from service.thumbnails import MEDIA_TYPE

_TYPES = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "BMP": "image/bmp",
    "GIF": "image/gif",
    "TIFF": "image/tiff",
}
IMAGES = {"content": {kind: {} for kind in _TYPES.values()}, "description": "The image as it was sent."}
THUMBNAIL = {"content": {"image/webp": {}}, "description": "Its longer side has at most 256 pixels."}
NOT_MODIFIED = {"description": "The caller has it: `If-None-Match` names its ETag."}


def image_answer(request: Request, sha256: str, filename: str | None, read: Callable[[], bytes]) -> Response:
    """The image as it was sent; it is not read where the caller has it already."""
    if _is_known(request, sha256):
        return Response(status_code=304, headers=_headers(request, sha256, filename))
    data = read()
    kind = _TYPES.get(signature(data) or "", "application/octet-stream")
    return Response(data, headers=_headers(request, sha256, filename), media_type=kind)


async def thumbnail_answer(request: Request, context: AppContext, sha256: str, read: Callable[[], bytes]) -> Response:
    """A small form of it, made once and kept in memory."""
    if _is_known(request, sha256):
        return Response(status_code=304, headers=_headers(request, sha256, None))
    making = context.thumbnails.get(sha256, read)
    made = await while_wanted(request, making, context.settings.answer_seconds)
    return Response(made, headers=_headers(request, sha256, None), media_type=MEDIA_TYPE)


def _is_known(request: Request, sha256: str) -> bool:
    """Whether the caller has the image already."""
    tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return f'"{sha256}"' in tags or tags == ["*"]


def _headers(request: Request, sha256: str, filename: str | None) -> dict[str, str]:
    """Of an answer with an image, or without one (304).

    An id may be used again after its image was deleted: an address is the image's for ever only if it names the digest.
    """
    for_ever = request.query_params.get("sha256") == sha256
    return {
        "ETag": f'"{sha256}"',
        "Cache-Control": "private, max-age=31536000, immutable" if for_ever else "private, no-cache",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": "inline" + (f"; filename*=UTF-8''{quote(filename, safe='')}" if filename else ""),
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
