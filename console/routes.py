"""`/`, `/console/…` and `/samples`: the page and its files. They are the same in every installation and need no key.

The page refers to its files as `/console/<release>/…`, which browsers keep for ever; a new release has another name. A
page of an older release that is still open gets the files of this one, and browsers do not keep those.
"""

from functools import cache

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from console.static_files import PAGE, StaticFile, StaticFiles

router = APIRouter(include_in_schema=False)

FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"
RELEASE_LENGTH = 12
# Scripts, styles and requests of this origin only; no markup is ever made from text.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
# Of what a browser opens as a document; scripts and styles are bound by those of their page.
_DOCUMENT_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
}
_DOCUMENTS = ("text/html", "image/svg+xml")

files = cache(StaticFiles)


@router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    return _answer(request, files().find(PAGE), ASK_AGAIN)


@router.api_route("/console/{path:path}", methods=["GET", "HEAD"])
async def file(request: Request, path: str) -> Response:
    first, _, rest = path.partition("/")
    if first == files().release:
        return _answer(request, files().find(rest), FOR_EVER)
    if len(first) == RELEASE_LENGTH and first.isalnum() and rest:
        path = rest  # of another release
    return _answer(request, files().find(path), ASK_AGAIN)


@router.get("/samples")
async def samples() -> list[dict[str, object]]:
    """The sample images by class: shots to teach, and others to try. One class has nothing to teach: it is unknown."""
    images = [path for path in files().paths() if path.startswith("samples/")]
    names = sorted({_sample_class(path) for path in images})
    return [
        {
            "name": name,
            "shots": [_url(path) for path in images if path.startswith(f"samples/{name}/")],
            "tests": [_url(path) for path in images if path.startswith(f"samples/new-{name}.")],
        }
        for name in names
    ]


def _sample_class(path: str) -> str:
    """`samples/fish/1.jpg` and `samples/new-fish.jpg` are of the class fish."""
    return path.split("/")[1].removeprefix("new-").partition(".")[0]


def _url(path: str) -> str:
    return f"/console/{files().release}/{path}"


def _answer(request: Request, found: StaticFile | None, cached: str) -> Response:
    if found is None:
        raise HTTPException(404)
    headers = {**_HEADERS, "Cache-Control": cached, "ETag": found.etag}
    if found.media_type.startswith(_DOCUMENTS):
        headers |= _DOCUMENT_HEADERS
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if found.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(found.compressed, headers=headers, media_type=found.media_type)
    return Response(found.content, headers=headers, media_type=found.media_type)
