"""The JSON bodies of webhooks."""

from datetime import datetime
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from store.models import Webhook
from store.webhooks import EVENTS, listed

Event = Literal["version.published", "session.rejected", "inbox.full"]
URL = "https://example.org/hooks/protoquad"


class Attempt(BaseModel):
    """What came of one attempt to deliver."""

    type: str = Field(description="Of the event; `webhook.test` for a test.", examples=["version.published"])
    attempt: int = Field(description="Which attempt of this delivery, from 1.")
    at: datetime
    arrived: bool = Field(description="Whether the receiver has answered 2xx in time.")
    status: int | None = Field(description="That the receiver answered; null: there was no answer.", examples=[204])
    error: str | None = Field(description="Why it has not arrived.")
    milliseconds: float


class WebhookBody(BaseModel):
    id: str = Field(examples=["wh_0123456789abcdef"])
    url: str = Field(examples=[URL])
    events: list[Event]
    status: Literal["active", "disabled"] = Field(description="disabled: nothing is sent until a test has arrived.")
    reason: str | None = Field(description="Why it is disabled.")
    failing_since: datetime | None = Field(description="The first failure after the last success.")
    waiting: int = Field(description="Deliveries that wait for an attempt.")
    delivered: int = Field(description="Deliveries that have arrived.")
    given_up: int = Field(description="Deliveries whose last attempt has failed.")
    last_delivery: Attempt | None = Field(description="The newest attempt; null: there was none.")
    created_at: datetime

    @classmethod
    def of(cls, row: Webhook, waiting: int) -> "WebhookBody":
        facts = {name: getattr(row, name) for name in _PLAIN}
        return cls.model_validate({**facts, "events": listed(row.events), "waiting": waiting})


_PLAIN = (
    *("id", "url", "status", "reason", "failing_since", "delivered", "given_up", "last_delivery"),
    "created_at",
)


class NewWebhookBody(WebhookBody):
    secret: str = Field(description="What deliveries are signed with (`whsec_…`). It is shown only here.")


class NewWebhook(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"url": URL}]})

    url: str = Field(min_length=1, description="Where events are posted: https, a public address.", examples=[URL])
    events: list[Event] = Field(
        default_factory=lambda: list(get_args(Event)),
        min_length=1,
        max_length=len(EVENTS),
        description="Of which events it is told; all unless set.",
    )
