"""The benchmarks that start servers, at a small size: real servers and requests, but few of them."""

from pathlib import Path

import pytest

from bench.load import bench_home, class_counts, client_speed, version_swaps
from bench.load.checkouts import CheckoutLoad, CheckoutResults, Plan, compare_checkouts
from bench.load.measurement import LoadResult
from bench.load.overheads import LIMITS, REQUESTS, Length, Overhead, measure_overheads
from bench.load.servers import Checkout
from bench.load.view_cost import Length as ViewLength
from bench.load.view_cost import measure_view_cost
from core.images import MAX_VIEWS

BACKBONE = "resnet32"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _torch_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no prepared backbone."""
    monkeypatch.setenv("PROTOQUAD_ENGINE", "torch")
    monkeypatch.setenv("PROTOQUAD_LOG_FORMAT", "json")


@pytest.fixture(scope="module")
def start_of_a_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the one class that every home of a benchmark starts with."""
    home: Path = tmp_path_factory.mktemp("start") / "home"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PROTOQUAD_ENGINE", "torch")
        bench_home.teach_one_class(home, BACKBONE)
    return home


@pytest.fixture
def copied_homes(start_of_a_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Homes start as copies of that one: teaching one class in each takes a server of its own."""

    def copy(home: Path, backbone: str, checkout: Checkout | None = None) -> None:
        assert (backbone, checkout) == (BACKBONE, None)
        bench_home.copy_home(start_of_a_home, home)

    monkeypatch.setattr(bench_home, "teach_one_class", copy)
    monkeypatch.setattr(class_counts, "teach_one_class", copy)


def result_of(answers: int, p99: float) -> LoadResult:
    return LoadResult(answers, 0, 1.0, (1.0, 2.0, p99, p99), None)


@pytest.mark.usefixtures("copied_homes")
def test_versions_are_swapped_under_load(tmp_path: Path) -> None:
    """All answers are correct, every swap is answered, and memory is read before and after."""
    lines: list[str] = []
    length = version_swaps.Length(rounds=1, swaps=4, predictions=30, seconds=1.0, settle=0.4, warm=0.1)

    found = version_swaps.measure_swaps(BACKBONE, tmp_path, length, lines.append)

    assert found.wrong == 0, found
    assert found.answers >= length.predictions
    assert len(found.swaps) >= 2
    assert all(megabytes > 50 for megabytes in found.megabytes)
    assert any("swaps:" in line for line in lines)


@pytest.mark.usefixtures("copied_homes")
def test_many_classes_are_loaded_predicted_and_added_to(tmp_path: Path) -> None:
    """One more class adds a few rows, however many there are."""
    length = class_counts.Length((40, 300), seconds=0.4, warm=0.1, rounds=1, taught_at=300, teachings=3, loadings=1)

    found = class_counts.measure_class_counts(BACKBONE, tmp_path, length, lambda _: None)

    assert found.wrong() == 0, found
    assert set(found.ratios()) == {"throughput 300", "teaching"}
    assert 7 < found.rows <= 15
    assert len(found.teaching) == 3
    assert set(found.loading) == {40, 300}


@pytest.mark.usefixtures("copied_homes")
def test_the_client_is_measured_beside_the_load_driver(tmp_path: Path) -> None:
    """Both of its forms, with right answers, in turns."""
    lines: list[str] = []
    length = client_speed.Length(images=20, seconds=0.4, warm=0.1, rounds=2)

    found = client_speed.measure_client(BACKBONE, tmp_path, length, lines.append)

    assert found.wrong == 0, found
    assert set(found.ratios()) == {"Client", "AsyncClient"}
    assert all(len(rates) == 2 and min(rates) > 0 for rates in found.rates.values())
    assert [line.partition(":")[0] for line in lines] == [*found.rates, *reversed(found.rates)]


@pytest.mark.usefixtures("copied_homes")
def test_views_are_asked_for_in_turns(tmp_path: Path) -> None:
    """What the service refuses is counted: the number of views does reach it."""
    length = ViewLength(views=(1, 2, MAX_VIEWS + 1), seconds=0.4, warm=0.05, rounds=1)

    found = measure_view_cost(BACKBONE, tmp_path, length, lambda _: None)

    assert set(found.loads) == {1, 32}
    for by_views in found.loads.values():
        assert [one.wrong for one in (*by_views[1], *by_views[2])] == [0, 0], found
        assert [one.answers for one in by_views[MAX_VIEWS + 1]] == [0]
        assert "HTTP 422" in str(by_views[MAX_VIEWS + 1][0].first_error)
    assert found.ratios()["throughput, 2 views"] > 0


def test_checkouts_know_the_same_classes_and_take_turns(tmp_path: Path) -> None:
    """Two names for this checkout: each answers every request, in its own home."""
    checkouts = []
    for name in ("before", "after"):
        (tmp_path / name).symlink_to(ROOT)
        checkouts.append(Checkout(name, tmp_path / name, tmp_path / "backbones" / name))
    plan = Plan(BACKBONE, [50], [CheckoutLoad.parse("small:2")], rounds=2, seconds=0.4, warm=0.1)

    (found,) = compare_checkouts(checkouts, plan, tmp_path / "homes", lambda _: None)

    assert list(found.rounds) == ["before", "after"]
    assert all(one.answers > 0 and one.wrong == 0 for rounds in found.rounds.values() for one in rounds), found
    assert [len(ratios) for ratios in found.ratios("after")] == [2, 2]
    assert all(megabytes > 50 for megabytes in found.megabytes.values())


@pytest.mark.usefixtures("copied_homes")
def test_overheads_are_measured_for_every_request(tmp_path: Path) -> None:
    """With a broker that does not answer and with a history of many versions."""
    found = measure_overheads(BACKBONE, tmp_path, Length(rounds=1, versions=20), lambda _: None)

    assert len(found) == 1 + len(LIMITS) * len(REQUESTS)
    assert all(one.ratio > 0 for one in found)


def test_an_overhead_over_its_limit_is_not_small() -> None:
    """At the limit it still is."""
    assert Overhead("teaching", 1.5, 1.5).is_small
    assert not Overhead("teaching", 1.6, 1.5).is_small


def test_ratios_compare_measurements_of_the_same_round() -> None:
    """With the fewest classes, with a steady load, with the first checkout."""
    counts = class_counts.ClassCountResults(
        loads={100: [result_of(100, 9.0)] * 3, 10_000: [result_of(90, 9.0)] * 3},
        teaching=[*[10.0] * 19, 40.0],
        five=4.0,
    )
    swaps = version_swaps.SwapResults([result_of(5, 10.0)], [result_of(5, 15.0)], [1.0], 10, 0, (500.0, 505.0))
    rounds = {
        "before": [result_of(100, 10.0), result_of(50, 20.0), result_of(100, 10.0)],
        "after": [result_of(90, 11.0), result_of(50, 21.0), result_of(100, 10.0)],
    }
    compared = CheckoutResults(100, "small:32", rounds, {"before": 500, "after": 510})

    assert counts.ratios() == {"throughput 10000": 0.9, "teaching": 10.0}
    assert swaps.ratios() == {"p99": 1.5, "growth": 0.01}
    assert compared.ratios("after") == ([0.9, 1.0, 1.0], [1.1, 1.05, 1.0])
    assert compared.summary("after")["p99_ratio"] == 1.05
    assert compared.summary("after")["megabytes"] == 510


@pytest.mark.parametrize("text", ["", "small", "small:", "small:0", "huge:3", "small:many"])
def test_a_load_that_cannot_be_read_is_refused(text: str) -> None:
    """With an example of one that can."""
    with pytest.raises(ValueError, match="write small:32"):
        CheckoutLoad.parse(text)
