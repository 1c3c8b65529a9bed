"""The first steps: secrets, build, start, isolation, learning and large requests."""

import io
from pathlib import Path

import httpx
from PIL import Image

from tests.compose.scenario import Scenario, expect
from tests.compose.stack import SERVICES, Failed, inspect, run

BENCHMARK_PACKAGES = "bench", "matplotlib"
LIST_PACKAGES = f"from importlib.util import find_spec; print([n for n in {BENCHMARK_PACKAGES} if find_spec(n)])"


def refuse_without_secrets(scenario: Scenario) -> None:
    with scenario.step("without .env it refuses to start and says what to do") as facts:
        try:
            scenario.stack.compose("config", "--quiet", env_file=Path("/dev/null"))
        except Failed as refusal:
            expect("run make compose-env" in str(refusal), f"the message should name the command, not be {refusal}")
            facts.append(str(refusal).strip().splitlines()[-1])
        else:
            raise Failed("it starts without a password")


def start(scenario: Scenario) -> None:
    stack = scenario.stack
    with scenario.step("the image is built, without benchmarks") as facts:
        stack.compose("build", "--quiet")
        size = int(run("docker", "image", "inspect", "--format", "{{.Size}}", stack.image))
        facts.append(f"{size / 1e9:.2f} GB")
        found = run("docker", "run", "--rm", "--entrypoint", "python", stack.image, "-c", LIST_PACKAGES).strip()
        expect(found == "[]", f"the image contains {found}")
    with scenario.step("all services are up and healthy", *SERVICES) as facts:
        stack.up()
        facts.append(", ".join(f"{len(stack.containers(name))} {name}" for name in SERVICES))
    with scenario.step("a request without the key is refused, one with it is answered", "api", "proxy"):
        without = httpx.get(f"{stack.client.base_url}/classes").status_code
        expect(without == 401, f"a request without a key should give 401, not {without}")
        status = stack.client.get("/classes").status_code
        expect(status == 200, f"a request with the key should give 200, not {status}")


def contain(scenario: Scenario) -> None:
    with scenario.step("no container runs as root, writes to its image or has a capability", *SERVICES):
        for service in SERVICES:
            for container in scenario.stack.containers(service):
                found = inspect(container)
                host = found["HostConfig"]
                expect(found["Config"]["User"] not in {"", "root", "0"}, f"{container} runs as root")
                expect(host["ReadonlyRootfs"], f"{container} has a writable root file system")
                expect(host["CapDrop"] == ["ALL"] and not host["CapAdd"], f"{container} has capabilities")
                expect("no-new-privileges:true" in host["SecurityOpt"], f"{container} can gain privileges")
                expect(host["Memory"] > 0, f"{container} has no memory limit")


def learn(scenario: Scenario) -> None:
    with scenario.step("four classes are taught and known to every replica", "api", "postgres"):
        for _ in range(4):
            session = scenario.teach_next()
        scenario.require_all_known()
    with scenario.step("their session is watched through the proxy until it ends", "worker", "api") as facts:
        events = scenario.events(session)
        expect(events[-1:] == ["succeeded"], f"the last event should be 'succeeded', but the events are {events}")
        facts.append(f"{len(events)} events; {scenario.finish_session(session)}")
        scenario.require_all_known()


def take_large_bodies(scenario: Scenario) -> None:
    with scenario.step("an image of 24 MB is answered, a body of more than 100 MB gives 413", "api", "proxy"):
        noise = io.BytesIO()
        Image.effect_noise((2850, 2850), 90).convert("RGB").save(noise, "BMP")
        for body, status in ((noise.getvalue(), 200), (bytes(101 * 1024 * 1024), 413)):
            answer = scenario.stack.client.post("/predict", files=[("images", body)])
            expect(answer.status_code == status, f"{len(body)} bytes should give {status}, not {answer.status_code}")
