"""Steps in which a container is killed, stopped or crashes, while clients go on predicting."""

import contextlib
import time
from functools import partial

from tests.compose.drawn_figures import NAMES, shots
from tests.compose.scenario import Scenario, expect, expect_exit
from tests.compose.stack import Failed, eventually, inspect, run


def kill_replica(scenario: Scenario, replica: str) -> None:
    with scenario.step(f"{replica} is killed while clients predict and teach", "api", "proxy") as facts:
        with scenario.clients() as clients:
            answered = clients.answers.total()
            scenario.stack.kill(replica)
            scenario.teach_next()
            eventually(lambda: clients.answers.total() >= answered + 60, "60 more predictions were answered")
        facts.append(clients.require_all_answered())
        scenario.require_all_known(without=replica)
        scenario.stack.start(replica)
        scenario.require_all_known()


def stop_replica(scenario: Scenario) -> None:
    replica = scenario.stack.containers("api")[0]
    with scenario.step(f"{replica} is stopped while clients predict", "api", "proxy") as facts:
        with scenario.clients() as clients:
            run("docker", "stop", "--time", "45", replica)
            answered = clients.answers.total()
            eventually(lambda: clients.answers.total() >= answered + 30, "30 more predictions were answered")
        facts.append(clients.require_all_answered())
        expect_exit(replica, 0)
        scenario.stack.start(replica)
        scenario.require_all_known()


def crash(scenario: Scenario, container: str) -> None:
    """From inside, like a bug or the kernel: Docker restarts the container, which it does not after `docker kill`."""
    with scenario.step(f"{container} crashes and is restarted by Docker", "api", "worker"):
        before = inspect(container)["RestartCount"]
        with contextlib.suppress(Failed):  # the shell that runs it is killed too
            run("docker", "exec", container, "sh", "-c", "kill -KILL -1")
        eventually(partial(_has_restarted, container, since=before), f"{container} is restarted")
        scenario.stack.wait_until_healthy(container)
        scenario.require_all_known()


def kill_redis(scenario: Scenario) -> None:
    (redis,) = scenario.stack.containers("redis")
    with scenario.step("redis is killed; a class is taught and its session runs", "api", "worker") as facts:
        with scenario.clients() as clients:
            scenario.stack.kill(redis)
            facts.append(scenario.finish_session(scenario.teach_next()))
        facts.append(clients.require_all_answered())
        scenario.stack.start(redis)
        scenario.require_all_known()


def kill_worker(scenario: Scenario, worker: str) -> None:
    with scenario.step(f"{worker} is killed while a session runs; the session is finished", "worker") as facts:
        session = scenario.start_session()
        scenario.stack.kill(worker)
        facts.append(scenario.finish_session(session))
        scenario.stack.start(worker)
        scenario.require_all_known()


def stop_workers(scenario: Scenario) -> None:
    """All of them, because only one runs the session."""
    with scenario.step("the workers are stopped while a session runs, and release it", "worker") as facts:
        session = scenario.start_session()
        began = time.monotonic()
        workers = scenario.stack.containers("worker")
        run("docker", "stop", "--time", "60", *workers)
        facts.append(f"{time.monotonic() - began:.1f} s to stop")
        for worker in workers:
            expect_exit(worker, 0)
        for worker in workers:
            scenario.stack.start(worker)
        facts.append(scenario.finish_session(session))
        events = scenario.events(session)
        expect("released" in events, f"the session should have been released, but its events are {events}")
        scenario.require_all_known()


def kill_database(scenario: Scenario) -> None:
    (postgres,) = scenario.stack.containers("postgres")
    with scenario.step("postgres is killed; predictions continue, teaching gives 503", "api", "postgres") as facts:
        with scenario.clients() as clients:
            scenario.stack.kill(postgres)
            name = NAMES[len(scenario.taught)]
            answer = scenario.stack.client.post("/classes", data={"name": name}, files=shots(name))
            expect(answer.status_code == 503, f"teaching should give 503, not {answer.status_code}")
            scenario.require_all_known()
            scenario.stack.start(postgres)
        facts.append(clients.require_all_answered())
    with scenario.step("with postgres back, a class is taught and its session runs", "api", "worker") as facts:
        facts.append(scenario.finish_session(scenario.teach_next()))
        scenario.require_all_known()


def kill_proxy(scenario: Scenario) -> None:
    (proxy,) = scenario.stack.containers("proxy")
    with scenario.step("the proxy is killed and started again", "proxy"):
        scenario.stack.kill(proxy)
        scenario.require_all_known()
        scenario.stack.start(proxy)
        status = scenario.stack.client.get("/classes").status_code
        expect(status == 200, f"the proxy should answer 200 again, not {status}")


def _has_restarted(container: str, *, since: int) -> bool:
    return int(inspect(container)["RestartCount"]) > since
