"""What went wrong, as one sentence that says what to do."""

import errno

from protoquad_client import errors
from protoquad_client.errors import NothingSent

_NOT_THERE = "is the service running there? Its address is --url or PROTOQUAD_URL; `pq doctor` looks closer"
_HINTS: dict[type[errors.ProtoquadError], str] = {
    errors.Unauthorized: "give a key with --key or PROTOQUAD_KEY",
    errors.InternalError: "the log of the service has the reason",
}


def sentence_of(error: Exception) -> str | None:
    """None for what nobody foresaw: that keeps its traceback."""
    if isinstance(error, errors.ProtoquadError):
        return _of_ours(error)
    if isinstance(error, OSError) and error.strerror is not None and error.errno != errno.EPIPE:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, UnicodeEncodeError) and error.encoding == "utf-8":
        return f"{error.object[error.start : error.end]!a} is not text in UTF-8; the service takes no such name"
    return None


def _of_ours(error: errors.ProtoquadError) -> str:
    sentence = " ".join(str(error).split())
    if isinstance(error, NothingSent):
        return f"{sentence.partition(';')[0]}; {_NOT_THERE}"
    if isinstance(error, errors.AnswerTimeout):
        return f"{sentence.partition(';')[0]}; `pq doctor` looks closer"
    details = error.errors if isinstance(error, errors.Problem) else ()
    if more := [f"{one.where}: {one.reason}" for one in details if one.reason not in sentence]:
        sentence += f" ({'; '.join(more)})"
    hint = next((text for kind, text in _HINTS.items() if isinstance(error, kind)), None)
    if hint:
        sentence += f"; {hint}"
    if isinstance(error, errors.InternalError) and error.request_id:
        sentence += f" (request id {error.request_id})"
    return sentence
