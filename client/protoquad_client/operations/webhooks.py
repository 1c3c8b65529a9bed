"""`/webhooks`: addresses that are told of what happens to a model."""

from collections.abc import Sequence

from protoquad_client.answers import Delivery, NewWebhook, Page, Webhook, WebhookEvent
from protoquad_client.requests import Repeat, Request, as_json, nothing, parsed_as, parsed_as_page, quoted


def page(cursor: str | None = None) -> Request[Page[Webhook]]:  # noqa: ARG001  # the service gives all at once
    return Request("GET", "/webhooks", parsed_as_page(Webhook))


def create(url: str, events: Sequence[WebhookEvent] | None = None) -> Request[NewWebhook]:
    body = as_json({"url": url, "events": None if events is None else list(events)})
    return Request("POST", "/webhooks", parsed_as(NewWebhook), repeat=Repeat.UNSAFE, **body)


def delete(webhook_id: str) -> Request[None]:
    return Request("DELETE", f"/webhooks/{quoted(webhook_id)}", nothing, repeat=Repeat.UNSAFE)


def test(webhook_id: str) -> Request[Delivery]:
    return Request("POST", f"/webhooks/{quoted(webhook_id)}/test", parsed_as(Delivery), repeat=Repeat.UNSAFE)
