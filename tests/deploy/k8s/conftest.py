"""The manifests as a cluster would get them: the base as its files say, overlays as kustomize makes them."""

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
    """All documents of one base or overlay, with questions that many tests ask."""

    def of(self, *kinds: str) -> list[Document]:
        """The documents of some kinds."""
        return [each for each in self if each["kind"] in kinds]

    def get(self, kind: str, name: str) -> Document:
        """The only document of a kind and a name."""
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
        """What a container finds in its environment."""
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            if "configMapRef" in source:
                found |= self.get("ConfigMap", source["configMapRef"]["name"])["data"]
            else:
                secret = self.get("Secret", source["secretRef"]["name"])
                # kustomize writes base64 of what the file says; here the names alone count, and empty values
                found |= dict.fromkeys(secret["data"], "")
        return found | {each["name"]: each.get("value", "") for each in container.get("env", ())}


def shown() -> list[str]:
    """The manifests that docs/kubernetes.md shows."""
    return re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def shown_overlays() -> dict[str, str]:
    """The overlays among them, by the component that they take."""
    return {
        Path(component).name: text
        for text, document in ((text, yaml.safe_load(text)) for text in shown())
        if document["kind"] == "Kustomization"
        for component in document["components"]
    }


def read(path: Path) -> list[Document]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def read_env(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def base() -> System:
    """What the base's files say, with the generators' documents and the images' tags put in by hand."""
    folder = K8S / "base"
    (kustomization,) = read(folder / "kustomization.yaml")
    found = System(each for name in kustomization["resources"] for each in read(folder / name))
    for kind, rows in (("ConfigMap", "configMapGenerator"), ("Secret", "secretGenerator")):
        for row in kustomization[rows]:
            data = {key: value for name in row["envs"] for key, value in read_env(folder / name).items()}
            found.append({"apiVersion": "v1", "kind": kind, "metadata": {"name": row["name"]}, "data": data})
    tags = {row["name"]: f":{row['newTag']}" for row in kustomization["images"]}
    for container, _ in found.containers():
        container["image"] += tags.get(container["image"], "")
    return found


def kustomize() -> list[str] | None:
    """The command that builds a folder, where there is one; kubectl of before 2022 has a kustomize too old."""
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
    scope="session",
    params=["base", *OVERLAYS, *(f"docs: {name}" for name in COMPONENTS), "gpu with a query log"],
)
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> System:
    """One base, overlay or example of the page after the other."""
    if request.param == "base":
        return base()
    if request.param in OVERLAYS:
        return build(K8S / "overlays" / request.param)
    text = shown_overlays()[request.param.removeprefix("docs: ")] if "docs: " in request.param else GPU_LOG
    return build_own(text, tmp_path_factory.mktemp("overlay"))
