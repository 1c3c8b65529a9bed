"""The options that all commands have: which service, which of its models, and output for programs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from protoquad_client import Client
from protoquad_client.commands.plain_command import WrongUse
from protoquad_client.config import DEFAULT_URL

URL = "Address of the service; or set PROTOQUAD_URL."
KEY = "API key; better set PROTOQUAD_KEY, which other users of this machine do not see."


@dataclass(frozen=True)
class Common:
    url: str
    key: str | None
    model: str
    as_json: bool

    def client(self) -> Client:
        try:
            return Client(self.url, self.key, model=self.model)
        except ValueError as error:
            raise WrongUse(str(error)) from error


def common_options(*, model: bool = True, json_help: str = "Print JSON, for programs.") -> Callable[[Any], Any]:
    """The function gets one argument for them: `common`."""

    def decorate(function: Any) -> Any:
        @wraps(function)
        def run(*args: Any, url: str, key: str | None, as_json: bool, **named: Any) -> Any:
            common = Common(url, key or None, named.pop("model", "default"), as_json)
            return function(*args, common=common, **named)

        options = [
            click.option("--url", envvar="PROTOQUAD_URL", default=DEFAULT_URL, show_default=True, help=URL),
            click.option("--key", envvar="PROTOQUAD_KEY", help=KEY),
            *([click.option("--model", default="default", show_default=True, help="Which model.")] if model else []),
            click.option("--json", "as_json", is_flag=True, help=json_help),
        ]
        decorated: Any = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate
