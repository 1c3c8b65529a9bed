"""`/webhooks`: addresses that are told of new versions, rejected sessions and full inboxes."""

import secrets
from datetime import datetime
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Path, Request, Response

from messaging.webhook_sender import UnusableUrl
from service.app_context import AppContext
from service.auth import requires
from service.cancellation import while_wanted
from service.dependencies import Context, ModelName
from service.json_body import json_body, read_json
from service.problems import ParameterProblem, Problem, responses
from service.schemas import Page
from service.webhook_schemas import Attempt, NewWebhook, NewWebhookBody, WebhookBody
from store import catalogue, outbox, webhooks
from store.database import now
from store.models import Webhook
from store.outbox import Result

router = APIRouter(tags=["webhooks"])

WebhookId = Annotated[str, Path(description="Id of the webhook.", examples=["wh_0123456789abcdef"], max_length=40)]


@router.get(
    "/webhooks",
    response_model=Page[WebhookBody],
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("admin"))],
    summary="List the webhooks",
)
def list_webhooks(context: Context, model: ModelName) -> Page[WebhookBody]:
    """With the result of the newest delivery of each; never the secret."""
    with context.database.read() as db:
        model_id = catalogue.get(db, model).id
        waiting = webhooks.waiting(db, model_id)
        items = [WebhookBody.of(row, waiting.get(row.id, 0)) for row in webhooks.everything(db, model_id)]
    return Page(items=items, next=None)


@router.post(
    "/webhooks",
    status_code=201,
    response_model=NewWebhookBody,
    responses=responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507),
    dependencies=[Depends(requires("admin"))],
    openapi_extra={"requestBody": json_body(NewWebhook)},
    summary="Register a webhook",
)
async def create_webhook(request: Request, context: Context, model: ModelName, response: Response) -> NewWebhookBody:
    """The answer is the only place where the secret is shown. Events from now on are delivered."""
    body = await read_json(request, NewWebhook)
    try:
        context.webhooks.sender.require_usable(body.url)
    except UnusableUrl as error:
        detail = f"the address cannot be used: {error}"
        errors = [ParameterProblem(where="body url", reason=str(error))]
        raise Problem(422, "The address cannot be used", detail, slug="invalid-request", errors=errors) from error
    row = await run_sync(_create, context, model, body)
    response.headers["Cache-Control"] = "no-store"
    return NewWebhookBody(**WebhookBody.of(row, 0).model_dump(), secret=row.secret)


@router.delete(
    "/webhooks/{webhook_id}",
    status_code=204,
    responses=responses(401, 403, 404, 422, 503, 507),
    dependencies=[Depends(requires("admin"))],
    summary="Delete a webhook",
)
def delete_webhook(context: Context, model: ModelName, webhook_id: WebhookId) -> Response:
    """With what waits for it; a delivery that is being made may still arrive."""
    with context.database.write() as db:
        webhooks.delete(db, catalogue.get(db, model).id, webhook_id)
    return Response(status_code=204)


@router.post(
    "/webhooks/{webhook_id}/test",
    response_model=Attempt,
    responses=responses(401, 403, 404, 422, 503, 507),
    dependencies=[Depends(requires("admin"))],
    summary="Test a webhook",
)
async def test_webhook(request: Request, context: Context, model: ModelName, webhook_id: WebhookId) -> Attempt:
    """Send an event of type `webhook.test` now. If it arrives, a disabled webhook is active again."""
    if context.webhook_tests.full:
        raise Problem(
            503,
            "Too many tests",
            f"{context.webhook_tests.number} webhooks are being tested already; try again in a moment",
            slug="busy",
            headers={"Retry-After": "5"},
        )
    with context.webhook_tests.take():
        row, moment, body = await run_sync(_read, context, model, webhook_id)
        message_id = f"msg_{secrets.token_hex(12)}"
        sending = context.webhooks.sender.send(row.url, row.secret, message_id, moment, body)
        sent = await while_wanted(request, sending, context.settings.answer_seconds)
        return await run_sync(_record, context, row.id, Result(sent.status, sent.error, sent.milliseconds))


def _create(context: AppContext, model: str, body: NewWebhook) -> Webhook:
    with context.database.write() as db:
        return webhooks.create(db, catalogue.get(db, model).id, body.url, body.events)


def _read(context: AppContext, model: str, webhook_id: str) -> tuple[Webhook, datetime, str]:
    with context.database.read() as db:
        row, moment = webhooks.get(db, catalogue.get(db, model).id, webhook_id), now(db)
    return row, moment, outbox.message("webhook.test", moment, {"model": model})


def _record(context: AppContext, webhook_id: str, result: Result) -> Attempt:
    with context.database.write() as db:
        return Attempt.model_validate(outbox.record_test(db, webhook_id, result))
