"""Measures builds: documents per second and memory of each stage, with several threads, and after repeated kills.

    python -m benchmarks.build --data $DATA/medquad [--documents 20000 --documents 100000] [--threads 1 --threads 2]
        [--kills 10] [--out runs/build.md]

The documents are windows of 110 words over MedQuAD's bodies, which fill the model's token limit; they overlap as needed
for the requested number. Every build is the users' command in a new process. Memory is the peak of a stage in the
building process, and of all its processes together, sampled ten times a second. Killed builds
get SIGKILL at seeded random times, and the same command resumes them until they finish.
"""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.report import machine
from glow.artifact import IndexRoot

ROOT = Path(__file__).parent.parent
WINDOW_WORDS = 110
"""Default words per document, which fill the model's token limit; a smaller `--words` only makes encoding faster."""
SAMPLE_S = 0.1
STAGES = ("read", "terms", "encode", "columns", "lexical", "index", "recall", "check")
MIB = 2**20


@dataclass
class Built:
    """One build in one or more runs."""

    seconds: float = 0.0  # time of all runs
    report: dict[str, Any] = field(default_factory=dict)  # report of the last run
    tree_bytes: int = 0  # peak memory of all processes of one run together
    kills: int = 0  # number of killed runs
    files: dict[str, str] = field(
        default_factory=dict
    )  # path in the version -> SHA-256, except for files that hold times


def main(
    data: Annotated[Path, typer.Option(help="Data folder with corpus.jsonl.")],
    documents: Annotated[list[int] | None, typer.Option(help="Sizes of the corpus.")] = None,
    threads: Annotated[list[int] | None, typer.Option(help="Numbers of threads.")] = None,
    kills: Annotated[int, typer.Option(help="Kills of the last build, the smallest corpus; 0: none.")] = 10,
    index: Annotated[str, typer.Option(help="Kind of dense index.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the times of the kills.")] = 0,
    words: Annotated[int, typer.Option(help="Of each document.")] = WINDOW_WORDS,
    out: Annotated[Path | None, typer.Option(help="Write the tables to this file, too.")] = None,
) -> None:
    """Prints markdown tables."""
    sizes, counts = documents or [20_000, 100_000], threads or [1, 2]
    found: dict[tuple[int, int], Built] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for size in sizes:
            source = folder / f"{size}.jsonl"
            _make_corpus(data / "corpus.jsonl", size, words, source)
            for count in counts:
                options = ["--index", index, "--threads", str(count)]
                root = folder / f"index-{size}-{count}"
                found[size, count] = _build(source, root, options, [])
                _say(f"{size} documents, {count} threads: {found[size, count].seconds:.0f} s")
        killed = None
        if kills:
            size, count = sizes[0], counts[0]
            whole = found[size, count].seconds
            generator = random.Random(seed)  # noqa: S311 - times of kills, no secret
            after = [generator.uniform(0.2, 1.8) * whole / (kills + 1) for _ in range(kills)]
            options = ["--index", index, "--threads", str(count)]
            killed = _build(folder / f"{size}.jsonl", folder / "killed", options, after)
    text = (
        "\n".join(
            [*_head(index, words), *_speed(found), *_memory(found), *_kills(found, sizes, counts, killed)]
        )
        + "\n"
    )
    sys.stdout.write(text)
    if out:
        out.write_text(text, encoding="utf-8")


def _make_corpus(corpus: Path, wanted: int, length: int, out: Path) -> None:
    """Writes `wanted` windows of `length` words, evenly over all bodies."""
    bodies = []
    with corpus.open("rb") as file:
        for line in file:
            document = json.loads(line)
            bodies.append((document.get("title", ""), document["text"].split()))
    stride = float(length)
    while _count(bodies, length, stride) < wanted:
        stride *= 0.95
    spare = _count(bodies, length, stride) / wanted
    with out.open("w", encoding="utf-8") as file:
        number = written = 0
        for title, words in bodies:
            for start in _starts(len(words), length, stride):
                if number >= written * spare and written < wanted:
                    text = " ".join(words[start : start + length])
                    value = {"_id": f"w{written}", "title": title, "text": text, "words": len(words)}
                    file.write(json.dumps(value, ensure_ascii=False) + "\n")
                    written += 1
                number += 1


