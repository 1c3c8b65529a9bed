"""What others wrote and we ship: exactly the files that the notes name, with their licences."""

import hashlib
import re

from console.static_files import FOLDER

VENDOR = FOLDER / "vendor"
ROWS = re.findall(
    r"^\| `([\w-]+\.js)` .*\[([\w.-]+)\]\(([\w.-]+)\) \| `(\w{64})` \| `(\w{64})` \|$",
    (VENDOR / "VENDOR.md").read_text(),
    re.M,
)


def test_every_file_has_the_sum_in_the_notes() -> None:
    """No file without a row, no row without a file."""
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in VENDOR.glob("*.js")}

    assert sums == {name: own for name, _, _, _, own in ROWS}


def test_every_licence_is_there() -> None:
    """As its text demands."""
    texts = {licence: (VENDOR / file).read_text() for _, licence, file, _, _ in ROWS}

    assert "MIT" in texts["MIT"]
    assert "Apache License" in texts["Apache-2.0"]


def test_they_import_only_each_other() -> None:
    """A bare name would need a map, which the content policy forbids."""
    imported = {name for file in VENDOR.glob("*.js") for name in re.findall(r'from"([^"]+)"', file.read_text())}

    assert imported <= {f"./{name}" for name, *_ in ROWS}
