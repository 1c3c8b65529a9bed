"""The names that models and classes may have."""

import pytest

from store import names
from store.errors import UnusableName


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[31mb", "a\u202eb", "x" * 201])
def test_a_class_name_that_cannot_be_shown_is_refused(name: str) -> None:
    """Empty, with control characters, or too long."""
    with pytest.raises(UnusableName, match="the name"):
        names.class_name(name)


def test_a_class_name_is_trimmed_and_composed() -> None:
    """Two spellings of one name are one name."""
    assert names.class_name(" cafe\N{COMBINING ACUTE ACCENT} ") == "caf\N{LATIN SMALL LETTER E WITH ACUTE}"


def test_a_refused_model_name_is_repeated_safely() -> None:
    """The sentence is printed on terminals: it holds no control character, and a long name only in part."""
    with pytest.raises(UnusableName) as refused:
        names.model_name("\x1b[31m" + "x" * 10_000)

    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
