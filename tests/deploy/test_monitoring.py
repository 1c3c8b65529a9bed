"""The alerts and the dashboard ask for what the service tells, and say what to do."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import AggregateExpr, MatchOp, MatrixSelector, VectorSelector

from service.app import create_app
from service.metrics import Metrics
from store import catalogue, sessions
from store.database import Database
from store.models import Base, SessionRow
from store.settings import Settings
from tests.deploy.page import PAGE, anchors

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS_OWN = {"instance", "job"}  # labels that a scrape adds

Samples = dict[str, list[dict[str, str]]]


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """Every expression of both files; Grafana's own interval put in."""
    drawn = [target["expr"].replace("$__rate_interval", "5m") for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in alerts()] + drawn


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """The labels of every sample of a service that everything has happened to, by the sample's name."""
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('told')}/told.db")
    Base.metadata.create_all(database.engine)
    app = create_app(Settings(), database)
    metrics: Metrics = app.state.metrics
    with database.write() as db:
        model = catalogue.create(db, "default", "some", 1.0)
        moment = datetime.now(UTC)
        times = dict.fromkeys(("ready_at", "created_at", "started_at", "finished_at"), moment)
        db.add_all(SessionRow(model_id=model.id, status=status, **times) for status in sessions.FINISHED)
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            for status in ("200", "503"):
                metrics.requests.labels(method.upper(), path, status).observe(0.1)
    metrics.predicted("default", known=1, unknown=1)
    metrics.batched(1, 0.1)
    metrics.serving({"default": (1, 1)})
    samples: Samples = {"up": [{}]}  # Prometheus itself says whether a scrape was answered
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample.labels)
    database.close()
    return samples


def context_of(query: str, kind: Any) -> list[Any]:
    found: list[Any] = []

    def visit(part: Any) -> bool:
        if isinstance(part, MatrixSelector):
            part = part.vector_selector
        if isinstance(part, kind) and part not in found:
            found.append(part)
        return True

    promql_parser.walk(promql_parser.parse(query), visit)
    return found


@pytest.mark.parametrize("query", queries())
def test_a_query_asks_for_what_is_told(told: Samples, query: str) -> None:
    """Metrics, labels and the values of labels that are written into it."""
    selectors = context_of(query, VectorSelector)

    assert selectors
    for selector in selectors:
        assert selector.name in told
        assert any(_selects(selector, labels) for labels in told[selector.name]), f"nothing is {selector.prettify()}"


def _selects(selector: Any, labels: dict[str, str]) -> bool:
    return all(_matches(one, labels) for one in selector.matchers.matchers if one.name not in PROMETHEUS_OWN)


def _matches(matcher: Any, labels: dict[str, str]) -> bool:
    if matcher.name not in labels:
        return False
    if "$" in matcher.value:  # chosen in Grafana
        return True
    assert matcher.op in (MatchOp.Equal, MatchOp.Re)
    pattern = matcher.value if matcher.op == MatchOp.Re else re.escape(matcher.value)
    return re.fullmatch(pattern, labels[matcher.name]) is not None


@pytest.mark.parametrize("query", queries())
def test_a_query_groups_by_labels_that_there_are(told: Samples, query: str) -> None:
    """A label that nobody has would put all into one group without a word."""
    for grouped in context_of(query, AggregateExpr):
        (first, *_) = context_of(grouped.expr.prettify(), VectorSelector)
        there = PROMETHEUS_OWN.union(*told[first.name])

        assert set(grouped.modifier.labels if grouped.modifier else ()) <= there


@pytest.mark.parametrize("query", queries())
def test_a_rate_is_of_something_that_only_rises(query: str) -> None:
    """Of a gauge it would be nonsense, of a counter a difference would fall at every restart."""
    for call in context_of(query, promql_parser.Call):
        name = call.func.name
        if name in {"rate", "increase", "delta"}:
            rises = call.args[0].vector_selector.name.endswith(("_total", "_count", "_sum", "_bucket"))
            assert rises == (name != "delta")


def test_every_metric_of_the_service_is_on_the_dashboard(told: Samples) -> None:
    """What nobody looks at need not be measured."""
    shown = {selector.name for query in queries() for selector in context_of(query, VectorSelector)}
    measured = {name for name in told if not name.endswith("_created")}

    assert _ours(measured) == _ours(shown)


def _ours(names: set[str]) -> set[str]:
    return {re.sub("_(bucket|count|sum)$", "", name) for name in names if name.startswith("protoquad_")}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_is_wrong_and_where_it_says_what_to_do(rule: dict[str, Any]) -> None:
    """The page has a heading of the alert's own name, and something below it."""
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")

    assert rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert page == "docs/operations.md"
    assert anchor == rule["alert"].lower()
    assert anchor in anchors(PAGE)


def test_names_of_alerts_are_their_own() -> None:
    """And every one of the page's alerts exists."""
    names = [rule["alert"] for rule in alerts()]
    described = re.findall(r"^#+ (Protoquad\w+)$", PAGE, re.MULTILINE)

    assert len(names) == len(set(names))
    assert sorted(names) == sorted(described)


@pytest.mark.parametrize(
    ("alert", "status", "metric"),
    [
        ("ProtoquadSessionsWait", "queued", "protoquad_oldest_queued_session_seconds"),
        ("ProtoquadNoWorker", "running", "protoquad_abandoned_session_seconds"),
    ],
)
def test_sessions_that_nobody_runs_raise_an_alert_although_the_clock_was_set_back(
    tmp_path: Path, alert: str, status: str, metric: str
) -> None:
    """Their times lie in the future then, and they are no younger for that."""
    (rule,) = (rule for rule in alerts() if rule["alert"] == alert)
    threshold = float(rule["expr"].rpartition(">")[2])
    database, passed = Database(f"sqlite:///{tmp_path}/clock.db"), [0.0]
    Base.metadata.create_all(database.engine)
    with database.write() as db:
        model = catalogue.create(db, "default", "some", 1.0)
        times = dict.fromkeys(("ready_at", "created_at", "lease_until"), datetime.now(UTC) + timedelta(days=1))
        db.add(SessionRow(model_id=model.id, status=status, **times))
    metrics = Metrics(database, cache=0, patience=20, clock=lambda: passed[0])

    before = _value(metrics, metric)
    passed[0] += threshold + 1
    after = _value(metrics, metric)
    database.close()

    assert metric in rule["expr"]
    assert before < threshold < after


def _value(metrics: Metrics, name: str) -> float:
    families = text_string_to_metric_families(metrics.render()[0].decode())
    (value,) = (sample.value for family in families for sample in family.samples if sample.name == name)
    return float(value)


def test_panels_lie_beside_each_other() -> None:
    """None covers another, each has an id and a unit of its own and says where its numbers come from."""
    placed = dashboard()["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in placed:
        place = panel["gridPos"]
        cells = {(place["x"] + across, place["y"] + down) for across in range(place["w"]) for down in range(place["h"])}
        assert not taken & cells, panel["title"]
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells

    assert len({panel["id"] for panel in placed}) == len(placed)
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels())
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels())
