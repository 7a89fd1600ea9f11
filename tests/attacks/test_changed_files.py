"""Files that settings name, changed under a running service: workers that are started again go on with what the others have."""

import hashlib
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.attacks.harness import Service, serving, until

KEYS = {name: f"{name:k<43}" for name in ("ann", "bob")}
TENANTS = '[ann]\ncollections = ["default"]\n[bob]\ncollections = ["default"]\nfilter = {field = "lang", eq = "none"}\n'


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A file of keys, as an engine mounts secrets, and one of tenants."""
    keys, tenants = tmp_path / "api_keys", tmp_path / "tenants.toml"
    keys.write_text(
        ",".join(f"{name}:{hashlib.sha256(key.encode()).hexdigest()}" for name, key in KEYS.items())
    )
    tenants.write_text(TENANTS)
    return keys, tenants


def replies(service: Service) -> dict[str, set[tuple[int, int]]]:
    """For each key, status and hits over enough connections to meet every worker."""
    found = {}
    for name, key in KEYS.items():
        answers = [
            httpx.post(
                f"{service.url}/search", json={"query": "bees"}, headers={"X-API-Key": key}, timeout=60
            )
            for _ in range(16)
        ]
        found[name] = {(each.status_code, len(each.json().get("hits", ()))) for each in answers}
    return found


def test_keys_and_tenants_are_those_of_the_start(
    files: tuple[Path, Path], toy_index: Path, tmp_path: Path
) -> None:
    keys, tenants = files
    config = tmp_path / "glow.toml"
    config.write_text(f'api_keys = "{keys.read_text()}"\ntenants = "{tenants}"\nworkers = 2\n')
    with serving(toy_index, "--config", str(config)) as service:
        before = replies(service)
        assert {status for each in before.values() for status, _ in each} == {200}
        config.unlink()
        tenants.write_text("[nobody]\n")
        for pid in service.workers():
            os.kill(pid, signal.SIGKILL)
            assert until(lambda pid=pid: pid not in service.workers() and len(service.workers()) == 2, 60)
        assert until(lambda: httpx.get(f"{service.url}/readyz", timeout=60).status_code == 200, 60)
        assert replies(service) == before
