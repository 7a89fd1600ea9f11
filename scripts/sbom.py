"""CycloneDX SBOMs of the images: their packages with versions and hashes.

    make sbom                                               Python packages, from the lock files
    python -m scripts.sbom --image service=glow-service:0.1.0   of a finished image, including Debian packages

Writes `dist/sbom/glow-NAME.cdx.json` for each image of `docker/`. A lock file lists the Python packages. Only a finished
image has a list of its Debian packages, which `docker run` reads.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from glow import __version__
from scripts.lock_images import FOLDER, LOCKS

ROOT = Path(__file__).parent.parent
NAMES = tuple(name for name in LOCKS if name not in ("dev", "serve"))
"""Images with a lock file; proxy and prometheus have only Debian packages."""
_ASK = """
. /etc/os-release && echo "os $ID-$VERSION_ID"
dpkg-query --show --showformat 'deb ${Package} ${Version} ${Architecture}\\n'
command -v python >/dev/null || exit 0
python - <<'END'
import importlib.metadata as metadata, platform
print("python", platform.python_version())
for found in metadata.distributions():
    print("pypi", found.name, found.version)
END
"""
"""Shell program for the image: prints a line for each installed package."""
_PLACE = {"sys_platform": "linux", "platform_system": "Linux"}
_PYTHON = "3.11.7"
"""Assumed for an image that was not inspected; some packages are only for early releases of 3.11."""


@dataclass(frozen=True)
class Contents:
    """The contents of an image."""

    system: str  # Debian's release, such as `debian-12`
    debian: tuple[tuple[str, str, str], ...]  # name, version and architecture of each Debian package
    python: str  # version of Python; empty without one
    packages: dict[str, str]  # normalized name -> version of each Python package


def contents(shell: Sequence[str]) -> Contents:
    """Lists the packages of an image, or of this machine."""
    done = subprocess.run([*shell, _ASK], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(shell)}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    rows = [line.split(" ") for line in done.stdout.splitlines()]
    of = {kind: [row[1:] for row in rows if row[0] == kind] for kind in ("os", "deb", "python", "pypi")}
    return Contents(
        system=of["os"][0][0],
        debian=tuple((name, version, architecture) for name, version, architecture in of["deb"]),
        python=of["python"][0][0] if of["python"] else "",
        packages={canonicalize_name(name): version for name, version in of["pypi"]},
    )


def sbom(name: str, held: Contents | None = None) -> dict[str, Any]:
    """The bill of materials of one image."""
    locked = (FOLDER / f"{name}.txt").read_text(encoding="utf-8") if name in NAMES else ""
    document = _of_lock(locked, held.python if held and held.python else _PYTHON)
    components = document.setdefault("components", [])
    for component in components:  # the references are meaningless line numbers
        component["bom-ref"] = component["purl"]
        component.pop("description", None)
    if held is not None:
        found: dict[str, Any] = {canonicalize_name(each["name"]): each for each in components}
        listed = {package: each["version"] for package, each in found.items()}
        if unknown := sorted(each for each, version in held.packages.items() if listed.get(each) != version):
            raise ValueError(f"the image {name} holds packages that {name}.txt lacks: {', '.join(unknown)}")
        components[:] = [found[package] for package in sorted(held.packages)]
        components += [_debian(held.system, *row) for row in held.debian]
        if held.python:
            components.append(_component("python", held.python, f"pkg:generic/python@{held.python}"))
    document["dependencies"] = [{"ref": component["bom-ref"]} for component in components]
    document["metadata"]["component"] = _component(
        f"glow-{name}", __version__, f"pkg:generic/glow-{name}@{__version__}"
    ) | {"type": "container"}
    return document


def _of_lock(text: str, python: str) -> dict[str, Any]:
    """The output of cyclonedx-py for the lines of a lock file that apply to Linux with this version of Python."""
    place = {**_PLACE, "python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    kept = []
    for block in re.split(r"(?m)^(?=[a-zA-Z0-9])", re.sub(r"(?m)^#.*\n", "", text)):
        requirement, _, hashes = block.partition(" \\\n")
        pinned, _, marker = requirement.partition(" ; ")
        if not marker or Marker(marker).evaluate(place):
            kept.append(f"{pinned} \\\n{hashes}")
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible", "--no-validate"]
    command.append("-")
    done = subprocess.run(command, input="".join(kept), capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _debian(system: str, name: str, version: str, architecture: str) -> dict[str, Any]:
    package = f"{quote(name, safe='')}@{quote(version, safe='')}"
    return _component(name, version, f"pkg:deb/debian/{package}?arch={architecture}&distro={quote(system)}")


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def main() -> None:
    """Writes the SBOMs."""
    parser = argparse.ArgumentParser(prog="python -m scripts.sbom", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "sbom", help="folder to write")
    parser.add_argument("--image", action="append", default=[], metavar="NAME=REFERENCE", help="repeatable")
    options = parser.parse_args()
    asked = dict(item.split("=", 1) for item in options.image)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in asked or NAMES:
        held = None
        if name in asked:
            run = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "sh", asked[name], "-c"]
            held = contents(run)
        path = options.out / f"glow-{name}.cdx.json"
        path.write_text(json.dumps(sbom(name, held), indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
