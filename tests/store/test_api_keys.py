"""API keys: shown once, stored as a digest, compared in constant time, revoked for good."""

import hmac
from hashlib import sha256

import pytest
from sqlalchemy.orm import Session

from store import api_keys
from store.errors import Conflict, NotThere

GIVEN = f"pq_0123abcd_{'5e' * 32}"


def own_id(key: str) -> str:
    found = api_keys.key_id(key)
    assert found is not None
    return found


def test_a_key_opens_what_it_was_made_for(db: Session) -> None:
    """Known by its id, with its scopes, whatever the order and number in which they were named."""
    key = api_keys.create(db, "camera", ["teach", "predict", "teach"])
    known = api_keys.valid(db)[own_id(key)]

    assert known.matches(key)
    assert known.scopes == {"predict", "teach"}
    assert api_keys.everything(db)[0].scopes == "predict teach"


def test_the_key_itself_is_stored_nowhere(db: Session) -> None:
    """Its digest is, and the id that may be shown."""
    key = api_keys.create(db, "camera", ["predict"])
    (row,) = api_keys.everything(db)
    secret = key.split("_")[2]

    assert row.digest == sha256(key.encode()).hexdigest()
    assert all(secret not in str(value) for value in vars(row).values())
    assert len(secret) == 64


def test_no_two_keys_are_alike(db: Session) -> None:
    """Neither opens for the other."""
    first, second = (api_keys.create(db, "camera", ["predict"]) for _ in range(2))
    known = api_keys.valid(db)

    assert own_id(first) != own_id(second)
    assert not known[own_id(first)].matches(second)
    assert not known[own_id(second)].matches(first)


@pytest.mark.parametrize("change", ["", "0", "é", "\n"])
def test_a_key_that_is_almost_right_does_not_match(db: Session, change: str) -> None:
    """One character too few, too many, or another."""
    key = api_keys.create(db, "camera", ["predict"])

    assert not api_keys.valid(db)[own_id(key)].matches(key[:-1] + change * 2)


def test_digests_are_compared_in_constant_time(db: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the function that is made for it: how long it takes tells nothing."""
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return one == other

    key = api_keys.create(db, "camera", ["predict"])
    known = api_keys.valid(db)[own_id(key)]
    monkeypatch.setattr(hmac, "compare_digest", compare)

    assert known.matches(key)
    assert compared == [(known.digest, known.digest)]


def test_a_revoked_key_opens_nothing_and_stays_listed(db: Session) -> None:
    """With the time of its first revocation."""
    kept, gone = (api_keys.create(db, name, ["predict"]) for name in ("camera", "door"))
    first = api_keys.revoke(db, own_id(gone)).revoked_at
    second = api_keys.revoke(db, own_id(gone)).revoked_at

    assert set(api_keys.valid(db)) == {own_id(kept)}
    assert first is not None
    assert first == second
    assert [row.name for row in api_keys.everything(db)] == ["camera", "door"]


def test_a_key_that_is_not_there_cannot_be_revoked(db: Session) -> None:
    """The refusal says where to look."""
    with pytest.raises(NotThere, match=r"no key '0000'; `protoquad keys list`"):
        api_keys.revoke(db, "0000")


def test_an_unknown_scope_makes_no_key(db: Session) -> None:
    """A key that opens nothing would be found out late."""
    with pytest.raises(NotThere, match=r"no scope 'everything'; the scopes are predict, teach, admin"):
        api_keys.create(db, "camera", ["predict", "everything"])

    assert api_keys.everything(db) == []


@pytest.mark.parametrize("text", ["", "pq", "pq_1", "pq_1_2_3", "PQ_1_2", "sk_1_2", "_", "__", "Bearer pq_1_2"])
def test_what_does_not_look_like_a_key_has_no_id(text: str) -> None:
    """So nothing needs to be looked up."""
    assert api_keys.key_id(text) is None


def test_a_key_made_elsewhere_is_stored_like_the_others_and_once(db: Session) -> None:
    """As a digest; asked for again, it is the same row."""
    first, second = (api_keys.ensure(db, GIVEN, "first", ["admin"]) for _ in range(2))

    assert first is second
    assert first.digest == sha256(GIVEN.encode()).hexdigest()
    assert api_keys.valid(db)["0123abcd"].matches(GIVEN)
    assert [row.scopes for row in api_keys.everything(db)] == ["admin"]


def test_a_key_that_was_revoked_stays_so_when_it_is_asked_for_again(db: Session) -> None:
    """Revoked is for good, whatever a start-up script says."""
    api_keys.ensure(db, GIVEN, "first", ["admin"])
    api_keys.revoke(db, "0123abcd")
    api_keys.ensure(db, GIVEN, "first", ["admin"])

    assert api_keys.valid(db) == {}


@pytest.mark.parametrize("key", ["", "secret", "pq_0123abcd_5e5e", GIVEN + "5e", GIVEN.upper(), f"pq_{'5e' * 36}"])
def test_a_secret_that_could_be_guessed_makes_no_key(db: Session, key: str) -> None:
    """A plain digest protects only what is long and random."""
    with pytest.raises(ValueError, match="64 random hexadecimal digits"):
        api_keys.ensure(db, key, "first", ["admin"])

    assert api_keys.everything(db) == []


def test_a_key_cannot_take_the_place_of_another(db: Session) -> None:
    """Neither with another secret nor for other scopes."""
    api_keys.ensure(db, GIVEN, "first", ["predict"])
    with pytest.raises(Conflict, match="already a key 0123abcd with another secret"):
        api_keys.ensure(db, f"pq_0123abcd_{'00' * 32}", "first", ["predict"])
    with pytest.raises(Conflict, match="has the scopes 'predict', not 'admin'"):
        api_keys.ensure(db, GIVEN, "first", ["admin"])

    assert api_keys.valid(db)["0123abcd"].scopes == {"predict"}
