"""Builds, starts, teaches, kills and restarts everything in turn, rolls a new image, stops and starts again.

One line for each step, with its seconds. At the first thing that is not as it should be: the logs of the services that
the step was about, and exit code 1. What it made it removes.
"""

import contextlib
import io
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from tests.compose.callers import Callers
from tests.compose.drawn_images import NAMES, picture, question, shots
from tests.compose.stack import REPLICAS, Failed, Stack, eventually, inspect, run

SECONDS_TO_CATCH_UP = 60
CLEARED = "\x1b[2K"  # which compose writes before each line of a log, terminal or not
EVERYTHING = ("postgres", "redis", "migrate", "api", "worker", "proxy")
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


class Proof:
    """The steps, and what was taught so far."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.taught: list[str] = []
        self.sessions: list[int] = []

    @contextlib.contextmanager
    def step(self, sentence: str, *services: str) -> Iterator[list[str]]:
        """A line when it has gone well; what is put into the list is told with it."""
        began = time.monotonic()
        facts: list[str] = []
        try:
            yield facts
        except (Failed, httpx.HTTPError) as error:
            print(f"{time.monotonic() - began:7.1f} s  FAILED: {sentence}", flush=True)
            print(self.stack.compose("ps", "--all"))
            print(self.stack.compose("logs", "--no-color", "--tail", "200", *services).replace(CLEARED, ""))
            raise Failed(f"{sentence}: {error}") from error
        told = f" ({'; '.join(facts)})" if facts else ""
        print(f"{time.monotonic() - began:7.1f} s  {sentence}{told}", flush=True)

    def everything(self) -> None:
        self.refuses_without_secrets()
        self.comes_up()
        self.is_contained()
        self.learns()
        self.takes_large_bodies()
        for replica in self.stack.containers("api"):
            self.loses_a_replica(replica)
        self.stops_a_replica()
        self.loses_a_crashed_process()
        self.loses_redis()
        for worker in self.stack.containers("worker"):
            self.loses_a_worker(worker)
        self.stops_a_worker()
        self.loses_the_database()
        self.loses_the_proxy()
        self.rolls_a_new_image()
        self.goes_down_and_comes_back()

    def refuses_without_secrets(self) -> None:
        with self.step("without .env it refuses to start and says what to do") as facts:
            try:
                self.stack.compose("config", "--quiet", env_file=Path("/dev/null"))
            except Failed as refusal:
                expect("run make compose-env" in str(refusal), f"it says what to do, but it says {refusal}")
                facts.append(str(refusal).strip().splitlines()[-1])
            else:
                raise Failed("it starts with no password at all")

    def comes_up(self) -> None:
        with self.step("the image is built") as facts:
            self.stack.compose("build", "--quiet")
            size = int(run("docker", "image", "inspect", "--format", "{{.Size}}", self.stack.image))
            facts.append(f"{size / 1e9:.2f} GB")
        with self.step("everything is up and healthy", *EVERYTHING) as facts:
            self.stack.up()
            facts.append(", ".join(f"{len(self.stack.containers(name))} {name}" for name in EVERYTHING))
        with self.step("a caller without the key is refused, one with it is not", "api", "proxy"):
            address = str(self.stack.client.base_url)
            expect(httpx.get(f"{address}/classes").status_code == 401, "a caller without a key is answered 401")
            expect(self.stack.client.get("/classes").status_code == 200, "a caller with the key is answered 200")

    def is_contained(self) -> None:
        with self.step("no container runs as root, writes to its image or has a capability", *EVERYTHING):
            for service in EVERYTHING:
                for container in self.stack.containers(service):
                    found = inspect(container)
                    host = found["HostConfig"]
                    expect(found["Config"]["User"] not in {"", "root", "0"}, f"{container} has a user of its own")
                    expect(host["ReadonlyRootfs"], f"{container} has a read-only root")
                    expect(host["CapDrop"] == ["ALL"] and not host["CapAdd"], f"{container} has no capability")
                    expect("no-new-privileges:true" in host["SecurityOpt"], f"{container} gains no privileges")
                    expect(host["Memory"] > 0, f"{container} has a limit of memory")

    def learns(self) -> None:
        with self.step("four classes are taught and known to every replica", "api", "postgres"):
            for name in NAMES[:4]:
                self.teach(name)
            self.all_known()
        with self.step("their session is watched to its end through the proxy", "worker", "api") as facts:
            facts.append(self.watched(self.sessions[-1]))
            self.all_known()

    def takes_large_bodies(self) -> None:
        with self.step("a picture of 24 MB is answered, a body of more than 100 MB refused with 413", "api", "proxy"):
            noise = io.BytesIO()
            Image.effect_noise((2850, 2850), 90).convert("RGB").save(noise, "BMP")
            answer = self.stack.client.post("/predict", files=[("images", noise.getvalue())])
            expect(answer.status_code == 200, f"the picture is answered 200, but it is {answer.status_code}")
            answer = self.stack.client.post("/predict", files=[("images", bytes(101 * 1024 * 1024))])
            expect(answer.status_code == 413, f"the body is answered 413, but it is {answer.status_code}")

    def loses_a_replica(self, replica: str) -> None:
        with self.step(f"{replica} is killed while others predict and teach", "api", "proxy") as facts:
            with self.callers() as callers:
                asked = callers.answers.total()
                self.stack.kill(replica)
                self.teach(NAMES[len(self.taught)])
                eventually(lambda: callers.answers.total() >= asked + 60, "sixty more predictions were answered")
            facts.append(callers.all_answered())
            self.all_known(without=replica)
            self.stack.start(replica)
            self.all_known()

    def stops_a_replica(self) -> None:
        replica = self.stack.containers("api")[0]
        with self.step(f"{replica} is told to stop while others predict", "api", "proxy") as facts:
            with self.callers() as callers:
                run("docker", "stop", "--time", "45", replica)
                asked = callers.answers.total()
                eventually(lambda: callers.answers.total() >= asked + 30, "thirty more predictions were answered")
            facts.append(callers.all_answered())
            expect_exit(replica, 0)
            self.stack.start(replica)
            self.all_known()

    def loses_a_crashed_process(self) -> None:
        """From the inside, as a bug or the kernel would: Docker starts it again, which it does not after a `kill`."""
        for container in (self.stack.containers("api")[0], self.stack.containers("worker")[0]):
            with self.step(f"{container} crashes and is started again by itself", "api", "worker"):
                before = inspect(container)["RestartCount"]
                with contextlib.suppress(Failed):  # the shell that does it goes down too
                    run("docker", "exec", container, "sh", "-c", "kill -KILL -1")
                eventually(partial(_restarted, container, since=before), "it is restarted")
                self.stack.until_healthy(container)
                self.all_known()

    def loses_redis(self) -> None:
        (redis,) = self.stack.containers("redis")
        with self.step("redis is killed; a class is taught and its session run all the same", "api", "worker") as facts:
            with self.callers() as callers:
                self.stack.kill(redis)
                self.teach(NAMES[len(self.taught)])
                facts.append(self.finished(self.sessions[-1]))
            facts.append(callers.all_answered())
            self.stack.start(redis)
            self.all_known()

    def loses_a_worker(self, worker: str) -> None:
        with self.step(f"{worker} is killed while a session runs; the session is finished", "worker") as facts:
            self.running()
            self.stack.kill(worker)
            facts.append(self.finished(self.sessions[-1]))
            self.stack.start(worker)
            self.all_known()

    def stops_a_worker(self) -> None:
        """All of them, for only one has the session."""
        with self.step("the workers are told to stop while a session runs, and give it back", "worker") as facts:
            self.running()
            began = time.monotonic()
            workers = self.stack.containers("worker")
            run("docker", "stop", "--time", "60", *workers)
            facts.append(f"{time.monotonic() - began:.1f} s to stop")
            for worker in workers:
                expect_exit(worker, 0)
            for worker in workers:
                self.stack.start(worker)
            facts.append(self.finished(self.sessions[-1]))
            events = self.events(self.sessions[-1])
            expect("released" in events, f"the session was given back, but its events are {events}")
            self.all_known()

    def loses_the_database(self) -> None:
        (postgres,) = self.stack.containers("postgres")
        with self.step("postgres is killed; predictions go on, teaching says 503", "api", "postgres") as facts:
            with self.callers() as callers:
                self.stack.kill(postgres)
                name = NAMES[len(self.taught)]
                answer = self.stack.client.post("/classes", data={"name": name}, files=shots(name))
                expect(answer.status_code == 503, f"teaching is answered 503, but it is {answer.status_code}")
                self.all_known()
                self.stack.start(postgres)
            facts.append(callers.all_answered())
        with self.step("with postgres back a class is taught and its session run", "api", "worker") as facts:
            self.teach(NAMES[len(self.taught)])
            facts.append(self.finished(self.sessions[-1]))
            self.all_known()

    def loses_the_proxy(self) -> None:
        (proxy,) = self.stack.containers("proxy")
        with self.step("the proxy is killed and started again", "proxy"):
            self.stack.kill(proxy)
            self.all_known()
            self.stack.start(proxy)
            expect(self.stack.client.get("/classes").status_code == 200, "the proxy is answering again")

    def rolls_a_new_image(self) -> None:
        with self.step("a new release is built, with other tables") as facts:
            facts.append(self._next_release())
        with self.step("it is rolled out and the database migrates", *EVERYTHING) as facts:
            with self.callers() as callers:
                self.stack.roll()
            facts.append(callers.all_answered())
            for service in ("api", "worker"):
                for container in self.stack.containers(service):
                    image = inspect(container)["Config"]["Image"]
                    expect(image == self.stack.image, f"{container} runs the new image, but it runs {image}")
            told = self.stack.compose("logs", "--no-color", "--no-log-prefix", "migrate")
            expect("the database is at rolled" in told, f"the database is migrated, but it says {told}")
            self.all_known()

    def goes_down_and_comes_back(self) -> None:
        before = self.state()
        with self.step("it is taken down, without its volumes", *EVERYTHING):
            self.stack.compose("down")
        with self.step("it is brought up again and everything is there", *EVERYTHING) as facts:
            self.stack.up()
            after = self.state()
            expect(after == before, f"classes, versions and sessions are the same, but {before} became {after}")
            self.all_known()
            self.teach(NAMES[len(self.taught)])
            facts.append(f"{len(self.taught)} classes, the session of one more {self.finished(self.sessions[-1])}")

    # What the steps are made of

    def callers(self) -> Callers:
        return Callers(self.stack, picture(self.taught[0], 200))

    def teach(self, name: str) -> None:
        answer = self.stack.client.post("/classes", data={"name": name}, files=shots(name))
        expect(
            answer.status_code == 202,
            f"teaching '{name}' is answered 202, but it is {answer.status_code} {answer.text}",
        )
        self.taught.append(name)
        self.sessions.append(answer.json()["session"]["id"])

    def session(self, number: int) -> dict[str, Any]:
        return dict(self.stack.client.get(f"/sessions/{number}").raise_for_status().json())

    def running(self) -> None:
        """A session that a worker has just begun."""
        self.teach(NAMES[len(self.taught)])
        eventually(lambda: self.session(self.sessions[-1])["status"] == "running", "the session runs")

    def finished(self, number: int) -> str:
        over = eventually(
            lambda: (found := self.session(number))["status"] not in {"queued", "running"} and found,
            f"session {number} is over",
        )
        return verdict(over)

    def watched(self, number: int) -> str:
        events = self.events(number)
        expect(events[-1:] == ["succeeded"], f"the last event is 'succeeded', but the events are {events}")
        return f"{len(events)} events; {verdict(self.session(number))}"

    def events(self, number: int) -> list[str]:
        """As they come, until the session is over."""
        with self.stack.client.stream("GET", f"/sessions/{number}/events") as stream:
            return [line.removeprefix("event: ") for line in stream.iter_lines() if line.startswith("event: ")]

    def all_known(self, without: str = "") -> None:
        """Every class that was taught is what every replica takes its picture for."""
        for replica in self.stack.containers("api"):
            if replica != without:
                hoped = f"{replica} knows {', '.join(self.taught)}"
                eventually(partial(self._known_to, replica), hoped, seconds=SECONDS_TO_CATCH_UP)

    def _known_to(self, replica: str) -> bool:
        predictions = self.stack.predict_on(replica, question(self.taught))
        return [one["top"][0]["label"] for one in predictions] == self.taught

    def state(self) -> dict[str, list[Any]]:
        """What must outlive any container."""
        fields = {"classes": "name", "versions": "number", "sessions": "status"}
        answers = {path: self.stack.client.get(f"/{path}?limit=500").raise_for_status().json() for path in fields}
        return {path: [item[field] for item in answers[path]["items"]] for path, field in fields.items()}

    def _next_release(self) -> str:
        """The same image with one migration more, as a later release would have."""
        look = "import migrations; from migrations import schema; print(migrations.__path__[0], schema.head())"
        place, head = run("docker", "run", "--rm", "--entrypoint", "python", self.stack.image, "-c", look).split()
        folder = self.stack.folder / "next"
        folder.mkdir()
        (folder / "rolled.py").write_text(MIGRATION.format(head=head))
        label = "LABEL org.opencontainers.image.version=next"
        (folder / "Dockerfile").write_text(f"FROM {self.stack.image}\nCOPY rolled.py {place}/versions/\n{label}\n")
        self.stack.image = f"{self.stack.project}:next"
        run("docker", "build", "--quiet", "--tag", self.stack.image, str(folder))
        return f"schema {head} becomes 'rolled'"


def expect(holds: bool, hoped: str) -> None:
    if not holds:
        raise Failed(f"it is not so that {hoped}")


def expect_exit(container: str, code: int) -> None:
    found = inspect(container)["State"]["ExitCode"]
    expect(found == code, f"{container} ends with {code}, but it ends with {found}")


def _restarted(container: str, *, since: int) -> bool:
    return int(inspect(container)["RestartCount"]) > since


def verdict(session: dict[str, Any]) -> str:
    expect(session["status"] == "succeeded", f"the session succeeds, but it is {session['status']}: {session['error']}")
    return f"{session['verdict']} in attempt {session['attempt']}"


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was made is removed then too
    began = time.monotonic()
    scale = " and ".join(f"{number} × {service}" for service, number in REPLICAS.items())
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder))
        print(f"project {stack.project} on port {stack.port}, with {scale}", flush=True)
        try:
            Proof(stack).everything()
        except Failed as failure:
            print(f"\nfailed: {failure}", file=sys.stderr)
            return 1
        finally:
            stack.remove()
    print(f"{time.monotonic() - began:7.1f} s  in all; the deployment holds", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
