"""Answers that are problems (RFC 9457), as exceptions."""

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from protoquad_client.errors import PROBLEMS, ImageProblem, ParameterProblem, Problem, ProblemFacts
from protoquad_client.requests import Answer

LONGEST_TEXT = 200  # characters that are quoted of an answer that is no problem, such as a proxy's


def is_problem(answer: Answer) -> bool:
    return not 200 <= answer.status < 300


def problem_of(answer: Answer) -> Problem:
    """By its `type`; for an answer of something between here and the service, by what there is."""
    body = _body(answer)
    kind = str(body.get("type") or "about:blank")
    facts = ProblemFacts(
        status=answer.status,
        detail=str(body.get("detail") or _detail(answer)),
        type=kind,
        title=str(body.get("title") or ""),
        request_id=body.get("request_id") or answer.headers.get("x-request-id"),
        images=[_image(one) for one in body.get("images") or () if isinstance(one, Mapping)],
        errors=[_parameter(one) for one in body.get("errors") or () if isinstance(one, Mapping)],
        retry_after=retry_after(answer),
    )
    return PROBLEMS.get(kind.rpartition("/problems/")[2], Problem)(facts)


def retry_after(answer: Answer) -> float | None:
    """Seconds, given as such or as a date."""
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        return _seconds_until(text)


def _seconds_until(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - datetime.now(timezone.utc)).total_seconds())


def _body(answer: Answer) -> Mapping[str, Any]:
    try:
        body = json.loads(answer.content)
    except ValueError:
        return {}
    return body if isinstance(body, Mapping) else {}


def _detail(answer: Answer) -> str:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "an unknown status"
    text = " ".join(answer.content.decode("utf-8", "replace").split())[:LONGEST_TEXT]
    location = answer.headers.get("location")
    more = f"; it leads to {location}" if location else f": {text}" if text else ""
    return f"the answer was {answer.status} ({phrase}), and not from a protoquad service{more}"


def _image(one: Mapping[str, Any]) -> ImageProblem:
    return ImageProblem(int(one.get("index", 0)), str(one.get("reason", "")), one.get("filename"))


def _parameter(one: Mapping[str, Any]) -> ParameterProblem:
    return ParameterProblem(str(one.get("where", "")), str(one.get("reason", "")))
