"""The README says what is true."""

import re
from pathlib import Path

from protoquad.main import COMMANDS
from store.settings import Settings

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_every_setting_is_in_the_table_with_its_reason() -> None:
    """And no other is."""
    rows = dict(re.findall(r"^\| `PROTOQUAD_(\w+)` \|[^|]*\| (.+) \|$", README, re.MULTILINE))

    expected = {name.upper(): field.description for name, field in Settings.model_fields.items()}
    assert expected == rows


def test_every_command_that_it_shows_exists() -> None:
    """What a reader types after `protoquad` is a command."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    inline = re.findall(r"`(protoquad [^`]+)`", README)

    shown = re.findall(r"(?:^|/)protoquad (\w+)", "\n".join([*blocks, *inline]), re.MULTILINE)
    assert {"serve", "base", "keys", "bench"} <= set(shown) <= {*COMMANDS, "bench"}
