"""JSON to the values of `answers`: by their type hints. Ignores fields that it does not know."""

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache, partial
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from protoquad_client.answers import Item, Page
from protoquad_client.errors import UnexpectedAnswer

Value = TypeVar("Value")
Convert = Callable[[Any], Any]


def loads(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise UnexpectedAnswer(
            f"the answer is not JSON ({_shown(content)}); is the address that of a protoquad service?"
        ) from error


def value_of(kind: type[Value], content: Any) -> Value:
    """A dataclass from the JSON object of its fields. `class_` is called `class` in JSON, `from_` is `from`."""
    if not isinstance(content, Mapping):
        raise UnexpectedAnswer(f"the answer holds {_shown(content)} where {_named(kind)} is expected")
    found: dict[str, Any] = {}
    for name, key, required, convert in _plan(cast(Hashable, kind)):
        if key in content:
            found[name] = convert(content[key]) if convert else content[key]
        elif required:
            raise UnexpectedAnswer(
                f"the answer has no '{key}' in {_named(kind)}; is the service as new as this client?"
            )
    return kind(**found)


def page_of(kind: type[Item], content: Any) -> Page[Item]:
    if not isinstance(content, Mapping) or not isinstance(content.get("items"), list):
        raise UnexpectedAnswer(f"the answer holds {_shown(content)} where a list with 'items' is expected")
    items = tuple(value_of(kind, one) for one in content["items"])
    return Page(items, content.get("next"), content.get("total"), content.get("capture"))


@cache
def _plan(kind: type[Any]) -> tuple[tuple[str, str, bool, Convert | None], ...]:
    """Of each field: its name, its name in JSON, whether it must be there, and how to convert it."""
    hints = get_type_hints(kind)
    return tuple(
        (
            one.name,
            one.name.rstrip("_"),
            one.default is MISSING and one.default_factory is MISSING,
            _converter(hints[one.name]),
        )
        for one in fields(kind)
    )


def _converter(hint: Any) -> Convert | None:
    """None: the value is taken as it is."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        (inner,) = (one for one in arguments if one is not type(None))
        convert = _converter(inner)
        return None if convert is None else partial(_optional, convert)
    if get_origin(hint) is tuple:
        convert = _converter(arguments[0])
        return tuple if convert is None else partial(_tuple, convert)
    if hint is datetime:
        return _moment
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(value_of, hint)
    return None


def _optional(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _tuple(convert: Convert, values: Any) -> tuple[Any, ...]:
    return tuple(convert(one) for one in values)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not know the Z


def _named(kind: type[Any]) -> str:
    return f"a {kind.__name__}"


def _shown(content: Any) -> str:
    text = repr(content)
    return text if len(text) <= 80 else text[:80] + "…"
