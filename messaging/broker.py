"""Redis as this project uses it: Celery carries session ids to workers, a channel carries names of changed models.

Both libraries are imported when they are first used: without a broker no process waits for them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery import Celery
    from redis import Redis

TASK = "protoquad.session"
QUEUES = ("cpu", "gpu")
PREFIX = "protoquad:"  # of every key: others may use the same Redis
CHANNEL = f"{PREFIX}changed"

SECONDS_TO_ANSWER = 1.0  # a message that takes longer has lost against polling
SECONDS_TO_CONSUME = 3.0  # more than the second for which a blocking pop waits in Redis
SECONDS_WITHOUT_NEWS = 5.0  # after which a silent connection is pinged


def connected(url: str) -> "Redis":
    """A client that does not retry: its callers know what to do meanwhile and when to try again."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return Redis.from_url(
        url,
        socket_connect_timeout=SECONDS_TO_ANSWER,
        socket_timeout=SECONDS_TO_ANSWER,
        retry=Retry(NoBackoff(), 0),
    )


def celery_app(url: str, *, seconds_to_answer: float = SECONDS_TO_ANSWER) -> "Celery":
    """With the same settings at both ends of the queue."""
    from celery import Celery

    app = Celery("protoquad", set_as_current=False)
    app.conf.update(
        broker_read_url=url,  # both by name: CELERY_BROKER_URL, set for another program, would override `broker`
        broker_write_url=url,
        broker_use_ssl={"ssl_cert_reqs": "required"}
        if url.startswith("rediss:")
        else False,  # unless the URL says otherwise
        # A message whose acknowledgement got lost would keep its consumer from ever getting the next one.
        task_queues={name: {"exchange": name, "routing_key": name, "no_ack": True} for name in QUEUES},
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,  # the outcome of a session is in its row
        task_publish_retry=False,
        broker_pool_limit=1,
        broker_connection_retry=False,  # callers reconnect in their own time
        broker_connection_retry_on_startup=False,
        broker_transport_options={
            "global_keyprefix": PREFIX,
            "socket_connect_timeout": SECONDS_TO_ANSWER,
            "socket_timeout": seconds_to_answer,
            "health_check_interval": SECONDS_WITHOUT_NEWS,
        },
        worker_pool="solo",  # no fork: torch would hang in one, and CUDA refuses
        worker_concurrency=1,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,  # a session is cancelled in its row, and nowhere else
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app


def first_line(error: BaseException) -> str:
    """An error as a log line shows it."""
    return str(error).partition("\n")[0] or type(error).__name__
