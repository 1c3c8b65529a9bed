"""`/classes/{class_id}/shots`: the stored images of a class."""

from protoquad_client.answers import Page, Shot
from protoquad_client.operations.classes import TaughtRequest, changing
from protoquad_client.requests import PAGE, Request, as_bytes, given, parsed_as, parsed_as_page, quoted


def page(class_id: int, cursor: str | None = None) -> Request[Page[Shot]]:
    params = given(cursor=cursor, limit=PAGE)
    return Request("GET", f"/classes/{quoted(class_id)}/shots", parsed_as_page(Shot), params=params)


def get(class_id: int, shot_id: int) -> Request[Shot]:
    return Request("GET", _path(class_id, shot_id), parsed_as(Shot))


def image(class_id: int, shot_id: int) -> Request[bytes]:
    return Request("GET", f"{_path(class_id, shot_id)}/image", as_bytes)


def thumbnail(class_id: int, shot_id: int) -> Request[bytes]:
    return Request("GET", f"{_path(class_id, shot_id)}/thumbnail", as_bytes)


def delete(class_id: int, shot_id: int) -> TaughtRequest:
    return changing("DELETE", _path(class_id, shot_id))


def move(class_id: int, shot_id: int, to: int | None = None, to_new: str | None = None) -> TaughtRequest:
    if (to is None) == (to_new is None):
        raise ValueError("say where the shot goes: either `to`, the id of a class, or `to_new`, the name of a new one")
    return changing("POST", f"{_path(class_id, shot_id)}/move", {"to": to, "to_new": to_new})


def _path(class_id: int, shot_id: int) -> str:
    return f"/classes/{quoted(class_id)}/shots/{quoted(shot_id)}"
