"""What must hold of webhooks: each is told of every version, or the event still waits; a deleted one has no events."""

import json
from collections import Counter, defaultdict
from typing import Any

from sqlalchemy import select

from store.models import Delivery, Webhook
from tests.faults.judge import Judge
from tests.faults.known import Known
from tests.faults.ledger import Ledger
from tests.faults.made import MadeWebhook
from tests.faults.stage import Deployment
from tests.receivers import Received

Waiting = dict[str, list[dict[str, Any]]]  # the events that wait for each webhook


class WebhookOracle(Judge):
    def __init__(self, stage: Deployment, ledger: Ledger, checks: Counter[str]) -> None:
        super().__init__(stage, ledger, checks)
        self._received: dict[str, list[Received]] = defaultdict(list)  # by path

    def judge(self, known: Known) -> None:
        name = known.model.name
        with self.stage.database.read() as db:
            rows = {row.id: row for row in db.scalars(select(Webhook).where(Webhook.model_id == known.model.id))}
            waiting: Waiting = defaultdict(list)
            for row in db.scalars(select(Delivery)):
                waiting[row.webhook_id].append(json.loads(row.body))
        self._receive()  # after the table was read: an event leaves it when it has arrived
        by_path = {row.url.removeprefix(self.stage.receiver.url): row for row in rows.values()}
        self.ledger.webhooks.make_sure(lambda one: one.name in by_path, lambda one: one.model == name)
        own = [one for one in self.ledger.webhooks.living if one.model == name]
        self._registered(name, own, by_path)
        for webhook in own:
            if webhook.name in by_path:
                webhook.id = by_path[webhook.name].id
                self._told(known, webhook, waiting[webhook.id])

    def _registered(self, name: str, own: list[MadeWebhook], by_path: dict[str, Webhook]) -> None:
        expected = sorted(one.name for one in own)
        self._check("webhooks are those that were made", sorted(by_path) == expected, f"{sorted(by_path)}: {expected}")
        for replica in self.stage.replicas:
            page = replica.client.get(f"/models/{name}/webhooks").raise_for_status().json()
            listed = sorted(item["url"].removeprefix(self.stage.receiver.url) for item in page["items"])
            self._check("webhooks listed by a replica", listed == expected, f"{replica.name}: {listed}, {expected}")

    def _told(self, known: Known, webhook: MadeWebhook, waiting: list[dict[str, Any]]) -> None:
        """Of each version since it was first seen, at least once; and of nothing that has not happened."""
        if webhook.since is None:
            webhook.since = known.model.last_version
        received = self._received[webhook.name]
        events = [*waiting, *(one.event for one in received)]
        told = {one["data"]["version"] for one in events if "version" in one["data"]}
        expected = {number for number in known.versions if number > webhook.since}
        self._check("webhook told of every version", expected <= told, f"{webhook}: not of {sorted(expected - told)}")
        made_up = told - set(known.versions)
        self._check("webhook told of what is there", not made_up, f"{webhook}: of {sorted(made_up)}")
        if webhook.secret is not None:
            forged = [one.id for one in received if not one.is_signed_with(webhook.secret)]
            self._check("delivery signed", not forged, f"{webhook}: {forged}")

    def _receive(self) -> None:
        while not self.stage.receiver.received.empty():
            one = self.stage.receiver.received.get()
            self._received[one.path].append(one)
            self.checks["deliveries received"] += 1
