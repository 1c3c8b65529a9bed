"""The names that models and classes may have."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import names
from store.errors import UnusableName


@pytest.mark.parametrize(
    "name",
    ["cat", "Straße", "日本の城", "خط عربي", "👩‍👩‍👧‍👦", "\U0001fae8", "a b/c?d=<e>", "x" * 200, "👍" * 200],
)
def test_names_of_any_script_are_kept(name: str) -> None:
    """Including emoji joined of several, and one that is younger than this Python's tables."""
    assert names.class_name(name) == name


def test_a_class_name_is_trimmed_and_composed() -> None:
    """Two ways to write é are one name, or a class could be taught twice under what looks like one."""
    decomposed = unicodedata.normalize("NFD", "café")

    assert names.class_name(f" \t{decomposed}\n") == "café"
    assert len(names.class_name(unicodedata.normalize("NFD", "é" * 200))) == 200


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is empty"),
        (" \n\t ", "is empty"),
        ("\u200b", "is empty"),
        ("x" * 201, "201 characters"),
        ("x" * 1_000_000, "1000000 characters"),
        ("a\x00b", "U+0000"),
        ("a\nb", "U+000A"),
        ("a\u2028b", "U+2028"),
        ("a\x7fb", "U+007F"),
        ("a\x1b[31mb", "U+001B"),
        ("a\ud800b", "U+D800"),
        ("a\u202eb", "U+202E"),
        ("a\u2066b", "U+2066"),
        ("a\uffffb", "U+FFFF"),
        ("a\u0378b", "U+0378"),
    ],
)
def test_a_class_name_that_cannot_be_shown_is_refused(name: str, reason: str) -> None:
    """The sentence gives its length or its character."""
    with pytest.raises(UnusableName, match="name") as refused:
        names.class_name(name)

    assert reason in str(refused.value)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.text(max_size=250))
def test_a_cleaned_name_is_clean(name: str) -> None:
    """Cleaning twice changes nothing, and what comes out can be stored and shown."""
    try:
        cleaned = names.class_name(name)
    except UnusableName:
        return

    assert names.class_name(cleaned) == cleaned
    assert 1 <= len(cleaned) <= 200
    assert cleaned.encode().decode() == cleaned
    assert len(cleaned.splitlines()) == 1


@pytest.mark.parametrize("name", ["default", "a", "0", "birds-2_b", "x" * 63])
def test_a_model_name_fits_into_an_address(name: str) -> None:
    """Without escaping, on every file system and in every shell."""
    assert names.model_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "ä", "-a", "_a", "a b", "a/b", "..", "a\n", "x" * 64, "\ud800"])
def test_another_model_name_is_refused(name: str) -> None:
    """With the characters that may be used."""
    with pytest.raises(UnusableName, match="a-z"):
        names.model_name(name)


def test_a_refused_model_name_is_repeated_safely() -> None:
    """The sentence is printed on terminals: it holds no control character, and a long name only in part."""
    with pytest.raises(UnusableName) as refused:
        names.model_name("\x1b[31m" + "x" * 10_000)

    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
