"""The rules for the names of models and classes, wherever they come from: a request, a command or an archive."""

import re
import unicodedata

from store.errors import UnusableName
from store.models import LONGEST_NAME

MODEL_NAME = r"[a-z0-9][a-z0-9_-]{0,62}"
_SHOWN = 80  # characters of a refused name that an error repeats

# Reserved for pictographs by Unicode itself: an emoji that is younger than this Python looks unassigned there.
_PICTOGRAPHS = range(0x1F000, 0x1FB00)
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # show another name than is stored
_REFUSED = {
    "Cc": "a control character or line break",
    "Cs": "half a surrogate pair",
    "Cn": "a character that does not exist",
    "Zl": "a line break",
    "Zp": "a line break",
}
_INVISIBLE = ("Z", "M", "Cf")


def class_name(text: str) -> str:
    """A class's name as it is stored: trimmed, composed, and the same to the eye as to a comparison."""
    name = text.strip()
    if len(name) <= 4 * LONGEST_NAME:  # composing shortens at most fourfold, and is slow on what is very long
        name = unicodedata.normalize("NFC", name)
    if len(name) > LONGEST_NAME:
        raise UnusableName(f"the name has {len(name)} characters; take at most {LONGEST_NAME}")
    for character in name:
        if why := _why_refused(character):
            raise UnusableName(f"the name contains {why} (U+{ord(character):04X}); leave it out")
    if all(unicodedata.category(character).startswith(_INVISIBLE) for character in name):
        raise UnusableName("the name is empty; give it a character that can be seen")
    return name


def model_name(text: str) -> str:
    """A model's name, which is part of its address."""
    if re.fullmatch(MODEL_NAME, text):
        return text
    shown = "".join(character if character.isprintable() else "?" for character in text[:_SHOWN])
    allowed = "take 1 to 63 of a-z, 0-9, '-' and '_', and begin with a letter or digit"
    raise UnusableName(f"'{shown}{'…' if len(text) > _SHOWN else ''}' cannot name a model; {allowed}")


def _why_refused(character: str) -> str | None:
    if character in _DIRECTIONS:
        return "a character that turns the direction of text"
    category = unicodedata.category(character)
    if category == "Cn" and ord(character) in _PICTOGRAPHS:
        return None
    return _REFUSED.get(category)
