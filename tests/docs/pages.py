"""The pages of the documentation as the tests read them."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DECISIONS = sorted((REPOSITORY / "docs" / "adr").glob("*.md"))  # never edited, so they may name what is gone
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").glob("*.md"))]


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text()


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def shell_lines(page: str) -> list[str]:
    """The commands of a page, without comments."""
    lines = "".join(blocks(page, "sh")).splitlines()
    return [found for line in lines if (found := re.sub(r"(^|\s+)#.*", "", line))]


def inline_code(page: str) -> list[str]:
    """What stands between backticks within a line."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE))


def section(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level."""
    level = re.search(rf"^(#+) {re.escape(heading)}$", page, re.MULTILINE)
    assert level is not None, f"there is no heading '{heading}'"
    rest = page[level.end() :]
    end = re.search(rf"^#{{1,{len(level[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def tables(page: str) -> list[list[list[str]]]:
    """Every table of a page: its rows below the heading, each a list of cells."""
    found = re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE)
    return [[_cells(line) for line in table.splitlines()[2:]] for table in found]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
