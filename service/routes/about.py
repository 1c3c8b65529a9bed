"""`/about`: what this deployment is, what it allows, and whether its workers work."""

import resource
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from fastapi import APIRouter, Depends, Request

from service.app_context import AppContext
from service.auth import requires
from service.dependencies import Context
from service.people_schemas import About, Queue, Workers
from service.problems import responses
from store import session_metrics
from store.catalogue import DEFAULT
from store.heartbeats import heartbeats
from store.session_metrics import Activity

router = APIRouter(tags=["people"])

LIMITS = (
    *("max_request_bytes", "max_pixels", "max_images", "max_shots", "max_classes"),
    *("max_streams", "queue_images", "keep_versions"),
)


@router.get(
    "/about",
    response_model=About,
    responses=responses(401, 403, 503),
    dependencies=[Depends(requires("predict"))],
    summary="Show the deployment",
)
def about(request: Request, context: Context) -> About:
    """Release, network, limits, workers, what waits. Asks the database; `/livez` and `/readyz` do not."""
    with context.database.read() as db:
        activity = session_metrics.activity(db)
    settings = context.settings
    return About(
        release=request.app.version,
        backbone=settings.backbone,
        engine=context.backbones.engine,
        device=str(context.backbones.device),
        default_model=DEFAULT,
        limits={name: getattr(settings, name) for name in LIMITS},
        capture=settings.capture,
        workers=_workers(context, activity),
        queue=Queue(sessions=activity.queued, images=context.predictor.queued),
        memory_bytes=_memory(),
        uptime_seconds=round(time.monotonic() - context.started_at, 1),
    )


def _workers(context: AppContext, activity: Activity) -> Workers:
    """A worker elsewhere is seen only while it runs a session: its lease tells."""
    ages = heartbeats(context.settings.home).values()
    here = sum(age <= context.settings.stall_seconds for age in ages)
    seen = datetime.fromtimestamp(time.time() - min(ages), UTC) if ages else None
    return Workers(alive=max(here, activity.leased), last_seen=seen)


def _memory() -> int:
    """Resident bytes; where the system does not say, the most that there were."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
