"""Pins the base images: gets their digests from the registry, and writes them wherever an image is named.

    python -m scripts.pin_images            get and write the digests (needs docker buildx and the registry)
    python -m scripts.pin_images --check    exit with status 1 if an image has no digest, or two places differ

`docker/images.env` lists the images. A tag can move; a digest always names the same image.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = Path("docker/images.env")
NAMED_IN = ("docker/*.Dockerfile", "docker-compose*.yml", "k8s/**/*.yaml")
"""Files that may name a base image."""
DIGEST = r"@sha256:[0-9a-f]{64}"


def images(root: Path = ROOT) -> dict[str, str]:
    """Variable of the compose file and Dockerfiles -> `name:tag`, with `@sha256:…` if it is pinned."""
    lines = (root / LIST).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def _pattern(image: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w/.])(?<![\w/.]-){re.escape(image)}(?![\w.-])(?:@[\w:]*)?")


def _files(root: Path) -> list[Path]:
    return [root / LIST, *sorted(path for pattern in NAMED_IN for path in root.glob(pattern))]


def registry_digest(image: str) -> str:
    """Asks the registry for the present digest of a tag, which covers all platforms: `sha256:…`."""
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = done.stdout.strip()
    if done.returncode != 0 or not re.fullmatch(DIGEST[1:], found):
        raise OSError(f"{image}: the registry gave no digest ({done.stderr.strip() or found or 'no output'})")
    return found


def pin(root: Path = ROOT, ask: Callable[[str], str] = registry_digest) -> dict[str, str]:
    """Writes the digests of all base images after all are known."""
    tags = [image.partition("@")[0] for image in images(root).values()]
    pinned = {tag: f"{tag}@{ask(tag)}" for tag in tags}
    for path in _files(root):
        text = path.read_text(encoding="utf-8")
        for tag, image in pinned.items():
            text = _pattern(tag).sub(image, text)
        path.write_text(text, encoding="utf-8")
    return images(root)


def faults(root: Path = ROOT, *, release: bool) -> list[str]:
    """Finds faults of the base images."""
    listed = images(root)
    found = [
        f"{LIST}: {image} has no digest, and a release needs one: python -m scripts.pin_images"
        for image in listed.values()
        if release and not re.search(DIGEST + "$", image)
    ]
    for path in _files(root):
        text = path.read_text(encoding="utf-8")
        for image in listed.values():
            named = set(_pattern(image.partition("@")[0]).findall(text)) - {image}
            found += [f"{path.relative_to(root)}: {other}, but {LIST} has {image}" for other in sorted(named)]
    return found


def main() -> None:
    """Pins the base images, or checks them."""
    parser = argparse.ArgumentParser(prog="python -m scripts.pin_images", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only check; status 1 if one has no digest")
    if parser.parse_args().check:
        lines = faults(release=True)
        sys.stderr.writelines(f"{line}\n" for line in lines)
        sys.exit(1 if lines else 0)
    try:
        sys.stdout.writelines(f"{image}\n" for image in pin().values())
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
