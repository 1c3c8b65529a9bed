"""What teaching writes does not grow with what is there."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from store.database import Database
from store.models import Base

MOST_ROWS = 15


def everything(database: Database) -> Counter[str]:
    """Every row of every table."""
    with database.read() as db:
        return Counter(
            f"{table.name} {tuple(row)}" for table in Base.metadata.sorted_tables for row in db.execute(select(table))
        )


@pytest.mark.parametrize("already", [0, 4])
def test_teaching_a_class_writes_few_rows(start: Callable[..., Any], draw: Callable[..., bytes], already: int) -> None:
    """Five shots and what is made of each, class, version, prototype, session, model: however many classes exist."""
    service = start()
    learner = service.learner()
    learner.taught(*["red", "green", "blue", "yellow"][:already])
    before = everything(service.context.database)

    taught = learner.post("/classes", data={"name": "violet"}, files=[("shots", draw("violet", n)) for n in range(5)])

    written = everything(service.context.database) - before
    assert taught.status_code == 202
    assert 8 <= written.total() <= MOST_ROWS, "\n".join(row[:80] for row in written)
