"""`/livez`, `/readyz`, `/metrics`: for machines that watch. None of them depends on the database.

Asynchronous, so that they do not wait for a thread behind requests that wait for the database.
"""

from fastapi import APIRouter, Depends, Response

from service.auth import requires
from service.dependencies import Service
from service.errors import Problem, responses

router = APIRouter(tags=["health"])


@router.get("/livez", summary="Is the process alive", responses=responses(503))
async def livez(service: Service) -> dict[str, str]:
    """Fails when the engine's thread is gone, which only a restart mends."""
    if not service.predictor.alive:
        raise Problem(503, "The engine is gone", "the engine's thread has ended; restart the service", slug="dead")
    return {"status": "alive"}


@router.get("/readyz", summary="Can it answer", responses=responses(503))
async def readyz(service: Service) -> dict[str, str]:
    """Fails until the first model is loaded, and again while the service stops."""
    if service.stopping or not service.version_cache.served():
        raise Problem(503, "Not ready", "no model is loaded yet, or the service is stopping", slug="not-ready")
    return {"status": "ready"}


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **responses(401, 403, 503)},
    dependencies=[Depends(requires("predict"))],
)
def metrics(service: Service) -> Response:
    service.metrics.serving({one.model: (one.number, len(one.classifier)) for one in service.version_cache.served()})
    content, media_type = service.metrics.render()
    return Response(content, headers={"Content-Type": media_type})
