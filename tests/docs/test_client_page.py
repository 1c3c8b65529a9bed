"""The page of the client: its examples are run one after another, against a real service."""

import re
import shutil
import threading
from collections.abc import Iterator

import pytest
from protoquad_client import Client

from store.database import Database
from tests.client.test_contract import methods_of
from tests.docs.pages import REPOSITORY, blocks, tables, text_of
from tests.service.conftest import Service, running_service
from tests.waiting import until

ADDRESS = "http://127.0.0.1:8000"
SECONDS = 60.0  # bound of every wait: reached only by a test that fails


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """With the network that a newcomer gets. A worker runs one session, once three classes wait for it."""
    home = tmp_path_factory.mktemp("home")
    shutil.copyfile(request.getfixturevalue("_migrated_file"), home / "protoquad.db")
    database = Database(f"sqlite:///{home / 'protoquad.db'}")
    with running_service(database, home, backbone="efficientnet_lite0", engine="auto") as running:

        def work() -> None:
            until(
                lambda: 3 in {one["classes"] for one in running.http.get("/models").json()["items"]}, "3 classes wait"
            )
            assert running.worker.run_next()

        worker = threading.Thread(target=work)
        worker.start()
        yield running
        worker.join(SECONDS)
    database.close()


def test_the_examples_of_the_client_page_work_one_after_another(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it teaches is recognised, by both clients; what nobody taught is not."""
    examples = [block.replace(ADDRESS, service.url) for block in blocks(text_of("docs/client.md"), "python")]
    monkeypatch.chdir(REPOSITORY / "console" / "static" / "samples")
    printed: list[list[str]] = []
    names = {"__name__": "example", "print": lambda *values: printed[-1].append(" ".join(map(str, values)))}

    for number, example in enumerate(examples):
        printed.append([])
        exec(compile(example, f"docs/client.md, example {number}", "exec"), names)

    first, many, some, forms, session, taught, archive, errors, last = printed
    assert [line.split()[:2] for line in first[:3]] == [["fish", "5"], ["house", "5"], ["mug", "5"]]
    assert (first[3].split()[0], first[4]) == ("mug", "True")
    assert len(many) == 15
    assert (some[0], some[2]) == ("fish", "house")
    assert "ImageProblem(index=1" in some[1]
    assert forms == ["mug mug"]
    assert session[0].startswith("succeeded")
    assert taught[0] == "['house', 'mug']"
    assert archive[0].endswith("3 house")
    assert ["taken" in errors[0], errors[1].startswith("[(1, ")] == [True, True]
    assert last == ["house ['fish', 'house', 'cup']", "cup", "house"]


def test_the_client_page_lists_every_method() -> None:
    """Of the client and of each of its resources."""
    (table,) = tables(text_of("docs/client.md"))
    listed = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in table}

    with Client() as client:
        own = {name for name, _ in methods_of(client)} | {"model", "close"}
    found: dict[str, set[str]] = {}
    for name in own:
        resource, _, method = name.rpartition(".")
        found.setdefault(f"client.{resource}".rstrip("."), set()).add(method)
    assert listed == found
