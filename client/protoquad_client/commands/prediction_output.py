"""Predictions as text, as CSV and as JSON, each printed as soon as it is there."""

import csv
import io
from dataclasses import asdict
from typing import Any

from protoquad_client import Prediction
from protoquad_client.commands.image_files import Refusal
from protoquad_client.commands.terminal import note, percent, printable, show, show_json_line, styled

COLUMNS = ["file", "label", "unknown", "confidence", "version", "error"]


class TextOutput:
    """The file, the label and how certain it is; refused images on standard error."""

    def __init__(self, top_k: int | None) -> None:
        self.top_k = top_k

    def add(self, file: str, answer: Prediction | Refusal) -> None:
        if isinstance(answer, Refusal):
            note(f"{printable(file)}: {styled('refused', fg='red')}: {answer.reason}")
            return
        show(f"{printable(file)}: {_label(answer)}")
        for candidate in answer.top if self.top_k else ():
            distance = f"distance {candidate.distance:.3f}"
            show(f"  {percent(candidate.confidence):>7}  {distance}  {printable(candidate.label)}")


class JsonOutput:
    """One object a line."""

    def add(self, file: str, answer: Prediction | Refusal) -> None:
        show_json_line({"file": file, **_fields(answer)})


class CsvOutput:
    """With a heading; `--top-k` adds three columns for each of the nearest classes."""

    def __init__(self, top_k: int | None) -> None:
        self.top_k = top_k or 0
        places = range(1, self.top_k + 1)
        nearest = [f"{what}_{place}" for place in places for what in ("label", "confidence", "distance")]
        self._write([*COLUMNS, *nearest])

    def add(self, file: str, answer: Prediction | Refusal) -> None:
        if isinstance(answer, Refusal):
            self._write([file, "", "", "", "", answer.reason, *[""] * (3 * self.top_k)])
            return
        unknown = "true" if answer.unknown else "false"
        cells: list[Any] = [file, answer.label or "", unknown, answer.confidence, answer.version, ""]
        for candidate in answer.top[: self.top_k]:
            cells += [candidate.label, candidate.confidence, candidate.distance]
        self._write([*cells, *[""] * (len(COLUMNS) + 3 * self.top_k - len(cells))])

    def _write(self, cells: list[Any]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(cells)
        show(line.getvalue().encode(errors="replace").decode())  # the name of a file need not be text


def _label(answer: Prediction) -> str:
    if answer.label is not None:
        return f"{printable(answer.label)} ({percent(answer.confidence)})"
    nearest = f" (nearest: {printable(answer.top[0].label)})" if answer.top else " (nothing was taught yet)"
    return f"{styled('unknown', fg='yellow')}{nearest}"


def _fields(answer: Prediction | Refusal) -> dict[str, Any]:
    if isinstance(answer, Refusal):
        return {"error": answer.reason}
    return {name: value for name, value in asdict(answer).items() if value is not None or name in ("label", "class_id")}
