"""Measures an installation of docker-compose.yml: disk, time and memory of a build, and memory of a replica.

    python -m benchmarks.sizing --corpus $DATA/tldr/corpus.jsonl --corpus $DATA/medquad/corpus.jsonl

Builds each corpus with `docker compose run rebuild` into an empty volume, starts all services, and searches for half a
minute. Needs an engine and compose; limits are those of docker-compose.yml.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.machine import machine
from tests.deploy.compose_up import RSS
from tests.deploy.engine import Project, engine_answers
from tests.deploy.load import Load

SEARCH_S = 30.0
HEAD = "| corpus | documents | words, mean | build s | documents/s | build MB, peak | version MB | replica MB | of it private |"


def main(
    corpus: Annotated[list[Path], typer.Option(help="Documents, one JSON object a line.")],
) -> None:
    """Prints a Markdown table."""
    if not engine_answers():
        raise SystemExit("no container engine with compose v2 is available")
    facts = ", ".join(f"{key} {value}" for key, value in machine().items())
    sys.stdout.write(f"{facts}.\n\n{HEAD}\n{'|---' * (HEAD.count('|') - 1)}|\n")
    for path in corpus:
        project = Project()
        try:
            sys.stdout.write(_row(project, path))
            sys.stdout.flush()
        finally:
            project.remove()


def _row(project: Project, corpus: Path) -> str:
    shutil.copyfile(corpus, project.input / "documents.jsonl")
    _must(project, "build")
    begin = time.monotonic()
    _must(project, "run", "--rm", "-T", "rebuild", "--input", "/input/documents.jsonl")
    seconds = time.monotonic() - begin
    shell = 'cd /index/$(head -n 1 /index/CURRENT | cut -d" " -f1) && du -sk . | cut -f1 && cat report.json'
    found = _must(project, "run", "--rm", "-T", "--entrypoint", "sh", "rebuild", "-c", shell)
    kilobytes, _, text = found.partition("\n")
    report = json.loads(text)
    _must(project, "up", "--detach", "--wait")
    with Load(project.port) as load:
        time.sleep(SEARCH_S)
    if load.lost:
        raise SystemExit(f"{len(load.lost)} searches failed, the first with {load.lost[0]}")
    private = RSS.replace("VmRSS", "RssAnon")
    rss, anon = (
        int(project.inside("service-1", "python", "-c", code).stdout) / 1e3 for code in (RSS, private)
    )
    return (
        f"| {corpus.parent.name}/{corpus.name} | {report['counts']['documents']:,} | {_mean_words(corpus):.0f} "
        f"| {seconds:.0f} | {report['documents_per_second']['total']:.0f} "
        f"| {report['peak_memory_bytes'] / 1e6:.0f} | {int(kilobytes) / 1e3:.0f} | {rss:.0f} | {anon:.0f} |\n"
    )


def _mean_words(corpus: Path) -> float:
    with corpus.open("rb") as file:
        counts = [sum(len(str(each).split()) for each in json.loads(line).values()) for line in file]
    return sum(counts) / len(counts)


def _must(project: Project, *arguments: str) -> str:
    done = project.compose(*arguments)
    if done.returncode != 0:
        raise SystemExit(
            f"docker compose {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done.stdout


if __name__ == "__main__":
    typer.run(main)
