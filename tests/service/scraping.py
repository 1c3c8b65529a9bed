"""What Prometheus would read from the service's metrics."""

from prometheus_client.parser import text_string_to_metric_families

from service.metrics import Metrics

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(metrics: Metrics) -> Samples:
    """What Prometheus would read."""
    content, media_type = metrics.render()
    assert media_type.startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return scrape(metrics).get((name, frozenset(labels.items())))
