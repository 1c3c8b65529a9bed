"""`key=value` on the command line sets a field of a dataclass, checked by the type of the field."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

Holder = TypeVar("Holder")


def split_settings(settings: Sequence[str], owner: type) -> tuple[list[str], list[str]]:
    """The settings whose key begins with a field of `owner`, and the others."""
    names = {field.name for field in fields(owner)}
    own = [setting for setting in settings if setting.partition("=")[0].partition(".")[0].strip() in names]
    return own, [setting for setting in settings if setting not in own]


def override(holder: Holder, settings: Sequence[str]) -> Holder:
    """The dataclass with each `key=value` applied, e.g. `incremental.learning_rate=1e-4`."""
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign:
            raise ValueError(f"'{setting}' is not of the form key=value")
        holder = _replaced(holder, key.strip().split("."), value.strip(), key)
    return holder


def combinations(settings: Sequence[str]) -> list[list[str]]:
    """Every combination of `key=v1,v2,…`, each as a list of `key=value`."""
    combined: list[list[str]] = [[]]
    for setting in settings:
        key, sign, values = setting.partition("=")
        if not sign:
            raise ValueError(f"'{setting}' is not of the form key=value,value")
        combined = [[*chosen, f"{key}={value}"] for chosen in combined for value in values.split(",")]
    return combined


def _replaced(holder: Any, path: Sequence[str], value: str, key: str) -> Any:
    name, rest = path[0], path[1:]
    names = [field.name for field in fields(holder)]
    if name not in names:
        raise ValueError(f"there is no setting '{key}'; {type(holder).__name__} has {', '.join(names)}")
    if rest:
        if not is_dataclass(getattr(holder, name)):
            raise ValueError(f"there is no setting '{key}'; {name} is a single value")
        return replace(holder, **{name: _replaced(getattr(holder, name), rest, value, key)})
    try:
        parsed = TypeAdapter(get_type_hints(type(holder))[name]).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{key}={value}: {error.errors()[0]['msg']}") from error
    return replace(holder, **{name: parsed})
