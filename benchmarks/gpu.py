"""What GLOW does on a GPU: encoders in fp16, training in bf16, exact search, and the tests marked `gpu`.

    python -m benchmarks.gpu pack FOLDER [--part-mb 60] [--python 3.12]     where packages can be downloaded
    python -m benchmarks.gpu run [--packed FOLDER] [--json FILE]            where the GPU is, in under six minutes

`pack` downloads what a machine with PyTorch still needs. CUDA's libraries come with PyTorch's own packages. Without a
GPU, `run` computes all that it can on the CPU and names what is missing.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

if TYPE_CHECKING:
    from glow.text import WeightedTokens

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "models" / "glow-mini"
RUNTIME = "onnxruntime-gpu==1.31.*"
PLATFORMS = [f"manylinux{version}_x86_64" for version in ("_2_28", "_2_27", "_2_17", "2014")]
BATCHES = (1, 32, 256)
SHAPE_OPERATORS = {"Cast", "Concat", "Gather", "Identity", "Shape", "Slice", "Squeeze", "Unsqueeze"}
STEPS = {"cuda": 50, "cpu": 4}
PAIRS = {"cuda": 64, "cpu": 4}
CONFIG = """
name = "gpu"
kind = "towers"
checkpoint_steps = {half}
seed = 1

[towers]
init_layers = [0, 1, 2]
document_layers = [0, 1, 2]
weight_form = "log"

[objective]
hard_negatives = 0

[optimizer]
batch_size = {pairs}
epochs = 1000
max_steps = {steps}
learning_rate = 1e-5
precision = "{precision}"
"""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


class Row(NamedTuple):
    """One line of the table."""

    check: str
    value: str
    limit: str = ""
    holds: bool | None = None  # None: a figure without a limit, or a check that could not run


@app.command()
def pack(
    folder: Path,
    part_mb: Annotated[int, typer.Option(help="Larger files are cut into parts of this size.")] = 60,
    python: Annotated[str, typer.Option(help="Python's version where the GPU is.")] = "3.12",
) -> None:
    """Downloads ONNX Runtime for GPUs and GLOW's dependencies as wheels."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (ROOT / "docker" / "requirements" / "serve.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+==[\w.]+) \\$", lock, re.MULTILINE)
    target = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    target += [word for platform in PLATFORMS for word in ("--platform", platform)]
    for pin in [RUNTIME, *(pin for pin in pins if not pin.startswith("onnxruntime=="))]:
        pip = [sys.executable, "-m", "pip", "--quiet"]
        fetched = subprocess.run([*pip, "download", "--no-deps", *target, "--dest", folder, pin], check=False)
        if fetched.returncode:  # no wheel is published: pure Python
            subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, pin], check=True)
    for path in list(folder.glob("*.whl")):
        if path.stat().st_size > part_mb * 10**6:
            content = path.read_bytes()
            for number, start in enumerate(range(0, len(content), part_mb * 10**6)):
                part = path.with_name(f"{path.name}.part{number:02d}")
                part.write_bytes(content[start : start + part_mb * 10**6])
            path.unlink()


