"""Callers who administer: keys, webhooks, further models, archives and base sessions."""

from typing import TypeVar

import httpx

from tests.faults.callers import REFUSED, UNSURE, Operation
from tests.faults.made import Made, MadeKey, MadeModel, MadeWebhook, Register
from tests.faults.stage import Replica
from tests.faults.tidying import Tidier
from tests.zips import classes, zipped

SCOPES = ("predict", "teach", "admin")
MOST_KEYS, MOST_WEBHOOKS, MOST_MODELS = 6, 4, 3  # more are made only after one was deleted
BASE_CLASSES = {"red": 4, "blue": 4}  # name: images
BASE_ZIP = zipped(classes(**BASE_CLASSES))
ARCHIVE, ZIP = {"Content-Type": "application/octet-stream"}, {"Content-Type": "application/zip"}

Thing = TypeVar("Thing", bound=Made)


class Administrator(Tidier):
    """One that finds nothing to delete makes something, and the other way round."""

    def _make_key(self, operation: Operation, replica: Replica) -> None:
        if len(self.ledger.keys.living) >= MOST_KEYS:
            self._revoke_key(operation, replica)
            return
        scopes = SCOPES[: operation.pick % len(SCOPES) + 1]
        key = self.ledger.keys.add(MadeKey(self.ledger.new_name("key"), scopes=scopes))
        answer = self._send(replica, "POST", "/keys", json={"name": key.name, "scopes": scopes})
        if self._made(self.ledger.keys, key, "make a key", answer):
            assert answer is not None
            key.id, key.secret = answer.json()["id"], answer.json()["key"]

    def _revoke_key(self, operation: Operation, replica: Replica) -> None:
        key = self.ledger.keys.take(operation.pick)
        if key is not None:
            self._delete_made(self.ledger.keys, key, "revoke a key", replica, f"/keys/{key.id}")
        elif len(self.ledger.keys.living) < MOST_KEYS:
            self._make_key(operation, replica)

    def _register(self, operation: Operation, replica: Replica) -> None:
        """A webhook; its address is the stage's own receiver."""
        if len(self.ledger.webhooks.living) >= MOST_WEBHOOKS:
            self._unregister(operation, replica)
            return
        name = self.ledger.new_name("/webhook").replace(" ", "-")
        webhook = self.ledger.webhooks.add(MadeWebhook(name, model=operation.model))
        body = {"url": f"{self.stage.receiver.url}{name}"}
        answer = self._send(replica, "POST", f"/models/{operation.model}/webhooks", json=body)
        if self._made(self.ledger.webhooks, webhook, "register a webhook", answer):
            assert answer is not None
            webhook.id, webhook.secret = answer.json()["id"], answer.json()["secret"]

    def _unregister(self, operation: Operation, replica: Replica) -> None:
        webhook = self.ledger.webhooks.take(operation.pick)
        if webhook is not None:
            path = f"/models/{webhook.model}/webhooks/{webhook.id}"
            self._delete_made(self.ledger.webhooks, webhook, "delete a webhook", replica, path)
        elif len(self.ledger.webhooks.living) < MOST_WEBHOOKS:
            self._register(operation, replica)

    def _test_webhook(self, operation: Operation, replica: Replica) -> None:
        webhook = self.ledger.webhooks.take(operation.pick)
        if webhook is None:
            self._register(operation, replica)
            return
        answer = self._send(replica, "POST", f"/models/{webhook.model}/webhooks/{webhook.id}/test")
        self._noted("test a webhook", answer)
        webhook.taken = False
        if answer is None or answer.status_code in UNSURE or answer.status_code == REFUSED:
            return
        if answer.status_code != 200 or not answer.json()["arrived"]:
            self._complain(f"a test of {webhook}", answer)

    def _make_model(self, operation: Operation, replica: Replica) -> None:
        if len(self.ledger.further_models.living) >= MOST_MODELS:
            self._delete_model(operation, replica)
        else:
            self._new_model(replica)

    def _new_model(self, replica: Replica) -> MadeModel | None:
        model = self.ledger.further_models.add(MadeModel(self._model_name("made")))
        answer = self._send(replica, "POST", "/models", json={"name": model.name})
        return model if self._made(self.ledger.further_models, model, "make a model", answer) else None

    def _delete_model(self, operation: Operation, replica: Replica) -> None:
        model = self.ledger.further_models.take(operation.pick)
        if model is not None:
            self._delete_made(self.ledger.further_models, model, "delete a model", replica, f"/models/{model.name}")
        elif len(self.ledger.further_models.living) < MOST_MODELS:
            self._make_model(operation, replica)

    def _import(self, operation: Operation, replica: Replica) -> None:
        """A model is exported and comes back under another name."""
        if len(self.ledger.further_models.living) >= MOST_MODELS:
            self._delete_model(operation, replica)
        exported = self._send(replica, "GET", f"/models/{operation.model}/export")
        self._noted("export a model", exported)
        if exported is None or exported.status_code != 200:
            if exported is not None and exported.status_code not in {*UNSURE, REFUSED}:
                self._complain(f"exporting {operation.model}", exported)
            return
        name, data = self._model_name("copy"), exported.content
        model = self.ledger.further_models.add(MadeModel(name, original=operation.model, archive=data))
        answer = self._send(replica, "POST", "/models/import", params={"name": name}, content=data, headers=ARCHIVE)
        self._made(self.ledger.further_models, model, "import a model", answer)

    def _base(self, operation: Operation, replica: Replica) -> None:
        """A model that knows nothing yet learns from a zip."""
        model = self.ledger.further_models.take(operation.pick, _knows_nothing) or self._new_model(replica)
        if model is not None:
            model.base_key = f"base of {model.name}"
            self.send_base(model, replica)
            model.taken = False

    def send_base(self, model: MadeModel, replica: Replica) -> None:
        """For the first time or once more."""
        headers = {**ZIP, "Idempotency-Key": model.base_key or ""}
        path = f"/models/{model.name}/base"
        answer = self._send(replica, "POST", path, params={"epochs": 0}, content=BASE_ZIP, headers=headers)
        self._noted("start a base session", answer)
        if answer is None or answer.status_code in UNSURE:
            return
        if answer.status_code == REFUSED:
            model.base_key = None
        elif answer.status_code == 202:
            model.base_session = answer.json()["id"]
        else:
            self._complain(f"a base session of {model}", answer)

    def _model_name(self, begin: str) -> str:
        return self.ledger.new_name(begin).replace(" ", "-")

    def _made(self, register: Register[Thing], thing: Thing, what: str, answer: httpx.Response | None) -> bool:
        """Whether it is there for certain."""
        self._noted(what, answer)
        thing.taken = False
        if answer is None or answer.status_code in UNSURE:
            return False
        if answer.status_code == 201:
            thing.sure = True
            return True
        register.drop(thing)
        if answer.status_code != REFUSED:
            self._complain(f"to {what}, {thing},", answer)
        return False

    def _delete_made(self, register: Register[Thing], thing: Thing, what: str, replica: Replica, path: str) -> None:
        answer = self._send(replica, "DELETE", path)
        self._noted(what, answer)
        thing.taken = False
        if answer is None or answer.status_code in UNSURE:
            thing.leaving = True
        elif answer.status_code == 204:
            register.bury(thing)
        elif answer.status_code != REFUSED:
            self._complain(f"to {what}, {thing},", answer)


def _knows_nothing(model: MadeModel) -> bool:
    return model.archive is None and model.base_key is None
