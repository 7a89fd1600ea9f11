"""Profiles a serving process with py-spy (`pip install py-spy`): samples of all its threads."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

__all__ = ["Profile", "Sampler"]

RATE_HZ = 200
# A sample belongs to the first row with a word in the innermost frame that matches any row.
PARTS = (
    ("query tower (onnxruntime)", ("onnxruntime",)),
    ("vector search (faiss)", ("faiss",)),
    ("preprocess", ("glow/text", "tokenizers", "wordninja")),
    ("stored documents", ("glow/index/stored_fields", "sqlite")),
    ("tower input and output", ("glow/runtime",)),
    ("search around FAISS", ("glow/search",)),
    ("check of the request (pydantic)", ("pydantic", "service/api/checks")),
    (
        "batcher, admission, pipeline",
        ("service/batcher", "service/admission", "service/pipeline", "service/stage_clock", "service/pool"),
    ),
    ("routes, answers", ("service/api",)),
    ("metrics", ("prometheus_client", "service/metrics")),
    ("HTTP protocol (uvicorn)", ("uvicorn", "service/protocol")),
    ("FastAPI and Starlette", ("fastapi", "starlette")),
    ("threads and futures", ("concurrent/futures", "threading.py")),
    ("event loop", ("asyncio", "uvloop")),
)
Profile = dict[str, float]
"""Part of the code -> its fraction of the samples, in [0, 1]; largest first."""


class Sampler:
    """Runs py-spy on a process.

    Args:
        pid: the process; its children are sampled, too.
        seconds: duration.
        out: file for the collapsed stacks, which flame-graph tools read.
    """

    def __init__(self, pid: int, seconds: float, out: Path) -> None:
        self._out = out
        program = shutil.which("py-spy") or str(Path(sys.executable).parent / "py-spy")
        if not Path(program).exists():
            raise RuntimeError("py-spy is not installed; pip install py-spy")
        command = [program, "record", "--pid", str(pid), "--duration", str(max(1, round(seconds)))]
        form = [
            "--format",
            "raw",
            "--rate",
            str(RATE_HZ),
            "--subprocesses",
            "--nonblocking",
            "--full-filenames",
        ]
        self._process = subprocess.Popen(
            [*command, *form, "--output", str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def result(self) -> Profile:
        """Waits for the end and sorts the samples.

        Raises:
            RuntimeError: if py-spy could not sample; it needs the right to trace the process.
        """
        said, _ = self._process.communicate(timeout=120)
        if self._process.returncode or not self._out.exists():
            raise RuntimeError(f"py-spy failed: {said[-500:]}")
        counts: Counter[str] = Counter()
        for line in self._out.read_text(errors="replace").splitlines():
            stack, _, number = line.rpartition(" ")
            counts[_part_of(stack.split(";"))] += int(number)
        total = max(1, counts.total())
        return {part: round(number / total, 4) for part, number in counts.most_common()}


def _part_of(frames: list[str]) -> str:
    """The part of a stack, found from its innermost frame outwards."""
    for frame in reversed(frames):
        for part, words in PARTS:
            if any(word in frame for word in words):
                return part
    return "other"
