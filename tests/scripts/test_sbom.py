"""SBOMs: valid CycloneDX, with every package of a lock file and its hashes, and of a finished image what it holds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from scripts.lock_images import FOLDER
from scripts.sbom import NAMES, Contents, contents, sbom

ROOT = Path(__file__).parents[2]
DEBIAN = Contents("debian-12", (("libstdc++6", "1:12.2.0-14+deb12u1", "amd64"),), "", {})


def of(document: dict) -> dict[str, dict]:
    return {component["name"]: component for component in document["components"]}


@pytest.fixture(scope="module")
def service() -> dict:
    """The SBOM of the service's image, from its lock file."""
    return sbom("service")


def test_every_image_with_a_lock_file_has_one() -> None:
    dockerfiles = {path.name.partition(".")[0] for path in (ROOT / "docker").glob("*.Dockerfile")}
    assert {name.partition("-")[0] for name in NAMES} == dockerfiles - {"proxy", "prometheus"}


def test_it_has_the_packages_that_the_image_installs_and_their_hashes(service: dict) -> None:
    lock = (FOLDER / "service.txt").read_text(encoding="utf-8")
    for name, component in of(service).items():
        assert f"{name}=={component['version']}" in lock
        (source,) = component["externalReferences"]
        assert source["hashes"]
        assert all(f"sha256:{row['content']}" in lock for row in source["hashes"])
        assert component["purl"] == component["bom-ref"] == f"pkg:pypi/{name}@{component['version']}"
    assert {"numpy", "uvicorn", "uvloop", "opentelemetry-sdk"} <= of(service).keys()
    assert "tzdata" not in of(service), "what is for another system is not in the image"
    assert service["metadata"]["component"]["name"] == "glow-service"


def test_it_is_valid_and_the_same_each_time(service: dict) -> None:
    validator = JsonStrictValidator(SchemaVersion.from_version(service["specVersion"]))
    for document in (service, sbom("proxy", DEBIAN)):
        assert validator.validate_str(json.dumps(document)) is None
    assert sbom("service") == service
    assert str(ROOT) not in json.dumps(service)


def test_of_a_finished_image_it_has_what_is_there(service: dict) -> None:
    packages = {name: row["version"] for name, row in of(service).items() if name != "hf-xet"}
    packages["async-timeout"] = "5.0.1"  # for Python before 3.11.3
    found = of(sbom("service", Contents(DEBIAN.system, DEBIAN.debian, "3.11.2", packages)))
    assert set(found) == {*packages, "libstdc++6", "python"}
    assert found["libstdc++6"]["purl"] == (
        "pkg:deb/debian/libstdc%2B%2B6@1%3A12.2.0-14%2Bdeb12u1?arch=amd64&distro=debian-12"
    )
    with pytest.raises(ValueError, match=r"the image service holds packages that service\.txt lacks: evil"):
        sbom("service", Contents("debian-12", (), "3.11.2", {**packages, "evil": "1.0"}))
    with pytest.raises(ValueError, match="numpy"):
        sbom("service", Contents("debian-12", (), "3.11.2", {**packages, "numpy": "0.1"}))


def test_what_is_installed_is_asked_in_the_place_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine stands in for a container; without dpkg it is one that cannot be asked."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if subprocess.run(["sh", "-c", "command -v dpkg-query"], capture_output=True, check=False).returncode:
        with pytest.raises(OSError, match="exit status"):
            contents(["sh", "-c"])
        return
    found = contents(["sh", "-c"])
    assert found.packages["numpy"]
    assert {"dpkg", "libc6"} <= {name for name, _, _ in found.debian}
    assert found.python == ".".join(map(str, sys.version_info[:3]))
