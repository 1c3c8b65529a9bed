"""What must hold of keys: one that was acknowledged admits on every replica, a revoked one on none."""

from typing import Any

from store import api_keys
from store.models import ApiKey
from tests.faults.judge import Judge
from tests.faults.made import MadeKey
from tests.faults.stage import CALLERS, SECONDS_TO_AGREE, Replica, until

REVOKED_TRIED = 4  # the newest


class KeyOracle(Judge):
    """A key is never deleted: one that is gone is listed as revoked."""

    def judge(self) -> None:
        with self.stage.database.read() as db:
            rows = {row.name: row for row in api_keys.everything(db)}
            number = len(api_keys.everything(db))
        self._check("key made once", len(rows) == number, f"{number} keys have {sorted(rows)} as names")
        self.ledger.keys.make_sure(lambda key: key.name in rows and rows[key.name].revoked_at is None)
        for key in self.ledger.keys.living:
            if key.name in rows:
                key.id = rows[key.name].id
        for replica in self.stage.replicas:
            self._listed(replica, rows)
            for key in self.ledger.keys.living:
                self._admits(replica, key)
            for key in self.ledger.keys.gone[-REVOKED_TRIED:]:
                self._refuses(replica, key)

    def _listed(self, replica: Replica, rows: dict[str, ApiKey]) -> None:
        listed = {item["name"]: item for item in replica.client.get("/keys").raise_for_status().json()["items"]}
        living, gone = self.ledger.keys.living, self.ledger.keys.gone
        expected = {CALLERS, *(key.name for key in (*living, *gone))}
        what = f"{replica.name} lists {sorted(listed)}, the table has {sorted(rows)}; expected {sorted(expected)}"
        self._check("keys are those that were made", set(listed) == set(rows) == expected, what)
        for key in living:
            self._check("key as it was made", _is_valid(listed.get(key.name), key), f"{key}: {listed.get(key.name)}")
        for key in gone:
            revoked = (listed.get(key.name) or {}).get("revoked_at") is not None
            self._check("revoked key stays revoked", revoked, f"{key}: {listed.get(key.name)}")

    def _admits(self, replica: Replica, key: MadeKey) -> None:
        """Where its making was not answered, nobody has the secret to try it with."""
        if key.secret is not None:
            until(f"{replica.name} admits {key}", lambda: _status(replica, key) == 200, SECONDS_TO_AGREE)
            found = _who(replica, key).json()
            is_it = (found["key_id"], tuple(found["scopes"])) == (key.id, key.scopes)
            self._check("key admits on every replica", is_it, f"{key}: {replica.name} takes it for {found}")

    def _refuses(self, replica: Replica, key: MadeKey) -> None:
        if key.secret is not None:
            until(f"{replica.name} refuses {key}", lambda: _status(replica, key) == 401, SECONDS_TO_AGREE)
            self.checks["revoked key refused by every replica"] += 1


def _is_valid(item: dict[str, Any] | None, key: MadeKey) -> bool:
    return item is not None and item["revoked_at"] is None and tuple(item["scopes"]) == key.scopes


def _who(replica: Replica, key: MadeKey) -> Any:
    return replica.client.get("/whoami", headers={"Authorization": f"Bearer {key.secret}"})


def _status(replica: Replica, key: MadeKey) -> int:
    return int(_who(replica, key).status_code)