@app.command()
def run(
    packed: Annotated[Path | None, typer.Option(help="Folder of `pack`.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the table here.")] = None,
) -> None:
    """Runs all checks, prints the table, and fails if a limit is exceeded."""
    if packed and "GLOW_UNPACKED" not in os.environ:
        with tempfile.TemporaryDirectory() as site:
            _unpack(packed, Path(site))
            paths = [site, str(ROOT), os.environ.get("PYTHONPATH", "")]
            environment = os.environ | {
                "GLOW_UNPACKED": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            }
            raise typer.Exit(
                subprocess.run([sys.executable, *sys.orig_argv[1:]], env=environment, check=False).returncode
            )
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for check in (machine, encoders, training, exact_search, marked_tests):
            started = time.perf_counter()
            rows += _guarded(check, Path(scratch))
            rows.append(
                Row(f"{check.__name__.replace('_', ' ')}: seconds", f"{time.perf_counter() - started:.0f}")
            )
    words = {True: "holds", False: "MISSED", None: ""}
    lines = ["|Check|Value|Limit||", "|---|---|---|---|"]
    lines += [f"|{row.check}|{row.value}|{row.limit}|{words[row.holds]}|" for row in rows]
    typer.echo("\n".join(lines))
    if json_file:
        json_file.write_text(json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8")
    raise typer.Exit(int(any(row.holds is False for row in rows)))


def _unpack(packed: Path, site: Path) -> None:
    """Joins parts, and installs into `site` what this Python does not have."""
    wheels = site / "wheels"
    wheels.mkdir()
    for path in sorted(packed.iterdir()):
        whole = wheels / re.sub(r"\.part\d\d$", "", path.name)
        with whole.open("ab") as file:
            file.write(path.read_bytes())
    installed = {each.name.lower().replace("-", "_") for each in importlib.metadata.distributions()}
    missing = [path for path in wheels.iterdir() if path.name.split("-")[0].lower() not in installed]
    options: list[str | Path] = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--target", site]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *missing], check=True)


def _guarded(check: Callable[[Path], Iterator[Row]], scratch: Path) -> list[Row]:
    """The rows of a check; what it raises is a row that fails."""
    rows: list[Row] = []
    try:
        rows.extend(check(scratch))
    except Exception as error:  # the other checks run
        rows.append(Row(check.__name__, f"{type(error).__name__}: {str(error)[:300]}", "no error", False))
    return rows


def machine(scratch: Path) -> Iterator[Row]:
    """The GPU, and the versions of what computes on it."""
    import onnxruntime
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none: the CPU computes in its place"
    yield Row("GPU", gpu)
    yield Row("PyTorch", f"{torch.__version__}, CUDA {torch.version.cuda}")
    yield Row(
        "ONNX Runtime", f"{onnxruntime.__version__}, {', '.join(onnxruntime.get_available_providers())}"
    )
    if torch.cuda.is_available():
        has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
        yield Row("ONNX Runtime has CUDA", str(has_cuda), "True", has_cuda)


def encoders(scratch: Path) -> Iterator[Row]:
    """fp16 towers against float ones on the CPU: vectors, rates, and what of the graph stays on the CPU."""
    import numpy as np

    from glow.records import Document
    from glow.runtime import Model

    device = _device()
    for how in ("none", "fp16"):
        options = [f"--from-model={MODEL}", f"--quantize={how}", f"--out={scratch / how}"]
        subprocess.run([sys.executable, "-m", "glow", "export-model", *options], cwd=ROOT, check=True)
    expected, exported = Model.open(scratch / "none"), Model.open(scratch / "fp16")
    read = exported.preprocessor
    queries = [read.query(title) for _, title in _sections()]
    documents = [
        read.document(Document("", {"title": (title,), "body": (text,)})) for text, title in _sections()
    ]
    towers: list[tuple[Literal["query", "document"], list[WeightedTokens]]]
    towers = [("query", queries), ("document", documents)]
    for tower, sequences in towers:
        encoder = exported.encoder(tower, device)
        reference = expected.encoder(tower, threads=os.cpu_count() or 1).encode(sequences[:256])
        difference = float(np.abs(encoder.encode(sequences[:256]) - reference).max())
        name = f"{tower} in fp16 on {device}"
        yield Row(f"{name}: largest difference", f"{difference:.1e}", "1e-3", difference <= 1e-3)
        for size in BATCHES:
            batch = (sequences * (size // len(sequences) + 1))[:size]
            yield Row(
                f"{name}: a second, in batches of {size}", f"{size * _rate(partial(encoder.run, batch)):,.0f}"
            )
    if device == "cuda":
        names = _operators_on_cpu(exported, queries[:8], scratch)
        yield Row("operators on the CPU", ", ".join(sorted(names)), "shapes only", names <= SHAPE_OPERATORS)


def _operators_on_cpu(model: Any, sequences: list[Any], scratch: Path) -> set[str]:
    """Operators of the query tower that ONNX Runtime's profile assigns to the CPU."""
    import onnxruntime

    from glow.text import pad

    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(scratch / "profile")
    session = onnxruntime.InferenceSession(
        model.folder / "query.onnx", options, providers=["CUDAExecutionProvider"]
    )
    batch = pad(sequences, model.preprocessor.pieces.pad_id)
    session.run(None, {name: getattr(batch, name) for name in ("ids", "mask", "field_ids", "weights")})
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    counts = Counter(
        event["args"]["op_name"]
        for event in events
        if event.get("args", {}).get("provider") == "CPUExecutionProvider"
    )
    return set(counts)


def training(scratch: Path) -> Iterator[Row]:
    """Losses in bf16 against float32, and a run in two halves against one without a stop."""
    import numpy as np
    from safetensors.numpy import load_file

    from glow.training.checkpoint import WEIGHTS_FILE

    device = _device()
    steps = STEPS[device]
    data = _judged(scratch / "data")
    losses = {}
    for precision in ("fp32", "bf16"):
        started = time.perf_counter()
        losses[precision] = _train(scratch / precision, data, precision, device)
        rate = steps / (time.perf_counter() - started)
        yield Row(f"training in {precision} on {device}: steps a second, start included", f"{rate:.2f}")
    difference = abs(losses["bf16"] / losses["fp32"] - 1)
    yield Row(
        f"loss after {steps} steps, bf16 against float32", f"{difference:.2%}", "1 %", difference <= 0.01
    )
    command = _train_command(scratch / "halves", data, "fp32", device)
    with subprocess.Popen(command, cwd=ROOT) as process:
        while process.poll() is None and not (scratch / "halves.run" / "state.safetensors").exists():
            time.sleep(0.05)
        process.kill()
    _train(scratch / "halves", data, "fp32", device)
    whole, halves = (load_file(scratch / name / WEIGHTS_FILE) for name in ("fp32", "halves"))
    apart = max(float(np.abs(each - halves[name]).mean()) for name, each in whole.items())
    holds = apart <= 1e-6 and process.returncode < 0  # a run that ended before its kill shows nothing
    yield Row(f"the same weights, killed after step {steps // 2}: apart", f"{apart:.0e}", "1e-6", holds)


def _train(out: Path, data: Path, precision: str, device: str) -> float:
    """The last loss of `glow train`."""
    subprocess.run(_train_command(out, data, precision, device), cwd=ROOT, check=True)
    loss: float = json.loads(out.with_suffix(".json").read_bytes())["final_loss"]
    return loss


def _train_command(out: Path, data: Path, precision: str, device: str) -> list[str]:
    config, steps = out.with_suffix(".toml"), STEPS[device]
    sizes = {"steps": steps, "half": steps // 2, "pairs": PAIRS[device]}
    config.write_text(CONFIG.format(precision=precision, **sizes), encoding="utf-8")
    options = {"config": config, "data": data, "init": MODEL, "out": out, "device": device}
    options["json"] = out.with_suffix(".json")
    return [sys.executable, "-m", "glow", "train", *(f"--{name}={value}" for name, value in options.items())]


def exact_search(scratch: Path) -> Iterator[Row]:
    """A flat index on the GPU against the CPU."""
    import faiss
    import numpy as np

    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        yield Row("FAISS", "not run: this FAISS has no GPU (faiss-gpu needs CUDA 12's cuBLAS)")
        return
    from glow.index.vectors import DenseIndex, SearchParams, build_dense

    vectors = np.random.default_rng(0).normal(size=(100_000, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    build_dense(vectors, "flat").save(scratch / "vectors.faiss")
    on_gpu, on_cpu = (DenseIndex.load(scratch / "vectors.faiss", device) for device in ("cuda", "cpu"))
    rows, expected = (
        index.search(vectors[:100], 10, SearchParams(exact=True))[1] for index in (on_gpu, on_cpu)
    )
    same = float((rows == expected).mean())
    yield Row("FAISS: hits as on the CPU", f"{same:.3f}", "0.99", same >= 0.99)


def marked_tests(scratch: Path) -> Iterator[Row]:
    """The tests marked `gpu`."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests"]
    if importlib.util.find_spec("pytest") is None:
        yield Row("tests marked gpu", "not run: pytest is missing")
        return
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    yield Row(
        "tests marked gpu", done.stdout.strip().splitlines()[-1], "no failure", done.returncode in (0, 5)
    )


def _device() -> Any:
    """`cuda` where ONNX Runtime and PyTorch see a GPU, else `cpu`."""
    import onnxruntime
    import torch

    has_cuda = torch.cuda.is_available() and "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return "cuda" if has_cuda else "cpu"


def _rate(call: Callable[[], object], seconds: float = 2.0) -> float:
    """Calls a second."""
    call()
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        call()
        calls += 1
    return calls / (time.perf_counter() - started)


def _sections() -> list[tuple[str, str]]:
    """Text and title of each section of GLOW's own pages."""
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]
    parts = [part.partition("\n") for page in pages for part in re.split(r"^#+ ", page, flags=re.MULTILINE)]
    return [(text.strip(), title) for title, _, text in parts if title and len(text.split()) > 20]


def _judged(folder: Path) -> Path:
    """A data directory: each section's title is a query, and the section its relevant document."""
    (folder / "qrels").mkdir(parents=True)
    documents, queries, judgments = [], [], ["query-id\tcorpus-id\tscore"]
    for number, (text, title) in enumerate(_sections()):
        documents.append(json.dumps({"_id": f"d{number}", "title": title, "text": text}))
        queries.append(json.dumps({"_id": f"q{number}", "text": title}))
        judgments.append(f"q{number}\td{number}\t1")
    for name, lines in (
        ("corpus.jsonl", documents),
        ("queries.jsonl", queries),
        ("qrels/train.tsv", judgments),
    ):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    app()
