"""Runs the whole of `docker-compose.yml` with a real engine, from a fresh clone of HEAD, and checks what it promises.

    python -m tests.deploy.compose_up [--no-sizes]

Exit status 1 where a promise is not kept, 77 where it cannot be tried: no engine with compose, or no base images.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scripts.pin_images import images
from tests.deploy.engine import ROOT, Project, engine_answers, out_of_reach, run, sizes_mb

DOCS = ROOT / "docs" / "deployment.md"
CORPUS = ROOT / "tests" / "data" / "toy-corpus.jsonl"
NOT_STARTED = {"GRAFANA_IMAGE", "MILVUS_IMAGE"}
BASES = tuple(image.partition("@")[0] for name, image in images().items() if name not in NOT_STARTED)
NOT_RUN = 77
SETTLE_S = 5.0
"""Seconds of load before and after what is done."""
OFFICIAL_MB = (125.0, 45.0)
"""The official base image, unpacked and packed: what stands in for it somewhere is another size."""
MOST_MB, MOST_PACKED_MB, MOST_RSS_MB, MOST_READY_S = 430.0, 190.0, 400.0, 5.0
ABSENT = "torch onnx scipy ir_measures bm25s pip glow_index_builder glow.training glow.nn".split()
QUESTIONS = {"delete an entire directory tree": "shutil.rmtree", "compile a regular expression": "re.compile"}
RSS = """
import pathlib
lines = [line for path in pathlib.Path("/proc").glob("[0-9]*/status") for line in path.read_text().splitlines()]
print(sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")))
"""
"""Program that prints the resident kilobytes of all processes of a container."""
FIND = """
import importlib.util as u, sys
for n in sys.argv[1:]:
  try: print(n if u.find_spec(n) else '')
  except ModuleNotFoundError: pass
"""


class Checks:
    """A promise that is not kept does not keep the others from being looked at."""

    def __init__(self) -> None:
        self.failed = 0

    def note(self, kept: bool, promise: str, found: object) -> None:
        self.failed += not kept
        sys.stdout.write(f"{'ok    ' if kept else 'FAILED'} {promise}: {found}\n")
        sys.stdout.flush()


def under_load(project: Project, checks: Checks, what: str, act: Callable[[], object]) -> None:
    """Does something while clients ask; no request may be lost."""
    with project.load() as load:
        time.sleep(SETTLE_S)
        act()
        time.sleep(SETTLE_S)
    found = f"{len(load.lost)} of {load.answered + len(load.lost)}, slowest {load.slowest_s:.2f} s {load.lost[:3]}"
    checks.note(load.answered > 0 and not load.lost, f"lost while {what}", found)


def until(happens: Callable[[], bool], limit_s: float = 60.0) -> bool:
    """Waits for something to happen; returns whether it did."""
    end = time.monotonic() + limit_s
    while not (happened := happens()) and time.monotonic() < end:
        time.sleep(0.2)
    return happened


def none_answers(project: Project, version: str) -> bool:
    """Whether no replica serves a version any more."""
    return version not in {project.version() for _ in range(8)}


def check_start(project: Project, checks: Checks) -> bool:
    """`up --wait` ends healthy and right documents come."""
    for arguments in (("config",), ("--profile", "*", "config")):
        done = project.compose(*arguments, "--quiet")
        checks.note(done.returncode == 0, "compose accepts its file", done.stderr.strip() or arguments)
    for override in ("gpu", "milvus"):
        files = ("--file", "docker-compose.yml", "--file", f"docker-compose.{override}.yml")
        done = project.compose(*files, "config", "--quiet")
        checks.note(done.returncode == 0, f"compose accepts the override {override}", done.stderr.strip())
    begin = time.monotonic()
    done = project.compose("up", "--build", "--detach", "--wait", "--wait-timeout", "900")
    found = f"{time.monotonic() - begin:.0f} s, images included"
    checks.note(done.returncode == 0, "up --wait", found if done.returncode == 0 else done.stderr[-3000:])
    if done.returncode != 0:
        sys.stdout.write(project.compose("logs", "--tail", "30").stdout)
        return False
    for question, wanted in QUESTIONS.items():
        answer = project.search(question, 10)
        kept = answer.is_success and f'"{wanted}"' in answer.text
        checks.note(kept, f"{question!r} finds {wanted}", answer.text[:200])
    return True


def check_image(project: Project, checks: Checks, *, with_sizes: bool) -> None:
    """The service's image is small, its container has few rights and little memory, and is ready soon."""
    image = project.image("service")
    found = run("docker", "run", "--rm", "--entrypoint", "python", image, "-c", FIND, *ABSENT)
    absent = found.stdout.split()
    checks.note(found.returncode == 0 and not absent, "absent from the image", absent)
    exporter = "import opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http.trace_exporter"
    done = project.inside("service-1", "python", "-c", exporter)
    checks.note(done.returncode == 0, "traces can be sent", done.stderr[-300:] or "yes")
    rights = "id -u; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; touch /app/x /index/x 2>&1 | grep -c -i read-only"
    lines = project.inside("service-1", "sh", "-c", rights).stdout.split()
    checks.note(lines == ["10001", "CapEff:", "0" * 16, "NoNewPrivs:", "1", "2"], "rights", lines)
    rss_mb = int(project.inside("service-1", "python", "-c", RSS).stdout) / 1e3
    checks.note(rss_mb <= MOST_RSS_MB, f"memory at most {MOST_RSS_MB:.0f} MB", f"{rss_mb:.0f} MB")
    project.compose("stop", "service-2")
    begin = time.monotonic()
    run("docker", "start", project.container("service-2"))
    until(lambda: project.inside("service-2", "bash", "/app/ready.sh").returncode == 0)
    ready_s = time.monotonic() - begin
    within = f"ready within {MOST_READY_S:.0f} s of its start"
    checks.note(ready_s <= MOST_READY_S, within, f"{ready_s:.1f} s")
    if with_sizes:
        pairs = zip(sizes_mb(image), sizes_mb(BASES[0]), OFFICIAL_MB, strict=True)
        unpacked, packed = (ours - base + official for ours, base, official in pairs)
        checks.note(unpacked <= MOST_MB, f"at most {MOST_MB:.0f} MB unpacked", f"{unpacked:.0f} MB")
        checks.note(packed <= MOST_PACKED_MB, f"at most {MOST_PACKED_MB:.0f} MB packed", f"{packed:.0f} MB")


def check_monitoring(project: Project, checks: Checks) -> None:
    """Prometheus takes its configuration and our alerts, and reaches both replicas."""
    done = project.compose("--profile", "monitoring", "up", "--detach", "--wait", "--no-deps", "prometheus")
    checks.note(done.returncode == 0, "Prometheus starts", done.stderr[-500:] if done.returncode else "yes")
    done = project.inside("prometheus", "promtool", "check", "config", "/etc/prometheus/prometheus.yml")
    told = done.stdout.split("\n")[-2:] or done.stderr
    checks.note(done.returncode == 0, "promtool accepts its configuration", told)

    def up() -> list[str]:
        answer = project.inside(
            "prometheus", "promtool", "query", "instant", "http://127.0.0.1:9090", 'up{job="glow"} == 1'
        )
        return re.findall(r'instance="([^"]*)"', answer.stdout)

    until(lambda: len(up()) == 2)
    checks.note(sorted(up()) == ["service-1:8080", "service-2:8080"], "it reaches both replicas", up())


def kill_a_replica(project: Project) -> None:
    run("docker", "kill", project.container("service-1"))
    time.sleep(SETTLE_S)
    run("docker", "start", project.container("service-1"))
    until(lambda: project.inside("service-1", "bash", "/app/ready.sh").returncode == 0)


def stop_a_replica(project: Project) -> None:
    """Exchanges one in order, as an upgrade does."""
    project.compose("up", "--detach", "--wait", "--no-deps", "--force-recreate", "service-2")


def check_rebuild(project: Project, checks: Checks) -> None:
    """The job publishes what replicas then serve; what its gate refuses never goes live."""
    before = project.version()
    _write_input(project.input)

    def rebuild() -> None:
        done = project.compose("run", "--rm", "-T", "rebuild", "--input", "/input/documents.jsonl")
        checks.note(done.returncode == 0, "rebuild publishes", done.stderr[-500:])
        checks.note(until(lambda: none_answers(project, before)), "replicas follow", project.version())

    under_load(project, checks, "the index is rebuilt", rebuild)
    live = project.version()
    given = ("--input", "/input/few.jsonl", "--gate", "/input/judged")
    done = project.compose("run", "--rm", "-T", "rebuild", *given)
    ended = (done.returncode, done.stderr.strip().splitlines()[-1:])
    checks.note(done.returncode == 6, "a gate that fails ends the job with status 6", ended)
    checks.note(project.version() == live, "and leaves the live version", live)


def _write_input(folder: Path) -> None:
    """The toy corpus, ten documents of it, and all titles as judged queries."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "documents.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "few.jsonl").write_text("".join(lines[:10]), encoding="utf-8")
    documents = [json.loads(line) for line in lines]
    (folder / "judged" / "qrels").mkdir(parents=True)
    queries = [json.dumps({"_id": f"q{n}", "text": each["title"]}) + "\n" for n, each in enumerate(documents)]
    (folder / "judged" / "queries.jsonl").write_text("".join(queries), encoding="utf-8")
    rows = [f"q{n}\t{each['_id']}\t1\n" for n, each in enumerate(documents)]
    (folder / "judged" / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))


def check_operations(project: Project, checks: Checks) -> None:
    """An operator's commands, as docs/deployment.md has them: the list of versions, a way back, a backup and its return."""
    lines = re.findall(r"(?m)^docker compose run .*--entrypoint.*$", DOCS.read_text(encoding="utf-8"))
    versions, rollback, export, restore = lines
    live = project.version()
    done = project.shell(versions)
    checks.note(done.returncode == 0 and live in done.stdout, versions, done.stdout.split("\n")[:4])
    done = project.shell(rollback)
    went_back = until(lambda: none_answers(project, live))
    first = project.version()
    checks.note(done.returncode == 0 and went_back, rollback, (live, first))
    done = project.shell(export)
    checks.note(done.returncode == 0, export, done.stderr[-300:])
    project.compose("down", "--volumes")
    done = project.shell(restore)
    checks.note(done.returncode == 0, restore, done.stderr[-300:])
    check_up(project, checks, first, "a backup brings the index back")


def check_down_and_up(project: Project, checks: Checks) -> None:
    version = project.version()
    project.compose("down")
    check_up(project, checks, version, "down and up keep the index")


def check_up(project: Project, checks: Checks, version: str, promise: str) -> None:
    done = project.compose("up", "--detach", "--wait", "--wait-timeout", "120")
    found = project.version()
    checks.note(done.returncode == 0 and found == version, promise, found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--no-sizes", action="store_true", help="do not pack images to weigh them")
    options = parser.parse_args()
    if not engine_answers():
        sys.stderr.write("Not run here: no container engine with compose v2 answers\n")
        return NOT_RUN
    if missing := out_of_reach(BASES):
        names = ", ".join(missing)
        sys.stderr.write(f"Not run here: these images are not here and cannot be pulled: {names}\n")
        return NOT_RUN
    checks, project = Checks(), Project()
    try:
        if check_start(project, checks):
            check_image(project, checks, with_sizes=not options.no_sizes)
            under_load(project, checks, "a replica is killed", lambda: kill_a_replica(project))
            under_load(project, checks, "a replica is exchanged", lambda: stop_a_replica(project))
            under_load(project, checks, "Redis is restarted", lambda: project.compose("restart", "redis"))
            check_rebuild(project, checks)
            check_monitoring(project, checks)
            check_down_and_up(project, checks)
            check_operations(project, checks)
    finally:
        project.remove()
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
