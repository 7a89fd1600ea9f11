"""The component writes: replicas and the pod that applies share the log, and nobody but that pod writes the index."""

from typing import Any

import pytest
import typer

from glow.cli import app
from glow_service.settings import Settings

pytestmark = pytest.mark.parametrize("system", ["docs: writes"], indirect=True, scope="session")


def mounts(container: Any) -> dict[str, tuple[str, bool]]:
    """Volume -> where it is mounted, and whether to be written."""
    return {each["name"]: (each["mountPath"], not each.get("readOnly")) for each in container["volumeMounts"]}


def test_replicas_write_the_log_and_one_pod_applies_it(system: Any) -> None:
    (service,) = system.templates()["Deployment glow"]["spec"]["containers"]
    deployment = system.get("Deployment", "glow-ingest")["spec"]
    (ingest,) = deployment["template"]["spec"]["containers"]
    folder = mounts(service)["ingest"][0]
    assert mounts(service)["ingest"] == mounts(ingest)["ingest"] == (folder, True)
    assert (mounts(service)["index"][1], mounts(ingest)["index"][1]) == (False, True)
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    environment = system.environment(service)
    assert "GLOW_WRITE_KEY" in environment
    values = {name: environment[name] for name in ("GLOW_INDEX_ROOT", "GLOW_INGEST_FOLDER")}
    assert str(Settings.from_environment(values).ingest_path) == folder
    commands: Any = typer.main.get_command(app)
    for command in (ingest["command"], ingest["livenessProbe"]["exec"]["command"]):
        words = command[command.index("ingest") + 1 :]
        options = commands.get_command(None, "ingest").make_context("ingest", list(words)).params
        assert str(options["index_root"]) == environment["GLOW_INDEX_ROOT"]
        assert str(options["ingest_folder"]) == folder


def test_it_has_the_image_and_the_rights_of_the_rebuild(system: Any) -> None:
    (ingest,) = system.templates()["Deployment glow-ingest"]["spec"]["containers"]
    (rebuild,) = system.templates()["CronJob glow-rebuild"]["spec"]["containers"]
    assert ingest["image"] == rebuild["image"]
    assert ingest["securityContext"] == rebuild["securityContext"]
    assert {
        each["persistentVolumeClaim"]["claimName"]
        for each in system.templates()["Deployment glow-ingest"]["spec"]["volumes"]
        if "persistentVolumeClaim" in each
    } <= {each["metadata"]["name"] for each in system.of("PersistentVolumeClaim")}
