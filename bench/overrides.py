"""`key=value` on the command line → a field of a `Setup`, checked by the field's own type."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from bench.methods import Setup


def overridden(setup: Setup, settings: list[str]) -> Setup:
    """The setup with each `path=value` applied, e.g. `incremental.learning_rate=1e-4`."""
    for setting in settings:
        path, sign, value = setting.partition("=")
        if not sign:
            raise ValueError(f"'{setting}' is not of the form key=value")
        setup = _replaced(setup, path.strip().split("."), value.strip(), path)
    return setup


def combinations(settings: list[str]) -> list[list[str]]:
    """Every combination of `path=v1,v2,…`, each as a list of `path=value`."""
    combined: list[list[str]] = [[]]
    for setting in settings:
        path, sign, values = setting.partition("=")
        if not sign:
            raise ValueError(f"'{setting}' is not of the form key=value,value")
        combined = [[*chosen, f"{path}={value}"] for chosen in combined for value in values.split(",")]
    return combined


def _replaced(holder: Any, path: list[str], value: str, whole: str) -> Any:
    name, rest = path[0], path[1:]
    names = [field.name for field in fields(holder)]
    if name not in names:
        raise ValueError(f"'{whole}' names nothing: {type(holder).__name__} has {', '.join(names)}")
    if rest:
        if not is_dataclass(getattr(holder, name)):
            raise ValueError(f"'{whole}' goes too deep: {name} is a single value")
        return replace(holder, **{name: _replaced(getattr(holder, name), rest, value, whole)})
    try:
        parsed = TypeAdapter(get_type_hints(type(holder))[name]).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{whole}={value}: {error.errors()[0]['msg']}") from error
    return replace(holder, **{name: parsed})
