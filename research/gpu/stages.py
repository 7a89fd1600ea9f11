"""What is run on a CUDA machine: tests, throughput against the chip's peak, training in two precisions with a resume."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glow.nn import Tower, TowerConfig
from glow.training.run_folder import read_metrics

__all__ = ["PEAKS", "SITE", "chip", "gpu_tests", "throughput", "train_and_resume"]

PEAKS = {
    "H200": 989, "H100": 989, "A100": 312, "L40": 181, "L4": 121, "A10": 125, "T4": 65, "4090": 165, "3090": 71,
}  # fmt: skip
"""Dense 16-bit tensor TFLOP/s as their makers state them; the first name that the device's contains."""
TOKENS, SECONDS, WARMUP = 160, 3.0, 3
STEPS, KILLED_AT = 200, 60
SITE = "site"
"""Folder of the packed packages."""


def chip() -> dict[str, Any]:
    """The device, and its stated peak in TFLOP/s where it is known."""
    if not torch.cuda.is_available():
        return {"device": "cpu", "peak": None, "torch": torch.__version__}
    name = torch.cuda.get_device_name()
    peak = next((peak for part, peak in PEAKS.items() if part in name), None)
    return {"device": name, "peak": peak, "torch": torch.__version__, "cuda": torch.version.cuda}


def gpu_tests(folder: Path) -> dict[str, Any]:
    """All tests of tests/gpu, by themselves: pass, fail and skip, by name."""
    options = f"-q -rA -m gpu --confcutdir tests/gpu -c {os.devnull} --rootdir . tests/gpu"
    done = subprocess.run(
        (sys.executable, "-m", "pytest", *options.split()),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{folder / SITE}"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [
        line for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED", "SKIPPED", "ERROR"))
    ]
    return {"exit": done.returncode, "tests": lines, "last": (done.stdout or done.stderr).splitlines()[-1:]}


def throughput(
    layers: int, hidden: int, heads: int, batch: int, precision: str, peak: float | None
) -> dict[str, Any]:
    """Documents a second of a tower at `TOKENS` tokens, and the share of the chip's peak that its products make.

    Products counted: of weights (2 a parameter and token) and of attention (4 · tokens · hidden a token and layer).
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = torch.bfloat16 if precision == "bf16" else torch.float16
    config = TowerConfig(
        vocabulary=30_522,
        hidden=hidden,
        layers=layers,
        heads=heads,
        intermediate=4 * hidden,
        weight_form="log",
        dropout=0.0,
    )
    tower = Tower(config, nn.Embedding(config.vocabulary, hidden), 512, 5).to(device).eval()
    ids = torch.randint(0, config.vocabulary, (batch, TOKENS), device=device)
    inputs = (ids, torch.ones_like(ids), torch.zeros_like(ids), torch.rand(ids.shape, device=device) + 0.5)
    run = torch.compile(tower) if device.type == "cuda" else tower
    with torch.inference_mode(), torch.autocast(device.type, kind):
        for _ in range(WARMUP):
            run(*inputs)
        batches, seconds = _timed(lambda: run(*inputs), device)
    flops = TOKENS * layers * (24 * hidden**2 + 4 * TOKENS * hidden)
    rate = batches * batch / seconds
    used = rate * flops / 1e12
    return {
        "documents_per_s": round(rate),
        "tflops": round(used, 2),
        "of_peak": round(used / peak, 3) if peak else None,
    }


def _timed(call: Callable[[], Any], device: torch.device) -> tuple[int, float]:
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < SECONDS or not count:
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        count += 1
    return count, passed


def train_and_resume(
    folder: Path, precision: str, work: Path, steps: int = STEPS, killed_at: int = KILLED_AT
) -> dict[str, Any]:
    """Trains, is killed on the way, goes on, and says how far each call came and where the loss ended."""
    out = work / f"train-{precision}"
    call = (
        sys.executable,
        "-m",
        "research.gpu",
        "train",
        "--folder",
        folder,
        "--out",
        out,
        "--precision",
        precision,
    )
    arguments = [str(part) for part in (*call, "--steps", steps)]
    first = subprocess.Popen(arguments, cwd=folder)
    metrics = out.with_name(f"{out.name}.run")
    while first.poll() is None and _steps(metrics) < killed_at:
        time.sleep(0.2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    reached = _steps(metrics)
    start = time.monotonic()
    second = subprocess.run(arguments, cwd=folder, check=False)
    rows = read_metrics(metrics)
    return {
        "exit": second.returncode,
        "killed_at": reached,
        "steps": rows[-1]["step"] if rows else 0,
        "first_loss": round(rows[0]["loss"], 4) if rows else None,
        "last_loss": round(rows[-1]["loss"], 4) if rows else None,
        "pairs_per_s": rows[-1]["pairs_per_second"] if rows else None,
        "seconds_of_resume": round(time.monotonic() - start, 1),
    }


def _steps(folder: Path) -> int:
    """Steps of the last line that was written; a line half written counts as none."""
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return int(json.loads(lines[-1])["step"])
    except (OSError, ValueError, LookupError):
        return 0
