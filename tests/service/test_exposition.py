"""`/metrics` of the running service: after some traffic its numbers are those of the traffic."""

from collections.abc import Callable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_count_what_has_happened(start: Callable[..., Any]) -> None:
    """Requests by route and status, images by outcome, active versions, sessions by state and duration."""
    service = start()
    service.http.post("/models", json={"name": "birds"})
    learner, birds = service.learner(), service.learner("birds")
    learner.taught("red", "green", "blue")
    assert learner.service.worker.run_next()
    learner.service.context.versions.refresh("default")
    learner.taught("yellow")
    birds.taught("red")
    learner.predict("red", "green", "stripes")
    learner.predict("blue")
    birds.predict("red")
    assert learner.teach("red").status_code == 409

    answer = service.http.get("/metrics")

    found = samples(answer.text)

    def value(name: str, **labels: str) -> float:
        return found[f"protoquad_{name}", tuple(sorted(labels.items()))]

    request = "http_request_duration_seconds_count"
    assert answer.headers["content-type"].startswith("text/plain")
    assert value(request, method="POST", route="/classes", status="202") == 4
    assert value(request, method="POST", route="/classes", status="409") == 1
    assert value(request, method="POST", route="/models/{model}/predict", status="200") == 1
    assert value("predictions_total", model="default", outcome="known") == 3
    assert value("predictions_total", model="default", outcome="unknown") == 1
    assert value("predictions_total", model="birds", outcome="known") == 1
    assert value("served_version", model="default") == learner.version == 5
    assert value("served_classes", model="default") == 4
    assert value("served_classes", model="birds") == 1
    assert value("batch_images_sum") == 5 * 3 + 5  # five classes of three shots, five predictions
    assert value("queue_images") == 0
    assert value("queue_delay_seconds_count") == value("batch_images_count") > 0
    assert value("sessions", status="succeeded") == 1
    assert value("sessions", status="queued") == 2
    assert value("sessions", status="failed") == 0
    assert value("session_duration_seconds_count", status="succeeded") == 1
    assert value("oldest_queued_session_seconds") > 0
    assert value("database_up") == 1
    assert found["process_resident_memory_bytes", ()] > 0


def labels(service: Any, name: str) -> set[str]:
    """Every value of this label, on whichever metric."""
    found = samples(service.http.get("/metrics").text)
    return {text for _, pairs in found for label, text in pairs if label == name}


def test_a_deleted_model_leaves_no_label_on_any_replica(
    start: Callable[..., Any], until: Callable[[Callable[[], Any], str], None]
) -> None:
    """Neither where it was deleted nor where that was only heard of."""
    here, there = start(), start(replica=True)
    here.http.post("/models", json={"name": "birds"})
    here.learner("birds").taught("red")
    for service in (here, there):
        service.learner("birds").predict("red")
        assert "birds" in labels(service, "model")

    here.http.delete("/models/birds")

    assert labels(here, "model") == {"default"}
    until(lambda: labels(there, "model") == {"default"}, "the other replica has forgotten it")


def test_nothing_that_a_caller_makes_up_becomes_a_label(service: Any) -> None:
    """Paths, methods and models that do not exist are counted together: a series of each would be kept for ever."""
    routes = {*service.app.openapi()["paths"], "/docs", "/openapi.json", "/", "/console/{path:path}", "unmatched"}
    paths = [
        "/made-up",
        "/classes/made-up",
        "/classes/",
        "/made-up/classes",
        "/models/made-up",
        "/models/made-up/classes/7/made-up",
        "/models/made-up/predict",
        "/models/a%2Fmade-up/predict",
        "/docs-assets/made-up",
        "/docs/made-up",
        "//made-up",
        "/%1b%5b31mmade-up",
    ]

    for path in paths:
        for method in ("GET", "POST", "PUT", "HEAD", "OPTIONS", "MADEUP", "get"):
            service.http.request(method, path, headers={"X-Request-ID": "made-up"})

    assert labels(service, "route") <= routes
    assert labels(service, "method") <= {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"}
    assert "made-up" not in service.http.get("/metrics").text.lower()
