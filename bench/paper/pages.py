"""A page as a list of blocks, written as Markdown with plots beside it, or as one HTML file that loads nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: Sequence[str] = ()  # first cells of rows to emphasise
    words: bool = False  # whether the cells are text, not numbers


@dataclass(frozen=True)
class Plot:
    name: str  # of its file
    svg: str
    caption: str


Block = Heading | Paragraph | Table | Plot


def markdown(blocks: Sequence[Block], prefix: str) -> str:
    """Plots are linked as files `prefix`-name.svg."""
    return "\n\n".join(_markdown(block, prefix) for block in blocks) + "\n"


def _markdown(block: Block, prefix: str) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return text
        case Plot(name, _, caption):
            return f"![{caption}]({prefix}-{name}.svg)"
        case Table(header, rows, strong, _):
            lines = [header, ["---"] * len(header)]
            lines += [[f"**{row[0]}**", *row[1:]] if row[0] in strong else row for row in rows]
            return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def html(blocks: Sequence[Block], title: str) -> str:
    body = "\n".join(_html(block) for block in blocks)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{_STYLE}</style></head>
<body><main>
{body}
</main></body></html>
"""


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Plot(_, svg, caption):
            return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
        case Table(header, rows, strong, words):
            head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
            lines = "\n".join(_row(row, strong=row[0] in strong) for row in rows)
            kind = ' class="words"' if words else ""
            return f"<div><table{kind}><thead><tr>{head}</tr></thead>\n<tbody>{lines}</tbody></table></div>"


def _row(row: Sequence[str], *, strong: bool) -> str:
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
    return f'<tr class="strong">{cells}</tr>' if strong else f"<tr>{cells}</tr>"


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; color: #1b1f24; background: #fff; }
main { max-width: 70rem; margin: 0 auto; padding: 1rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #d4d8dd; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.words th, .words td { text-align: left; white-space: normal; vertical-align: top; }
.words td:nth-child(2) { white-space: nowrap; }
.strong { font-weight: 600; }
figure { margin: 1.5rem 0; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: #57606a; font-size: .875rem; }
"""
