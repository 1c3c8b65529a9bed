"""`/versions`: the history of a model, what versions are worth, and which one is active."""

from protoquad_client.answers import Page
from protoquad_client.requests import PAGE, Repeat, Request, given, parsed_as, parsed_as_page, quoted
from protoquad_client.versions import Comparison, Version, VersionAccuracy, VersionMap


def page(cursor: str | None = None) -> Request[Page[Version]]:
    return Request("GET", "/versions", parsed_as_page(Version), params=given(cursor=cursor, limit=PAGE))


def get(number: int) -> Request[Version]:
    return Request("GET", f"/versions/{quoted(number)}", parsed_as(Version))


def activate(number: int) -> Request[Version]:
    return Request("POST", f"/versions/{quoted(number)}/activate", parsed_as(Version), repeat=Repeat.UNSAFE)


def accuracy(number: int) -> Request[VersionAccuracy]:
    return Request("GET", f"/versions/{quoted(number)}/accuracy", parsed_as(VersionAccuracy))


def map_(number: int, limit: int | None = None) -> Request[VersionMap]:
    return Request("GET", f"/versions/{quoted(number)}/map", parsed_as(VersionMap), params=given(limit=limit))


def compare(from_: int, to: int) -> Request[Comparison]:
    return Request("GET", "/versions/compare", parsed_as(Comparison), params=given(from_=from_, to=to))
