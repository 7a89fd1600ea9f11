"""The manifests as a cluster would get them from kustomize: overlays, and examples of the page."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

K8S = Path(__file__).parents[3] / "k8s"
PAGE = K8S.parent / "docs" / "kubernetes.md"
OVERLAYS = ("cpu", "gpu", "dev")
COMPONENTS = ("monitoring", "query-log", "writes", "milvus")
GPU_LOG = """
kind: Kustomization
resources: [../glow/k8s/overlays/gpu]
components: [../glow/k8s/components/query-log]
"""
Document = dict[str, Any]


class System(list[Document]):
    """All documents of one overlay, with questions that many tests ask."""

    def of(self, *kinds: str) -> list[Document]:
        return [each for each in self if each["kind"] in kinds]

    def get(self, kind: str, name: str) -> Document:
        (found,) = (each for each in self.of(kind) if each["metadata"]["name"] == name)
        return found

    def templates(self) -> dict[str, Document]:
        """Pod templates by the kind and name of what makes them."""
        found = {
            f"{each['kind']} {each['metadata']['name']}": each["spec"]["template"]
            for each in self.of("Deployment", "Job")
        }
        for each in self.of("CronJob"):
            found[f"CronJob {each['metadata']['name']}"] = each["spec"]["jobTemplate"]["spec"]["template"]
        return found

    def containers(self) -> Iterator[tuple[Document, Document]]:
        """Every container, those that run first included, with the spec of its pod."""
        for template in self.templates().values():
            spec = template["spec"]
            for container in (*spec.get("initContainers", ()), *spec["containers"]):
                yield container, spec

    def environment(self, container: Document) -> dict[str, str]:
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            if "configMapRef" in source:
                found |= self.get("ConfigMap", source["configMapRef"]["name"])["data"]
            else:
                secret = self.get("Secret", source["secretRef"]["name"])
                # kustomize writes base64 of what the file says; here the names alone count, and empty values
                found |= dict.fromkeys(secret["data"], "")
        return found | {each["name"]: each.get("value", "") for each in container.get("env", ())}


def shown() -> dict[str, str]:
    """The manifests that docs/kubernetes.md shows, by the component that they take, otherwise by their kind."""
    found = {}
    for text in re.findall(
        r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        document = yaml.safe_load(text)
        found |= {Path(each).name: text for each in document.get("components", [document["kind"]])}
    return found


def read(path: Path) -> list[Document]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def kustomize() -> list[str] | None:
    """The command that builds a folder; kubectl of before 2022 has a kustomize too old."""
    if found := shutil.which("kustomize"):
        return [found, "build"]
    if found := shutil.which("kubectl"):
        asked = subprocess.run([found, "version", "--client", "-o", "json"], capture_output=True, check=False)
        if asked.returncode == 0 and "kustomizeVersion" in json.loads(asked.stdout):
            return [found, "kustomize"]
    return None


def build(folder: Path) -> System:
    command = kustomize()
    if command is None:
        pytest.skip("neither kustomize (see `fetch-kustomize`) nor a current kubectl: overlays are not built")
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return System(yaml.safe_load_all(done.stdout))


def build_own(text: str, folder: Path) -> System:
    """An overlay in the place that the page's are written for: beside a checkout `glow`, with a file of keys."""
    (folder / "glow").symlink_to(K8S.parent)
    own = folder / "own"
    own.mkdir()
    (own / "kustomization.yaml").write_text(text, encoding="utf-8")
    shutil.copy(K8S / "base" / "keys.env", own)
    return build(own)


@pytest.fixture(
    scope="session", params=[*OVERLAYS, *(f"docs: {name}" for name in COMPONENTS), "gpu with a query log"]
)
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> System:
    """One overlay or example of the page after the other."""
    if request.param in OVERLAYS:
        return build(K8S / "overlays" / request.param)
    text = shown()[request.param.removeprefix("docs: ")] if "docs: " in request.param else GPU_LOG
    return build_own(text, tmp_path_factory.mktemp("overlay"))


def only(name: str) -> pytest.MarkDecorator:
    """For tests of one overlay or example."""
    return pytest.mark.parametrize("system", [name], indirect=True, scope="session")
