"""`glow demo`: indexes the documentation of this Python (or your own documents) and serves it."""

import hashlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import typer

from glow.artifact import default_model
from glow.commands import command, option
from glow.errors import ConfigError, InputError
from glow.options import StrictModel

__all__ = ["DemoOptions", "demo_command"]

EXAMPLE = "copy a directory tree"
GROUP = "module:3"
"""Results of one module that a page of the demo shows at most (docs/results/quality.md)."""
QUESTIONS = (
    EXAMPLE,
    "how to read a csv file",
    "sort a list by a key",
    "how do I parse command line options",
)
"""What the page of the demo offers to begin with."""
READY_TIMEOUT_S = 60.0
STAMP = "input.sha256"


class DemoOptions(StrictModel):
    """What to serve, and where."""

    port: int = option(8080, "Port to serve on.", ge=1, le=65_535)
    docs: Path | None = option(
        None, "Your own documents, as for `glow build --input`; default: Python's.", metavar="PATH"
    )
    folder: Path = option(Path(".demo"), "Directory of documents and index.", metavar="DIR")


@command(DemoOptions)
def demo_command(options: DemoOptions) -> None:
    """Indexes this Python's documentation, or your own documents, and serves it until it is interrupted."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the service is stopped with us
    raise typer.Exit(_run_demo(options))


def _run_demo(options: DemoOptions) -> int:
    if not _is_free(options.port):
        raise ConfigError(f"port {options.port} is in use; choose another: --port {options.port + 1}")
    options.folder.mkdir(parents=True, exist_ok=True)
    documents = options.docs or options.folder / "python-docs.jsonl"
    if options.docs is None:
        _say("1/3  Reading the documentation of this Python …")
        if code := _run("glow_demo.python_docs", "--out", documents):
            return code
    elif not documents.exists():
        raise InputError(f"there is nothing at {documents}; --docs takes what `glow build --input` takes")
    if code := _index(documents, options.folder / "index"):
        return code
    return _serve(options.folder / "index", options.port, is_own=options.docs is not None)


def _index(documents: Path, index: Path) -> int:
    """Builds the index, unless it was built of the same documents by the same model before."""
    fingerprint = _fingerprint(documents)
    stamp = index / STAMP
    if (index / "CURRENT").exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == fingerprint:
        _say("2/3  The index is there already.")
        return 0
    _say("2/3  Building the index (a minute or two) …")
    if code := _run("glow", "build", "--input", documents, "--index-root", index):
        return code
    stamp.write_text(fingerprint, encoding="utf-8")
    return 0


def _fingerprint(documents: Path) -> str:
    digest = hashlib.sha256((default_model() / "manifest.json").read_bytes())
    if documents.is_file():
        digest.update(documents.read_bytes())
    for path in sorted(documents.rglob("*")):
        status = path.lstat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="replace"))
    return digest.hexdigest()


def _serve(index: Path, port: int, *, is_own: bool) -> int:
    _say("3/3  Starting the service …")
    command = [sys.executable, "-m", "glow", "serve", "--index-root", str(index), "--port", str(port)]
    if not is_own:
        command += ["--page-group-by", GROUP, "--page-examples", "|".join(QUESTIONS)]
    service = subprocess.Popen(command)  # noqa: S603 - our own command
    try:
        if _wait_until_ready(service, port):
            _say(_welcome(port, "your question" if is_own else EXAMPLE))
        return service.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        service.terminate()
        service.wait()


def _wait_until_ready(service: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < end and service.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False


def _welcome(port: int, question: str) -> str:
    base = f"http://127.0.0.1:{port}"
    body = f'{{"query": "{question}", "top_k": 5}}'
    return (
        f"\n  Open   {base}/?q={quote(question)}\n"
        f"  or ask curl -s {base}/search -H 'content-type: application/json' -d '{body}'\n"
        "  Stop   with Ctrl-C\n"
    )


def _run(module: str, *arguments: object) -> int:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - our own command


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