def _count(bodies: list[tuple[str, list[str]]], length: int, stride: float) -> int:
    return sum(len(_starts(len(words), length, stride)) for _, words in bodies)


def _starts(words: int, length: int, stride: float) -> list[int]:
    count = 1 + max(0, int((words - length) / stride + 0.999)) if words else 0
    return [int(place * stride) for place in range(count)]


def _build(source: Path, root: Path, options: list[str], kill_after: list[float]) -> Built:
    """Runs a build once for each kill time, and then to its end."""
    built = Built()
    report = root.with_suffix(".json")
    command = [sys.executable, "-m", "glow", "build", "--input", str(source), "--index-root", str(root)]
    for limit in [*kill_after, float("inf")]:
        start = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--json", str(report), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
        )
        while process.poll() is None:
            built.tree_bytes = max(built.tree_bytes, _tree_bytes(process.pid))
            if time.perf_counter() - start >= limit:
                process.send_signal(signal.SIGKILL)
                built.kills += 1
                limit = float("inf")
            time.sleep(SAMPLE_S)
        built.seconds += time.perf_counter() - start
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, process.returncode
    built.report = json.loads(report.read_text())
    files = IndexRoot(root).manifest(built.report["version"]).files
    built.files = {name: record.sha256 for name, record in files.items() if name != "report.json"}
    return built


def _tree_bytes(pid: int) -> int:
    """Memory of a process and its descendants; shared pages count for each."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = int(status.partition("VmRSS:")[2].split()[0]) * 1024 if "VmRSS:" in status else 0
    return own + sum(_tree_bytes(int(child)) for child in children)


def _head(index: str, words: int) -> list[str]:
    facts = ", ".join(f"{key} {value}" for key, value in machine().items())
    return [f"Windows of {words} words of MedQuAD, `--index {index}`; {facts}.", ""]


def _speed(found: dict[tuple[int, int], Built]) -> list[str]:
    lines = [
        "| documents | threads | index | "
        + " | ".join(f"{stage} (documents/s)" for stage in STAGES)
        + " | seconds |",
        "|---" * (len(STAGES) + 4) + "|",
    ]
    for (size, count), built in found.items():
        seconds = built.report["seconds"]
        rates = " | ".join(f"{size / max(seconds.get(stage, 0.0), 1e-3):,.0f}" for stage in STAGES)
        kind = built.report["index"]["kind"]
        lines.append(f"| {size:,} | {count} | {kind} | {rates} | {built.seconds:.0f} |")
    return [*lines, ""]


def _memory(found: dict[tuple[int, int], Built]) -> list[str]:
    lines = [
        "| documents | threads | "
        + " | ".join(f"{stage} (MiB)" for stage in (*STAGES[:-1], "worker"))
        + " | all processes (MiB) | index file (MiB) | index stage / file |",
        "|---" * (len(STAGES) + 5) + "|",
    ]
    for (size, count), built in found.items():
        peaks = built.report["stage_peak_memory_bytes"]
        stages = " | ".join(f"{peaks.get(stage, 0) / MIB:.0f}" for stage in (*STAGES[:-1], "worker"))
        file = built.report["index"]["size_bytes"]
        lines.append(
            f"| {size:,} | {count} | {stages} | {built.tree_bytes / MIB:.0f} | {file / MIB:.0f} "
            f"| {peaks['index'] / file:.2f} |"
        )
    return [*lines, ""]


def _kills(
    found: dict[tuple[int, int], Built], sizes: list[int], counts: list[int], killed: Built | None
) -> list[str]:
    if killed is None:
        return []
    whole = found[sizes[0], counts[0]]
    other = [name for name in whole.files if whole.files[name] != killed.files.get(name)]
    recalls = [built.report["recall"]["recall"] for built in (whole, killed)]
    return [
        f"{sizes[0]:,} documents with {counts[0]} threads, killed {killed.kills} times: {killed.seconds:.0f} s against "
        f"{whole.seconds:.0f} s, {100 * (killed.seconds / whole.seconds - 1):.1f} % more; files that differ: "
        f"{', '.join(other) or 'none'}; recall@10 {recalls[1]:.3f} against {recalls[0]:.3f}."
    ]


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    typer.run(main)
