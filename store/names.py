"""The rules for the names of models and classes, whether they come from a request, a command or an archive."""

import re
import unicodedata

from store.errors import UnusableName
from store.models import LONGEST_NAME

MODEL_NAME = r"[a-z0-9][a-z0-9_-]{0,62}"
_SHOWN = 80  # characters of a refused name that an error repeats

# Unicode reserves these for pictographs. An emoji that is newer than this Python looks unassigned.
_PICTOGRAPHS = range(0x1F000, 0x1FB00)
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # display another name than is stored
_REFUSED = {
    "Cc": "a control character or line break",
    "Cs": "half a surrogate pair",
    "Cn": "a character that does not exist",
    "Zl": "a line break",
    "Zp": "a line break",
}
_INVISIBLE = ("Z", "M", "Cf")


def class_name(text: str) -> str:
    """A class's name as it is stored: trimmed and composed, so that names that look the same are the same."""
    name = text.strip()
    if len(name) <= 4 * LONGEST_NAME:  # composing shortens at most fourfold, and is slow for very long texts
        name = unicodedata.normalize("NFC", name)
    if len(name) > LONGEST_NAME:
        raise UnusableName(f"the name has {len(name)} characters; use at most {LONGEST_NAME}")
    for character in name:
        if why := _why_refused(character):
            raise UnusableName(f"the name contains {why} (U+{ord(character):04X}); remove it")
    if all(unicodedata.category(character).startswith(_INVISIBLE) for character in name):
        raise UnusableName("the name is empty; it needs a visible character")
    return name


def file_name(text: str | None) -> str | None:
    """The name of an image's file as it is stored: without folders, shortened; None if nothing is left of it."""
    last = re.split(r"[/\\]", text or "")[-1]
    plain = "".join(character for character in last if not _why_refused(character)).strip()
    return plain[-LONGEST_NAME:].strip() or None  # its end tells more: numbers, and the format


def model_name(text: str) -> str:
    """A model's name, checked: it is part of URLs."""
    if re.fullmatch(MODEL_NAME, text):
        return text
    shown = "".join(character if character.isprintable() else "?" for character in text[:_SHOWN])
    allowed = "use 1 to 63 of a-z, 0-9, '-' and '_', and begin with a letter or digit"
    raise UnusableName(f"'{shown}{'…' if len(text) > _SHOWN else ''}' cannot name a model; {allowed}")


def _why_refused(character: str) -> str | None:
    if character in _DIRECTIONS:
        return "a character that turns the direction of text"
    category = unicodedata.category(character)
    if category == "Cn" and ord(character) in _PICTOGRAPHS:
        return None
    return _REFUSED.get(category)
