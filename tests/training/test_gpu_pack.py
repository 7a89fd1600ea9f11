"""The folder for a CUDA machine: what it holds, that it runs with torch alone, and that it stays small."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from glow.errors import ConfigError
from research.gpu.pack import pack
from research.gpu.standins import OPTIONAL

BARE = """
import sys
import research.gpu.standins as standins
standins.find_spec = lambda name: None  # as where none of them is installed
print(standins.stand_in())
sys.meta_path.insert(0, sys.meta_path.pop())  # before what is installed here
import glow.training, onnx
try:
    onnx.load("x")
except ImportError as error:
    print(error)
"""


@pytest.fixture
def packed(collection_folder: Path, bert_folder: Path, tmp_path: Path) -> Path:
    out = tmp_path / "gpu.zip"
    pack([collection_folder], bert_folder, out)
    with zipfile.ZipFile(out) as archive:
        archive.extractall(tmp_path / "there")
    return tmp_path / "there"


def test_the_folder_holds_code_data_weights_and_packages(packed: Path, collection_folder: Path) -> None:
    for part in (
        "glow/nn/towers.py",
        "research/gpu/__main__.py",
        "configs/grid.toml",
        "tests/gpu/test_training.py",
    ):
        assert (packed / part).is_file()
    assert (packed / "site" / "accelerate").is_dir()
    assert (packed / "data/toy/corpus.jsonl").read_bytes() == (
        collection_folder / "corpus.jsonl"
    ).read_bytes()
    assert json.loads((packed / "init/config.json").read_text())["num_hidden_layers"] == 2


def test_training_starts_from_the_folder_alone(packed: Path) -> None:
    """In a process of its own, from the folder alone, as on the machine that it is made for."""
    call = [
        sys.executable,
        "-m",
        "research.gpu",
        "train",
        "--folder",
        ".",
        "--out",
        "out",
        "--precision",
        "fp32",
    ]
    config = packed / "init" / "config.json"
    shape = json.loads(config.read_text())
    assert shape["hidden_size"] == 16
    # The recipe takes layers 0, 4 and 5, which the toy encoder does not have: it says so and leaves nothing half made.
    done = subprocess.run([*call, "--steps", "4"], cwd=packed, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "no encoder.layer.4" in done.stderr
    assert not (packed / "out").exists()


def test_a_folder_that_is_too_large_is_refused_with_the_size_of_its_parts(
    collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"more than 0 MiB: glow .* data .* site .*leave a data folder out"):
        pack([collection_folder], bert_folder, tmp_path / "gpu.zip", max_bytes=1000)
    assert not (tmp_path / "gpu.zip").exists()


def test_what_is_missing_can_be_imported_and_says_its_name_when_it_is_called() -> None:
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(list(OPTIONAL)), "onnx is not installed here"]
