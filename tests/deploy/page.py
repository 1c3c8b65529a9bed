"""The page for operators, as the tests read it: its headings and the commands that it shows."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "operations.md").read_text()


def anchors(page: str) -> set[str]:
    """What a link to a heading of this page ends in, as GitHub makes it."""
    headings = re.findall(r"^#{1,6} (.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(heading: str, page: str = PAGE) -> list[str]:
    """The first commands that stand below a heading, one for each line, without their comments."""
    below = page.split(f"# {heading}\n", 1)[1]
    block = re.search(r"```sh\n(.*?)```", below, re.DOTALL)
    assert block is not None
    return [line for line in (re.sub(r"\s+#.*", "", line) for line in block[1].splitlines()) if line]
