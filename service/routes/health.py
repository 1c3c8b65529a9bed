"""`/livez`, `/readyz`, `/metrics`: for machines that watch. None of them depends on the database.

Asynchronous, so that they do not wait for a thread behind requests that wait for the database.
"""

from fastapi import APIRouter, Depends, Response

from service.auth import requires
from service.dependencies import Context
from service.problems import Problem, responses

router = APIRouter(tags=["health"])


@router.get("/livez", summary="Is the process alive", responses=responses(503))
async def livez(context: Context) -> dict[str, str]:
    """Fails when the engine's thread is gone, which only a restart mends."""
    if not context.predictor.alive:
        raise Problem(503, "The engine is gone", "the engine's thread has ended; restart the service", slug="dead")
    return {"status": "alive"}


@router.get("/readyz", summary="Can it answer", responses=responses(503))
async def readyz(context: Context) -> dict[str, str]:
    """Fails until the first model is loaded, and again while the service stops."""
    if context.stopping or not context.versions.all_active():
        raise Problem(503, "Not ready", "no model is loaded yet, or the service is stopping", slug="not-ready")
    return {"status": "ready"}


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **responses(401, 403, 503)},
    dependencies=[Depends(requires("predict"))],
)
def metrics(context: Context) -> Response:
    context.metrics.serving({one.model: (one.number, len(one.classifier)) for one in context.versions.all_active()})
    content, media_type = context.metrics.render()
    return Response(content, headers={"Content-Type": media_type})
