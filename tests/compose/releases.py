"""Steps that replace containers: a new image with a migration, and the whole project stopped and started again."""

from tests.compose.scenario import Scenario, expect
from tests.compose.stack import SERVICES, Stack, inspect, run

MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "rolled"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table("rolled", sa.Column("id", sa.Integer, primary_key=True))


def downgrade() -> None:
    op.drop_table("rolled")
"""
SHOW_SCHEMA = "import migrations; from migrations import schema; print(migrations.__path__[0], schema.head())"


def roll_out(scenario: Scenario) -> None:
    stack = scenario.stack
    with scenario.step("a new release with another migration is built") as facts:
        facts.append(_build_next_release(stack))
    with scenario.step("it is rolled out and the database is migrated", *SERVICES) as facts:
        with scenario.clients() as clients:
            stack.roll()
        facts.append(clients.require_all_answered())
        for container in stack.containers("api") + stack.containers("worker"):
            image = inspect(container)["Config"]["Image"]
            expect(image == stack.image, f"{container} should run {stack.image}, not {image}")
        log = stack.compose("logs", "--no-color", "--no-log-prefix", "migrate")
        expect("the database is at rolled" in log, f"the database should be migrated, but the log is {log}")
        scenario.require_all_known()


def stop_and_start(scenario: Scenario) -> None:
    before = scenario.stored_state()
    with scenario.step("the project is stopped; its volumes stay", *SERVICES):
        scenario.stack.compose("down")
    with scenario.step("it is started again and nothing is lost", *SERVICES) as facts:
        scenario.stack.up()
        after = scenario.stored_state()
        expect(after == before, f"classes, versions and sessions should be the same, but {before} became {after}")
        scenario.require_all_known()
        verdict = scenario.finish_session(scenario.teach_next())
        facts.append(f"{len(scenario.taught)} classes; the session of one more: {verdict}")


def _build_next_release(stack: Stack) -> str:
    """The same image with one more migration."""
    place, head = run("docker", "run", "--rm", "--entrypoint", "python", stack.image, "-c", SHOW_SCHEMA).split()
    folder = stack.folder / "next"
    folder.mkdir()
    (folder / "rolled.py").write_text(MIGRATION.format(head=head))
    label = "LABEL org.opencontainers.image.version=next"
    (folder / "Dockerfile").write_text(f"FROM {stack.image}\nCOPY rolled.py {place}/versions/\n{label}\n")
    stack.image = f"{stack.project}:next"
    run("docker", "build", "--quiet", "--tag", stack.image, str(folder))
    return f"schema {head} becomes 'rolled'"
