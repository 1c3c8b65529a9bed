"""Redis as this project uses it: Celery carries session ids to workers, a channel carries names of changed models."""

from celery import Celery
from redis import Redis

TASK = "protoquad.session"
CHANNEL = "protoquad:changed"
QUEUES = ("cpu", "gpu")

SECONDS_TO_ANSWER = 1.0  # a hint that takes longer is worth less than none
SECONDS_WITHOUT_NEWS = 30  # after which a silent connection is asked whether it is alive


def connected(url: str) -> Redis:
    return Redis.from_url(
        url,
        socket_connect_timeout=SECONDS_TO_ANSWER,
        socket_timeout=SECONDS_TO_ANSWER,
        health_check_interval=SECONDS_WITHOUT_NEWS,
    )


def celery_app(url: str, *, seconds_to_answer: float = SECONDS_TO_ANSWER) -> Celery:
    """The same settings on both ends of the queue."""
    app = Celery("protoquad", broker=url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,  # what came of a session stands in its row
        task_publish_retry=False,
        broker_pool_limit=1,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_connect_timeout": seconds_to_answer,
            "socket_timeout": seconds_to_answer,
            "retry_on_timeout": False,
        },
        worker_pool="solo",  # no fork: torch would hang in one, and CUDA refuses
        worker_concurrency=1,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app
