"""The class that a command names: it must exist, or be a new one where that was asked for."""

import difflib

from protoquad_client import Class, Client
from protoquad_client.commands.class_folders import class_name
from protoquad_client.commands.plain_command import Failure
from protoquad_client.commands.terminal import listed


def named_class(client: Client, text: str, *, new: bool) -> Class | None:
    """None for a new one."""
    name = class_name(text)
    found = client.classes.find(name)
    if new and found is not None:
        raise Failure(f"the class '{name}' exists already; leave out --new")
    if not new and found is None:
        near = difflib.get_close_matches(name, [one.name for one in client.classes.list()])
        hint = f"did you mean {listed(near)}? Otherwise" if near else "`pq classes` lists them;"
        raise Failure(f"there is no class '{name}'; {hint} --new makes one")
    return found
