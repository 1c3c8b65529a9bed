"""The page of settings is the settings class, written out."""

from docs.generate_settings import PAGE, groups, page
from store.settings import Settings


def test_the_page_is_up_to_date() -> None:
    """Run `python -m docs.generate_settings` after a change of the settings."""
    assert PAGE.read_text() == page()


def test_every_setting_is_on_it_once() -> None:
    """In a group with a title."""
    found = [name for _, names in groups() for name in names]

    assert sorted(found) == sorted(Settings.model_fields)
    assert all(title and names for title, names in groups())
