"""The container engine as the check of `docker-compose.yml` uses it: one project of its own, from a fresh clone."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from scripts.pin_images import images

__all__ = ["Project", "engine_answers", "free_port", "out_of_reach", "run", "sizes_mb"]

ROOT = Path(__file__).parents[2]
NAME = "glow-compose-up"
IMAGES = ("service", "builder", "proxy")


def run(*command: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command; its output is kept, whatever its exit status."""
    environment = os.environ | variables
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def engine_answers() -> bool:
    """Whether there is an engine, and compose v2."""
    asked = (("docker", "info"), ("docker", "compose", "version"))
    return shutil.which("docker") is not None and all(run(*command).returncode == 0 for command in asked)


def out_of_reach(images: tuple[str, ...]) -> list[str]:
    """Those of the images that are not here and cannot be pulled."""
    commands = (("docker", "image", "inspect"), ("docker", "pull", "--quiet"))
    return [image for image in images if all(run(*command, image).returncode for command in commands)]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Project:
    """A clone of HEAD, what compose makes of it, and the port where its proxy answers; the job finds `input` at /input."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix=NAME))
        self._place.chmod(0o755)  # the containers' user reads it, too
        self.folder, self.input, self.port = self._place / "glow", self._place / "input", free_port()
        self.input.mkdir(mode=0o755)
        done = run("git", "clone", "--quiet", str(ROOT), str(self.folder))
        if done.returncode != 0:
            raise RuntimeError(f"the checkout cannot be cloned: {done.stderr}")
        self._variables = {
            "COMPOSE_PROJECT_NAME": NAME,
            "PORT": str(self.port),
            "INPUT_FOLDER": str(self.input),
            # By their tags: what stands in for a base image here has no digest of a registry.
            **{name: image.partition("@")[0] for name, image in images().items()},
            **{f"{image.upper()}_IMAGE": self.image(image) for image in IMAGES},
        }

    def image(self, name: str) -> str:
        """The name of one of our images here, so that nobody's own is replaced."""
        return f"glow-{name}:compose-up"

    def compose(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`docker compose …` in the clone."""
        return run("docker", "compose", *arguments, folder=self.folder, **self._variables)

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """A line of a shell in the clone."""
        return run("bash", "-c", line, folder=self.folder, **self._variables)

    def container(self, service: str) -> str:
        """The id of a service's container, running or not."""
        return self.compose("ps", "--all", "--quiet", service).stdout.strip()

    def inside(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in the container of a service."""
        return run("docker", "exec", self.container(service), *command)

    def remove(self) -> None:
        """Removes containers, volumes and the clone; images stay, for the next time."""
        self.compose("--profile", "*", "down", "--volumes", "--remove-orphans")
        shutil.rmtree(self._place, ignore_errors=True)


def sizes_mb(image: str) -> tuple[float, float]:
    """Megabytes of an image, unpacked and as a gzipped archive."""
    unpacked = int(run("docker", "image", "inspect", "--format", "{{.Size}}", image).stdout)
    packed = run("bash", "-c", f"set -o pipefail; docker save {image} | gzip -6 | wc -c")
    if packed.returncode != 0 or not re.fullmatch(r"\d+\s*", packed.stdout):
        raise RuntimeError(f"{image} cannot be saved: {packed.stderr}")
    return unpacked / 1e6, int(packed.stdout) / 1e6
