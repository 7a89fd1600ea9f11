"""Settings from files: the order of precedence, secrets of their own files, and what is no setting."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from glow.errors import ConfigError
from glow_service.commands.files import read_files
from glow_service.settings import settings_table
from tests.attacks.harness import ROOT
from tests.ports import free_port

KEY = "a-key-of-somebody"


def test_files_are_read_behind_variables_and_flags(toy_index: Path, tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "glow.toml"
    config.write_text(
        f'index_root = "{toy_index}"\nport = 1\nmax_top_k = 7\ndefault_timeout_ms = 900\nworkers = 1\n'
    )
    secret = tmp_path / "keys"
    secret.write_text(f"ann:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GLOW_")}
    environment |= {"GLOW_CONFIG": str(config), "GLOW_API_KEYS_FILE": str(secret), "GLOW_MAX_TOP_K": "9"}
    command = [sys.executable, "-m", "glow", "serve", "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as process:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", transport=httpx.HTTPTransport(retries=20)
        ) as client:
            while True:
                try:
                    if client.get("/readyz").status_code == 200:
                        break
                except httpx.HTTPError:
                    assert process.poll() is None
            assert client.get("/info").status_code == 401
            settings = client.get("/info", headers={"X-API-Key": KEY}).json()["settings"]
        process.terminate()
    assert (settings["port"], settings["max_top_k"], settings["default_timeout_ms"]) == (port, 9, 900)


@pytest.mark.parametrize(
    ("text", "said"),
    [("prot = 1", "has unknown settings: prot"), ("port = ", "cannot read"), (None, "cannot read")],
)
def test_a_file_that_is_none_ends_the_start(text: str | None, said: str, tmp_path: Path) -> None:
    config = tmp_path / "glow.toml"
    if text is not None:
        config.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_files(config, settings_table())
    command = [sys.executable, "-m", "glow", "serve", "--index-root", "x", "--config", str(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and said in done.stderr


def test_a_secret_whose_file_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="GLOW_ADMIN_KEY_FILE: cannot read"):
        read_files(None, settings_table(), {"GLOW_ADMIN_KEY_FILE": str(tmp_path / "no")})
    assert read_files(None, settings_table(), {"GLOW_PORT_FILE": str(tmp_path / "no")}) == {}  # no secret
