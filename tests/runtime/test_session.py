"""The device that was asked for, or an error; a model that can be read, or an error."""

import os
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

from glow.errors import DeviceError, FormatError
from glow.runtime import open_session

ROOT = Path(__file__).parents[2]
HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


@pytest.mark.skipif(HAS_CUDA, reason="this onnxruntime offers CUDA, so its absence cannot be shown here")
def test_cuda_is_refused_where_there_is_none(toy_model: Path) -> None:
    """Never a silent fall-back to the CPU; the message says what there is and what to do."""
    with pytest.raises(
        DeviceError, match=r"'cuda' needs CUDAExecutionProvider.*CPUExecution.*docs/install\.md"
    ):
        open_session(toy_model / "query.onnx", "cuda")


def test_cpu_is_cpu(toy_model: Path) -> None:
    assert open_session(toy_model / "query.onnx", "cpu", threads=2).get_providers() == [
        "CPUExecutionProvider"
    ]


@pytest.mark.parametrize("content", [None, b"", b"no model", b"\x08\x08garbage" * 100], ids=ascii)
def test_a_file_that_is_no_model_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "query.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FormatError, match=r"cannot open query\.onnx on cpu"):
        open_session(path)


def test_a_truncated_model_is_refused(toy_model: Path, tmp_path: Path) -> None:
    whole = (toy_model / "query.onnx").read_bytes()
    (tmp_path / "query.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError):
        open_session(tmp_path / "query.onnx")


def test_a_model_without_its_word_table_is_refused(toy_model: Path, tmp_path: Path) -> None:
    """The token embeddings of both towers are in a separate file."""
    (tmp_path / "query.onnx").write_bytes((toy_model / "query.onnx").read_bytes())
    with pytest.raises(FormatError):
        open_session(tmp_path / "query.onnx")


def test_onnx_runtime_tells_nobody_and_leaves_nothing_behind(toy_model: Path, tmp_path: Path) -> None:
    """It would keep the machine's number below HOME and send events, unless told not to before it is loaded."""
    code = f"""
import os
import subprocess
import sys
from pathlib import Path
from glow.runtime import Model
model = Model.open(Path({str(toy_model)!r}))
model.encoder("query").encode([model.preprocessor.query("bees")])
import os
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
"""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=ROOT, env=environment | {"HOME": str(tmp_path)}, check=True)
    assert not list(tmp_path.rglob("*"))
