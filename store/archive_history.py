"""The versions of an archive as a tree with version 0 at its root.

Every parent has a lower number than its child, so no walk from parent to parent loops. Weights and bases belong to the
version itself or to an ancestor.
"""

from functools import cached_property
from typing import NamedTuple

from store.archive_file import Flaw, require


class PastVersion(NamedTuple):
    number: int
    parent: int | None
    kind: str
    base: int
    weights: int
    kept: bool
    verdict: str | None

    @property
    def rejected(self) -> bool:
        return self.verdict == "rejected"


class WrittenRow(NamedTuple):
    """What a version wrote about a class."""

    class_id: int
    version: int
    gone: bool  # the class was deleted
    restart: bool
    held_out_bytes: int


class History(dict[int, PastVersion]):
    """The versions by number."""

    def require_tree(self) -> None:
        for version in self.values():
            self._require_ancestry(version)
        require(0 in self, "version 0 is missing")

    def _require_ancestry(self, version: PastVersion) -> None:
        what = f"version {version.number}"
        if version.number == 0:
            own = (version.parent, version.kind, version.base, version.weights)
            require(own == (None, "base", 0, 0), "version 0 is not the first of its history")
            return
        if version.parent is None:
            raise Flaw(f"{what} has no parent; export the model again")
        require(version.parent in self, f"the parent of {what} does not exist")
        parent = self[version.parent]
        require(parent.number < version.number, f"the parent of {what} is not older")
        if version.kind == "base":
            require(version.base == version.weights == version.number, f"{what} is a base version with another base")
        else:
            require(version.base == parent.base, f"{what} has another base than its parent")
            require(version.weights in (version.number, parent.weights), f"{what} has another version's weights")

    def lineage(self, number: int) -> set[int]:
        """The version and its ancestors."""
        line = set()
        at: int | None = number
        while at is not None:
            line.add(at)
            at = self[at].parent
        return line

    def require_unbroken(self, rows: list[WrittenRow]) -> None:
        """Raises a `Flaw` if a prototype of a class continues the class after it was deleted in the same lineage."""
        if not any(row.gone for row in rows):
            return
        line: list[tuple[int, bool]] = []  # of the ancestors: the last place of its descendants, and whether it is gone
        for row in sorted(rows, key=lambda row: self._spans[row.version]):
            first, last = self._spans[row.version]
            while line and line[-1][0] < first:
                line.pop()
            broken = bool(line) and line[-1][1] and not row.gone and not row.restart
            require(
                not broken, f"the prototype of class {row.class_id} at version {row.version} continues a deleted class"
            )
            line.append((last, bool(row.gone)))

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """For each version the places, in depth-first order, of itself and of its last descendant."""
        sizes = dict.fromkeys(self, 1)
        for number in sorted(self, reverse=True):
            parent = self[number].parent
            if parent is not None:
                sizes[parent] += sizes[number]
        spans: dict[int, tuple[int, int]] = {}
        free: dict[int, int] = {}  # the next place below each version
        for number in sorted(self):
            parent = self[number].parent
            first = 0 if parent is None else free[parent]
            if parent is not None:
                free[parent] += sizes[number]
            spans[number] = (first, first + sizes[number] - 1)
            free[number] = first + 1
        return spans
