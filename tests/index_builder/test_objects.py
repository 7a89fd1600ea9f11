"""Input and versions at a real S3 server: read, written, listed; what is not there or was cut off is told."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import fsspec
import httpx
import pyarrow.parquet
import pytest

from glow.errors import InputError
from glow.index.stored_fields import STORED_FIELDS
from glow_index_builder.input.source import open_sources
from glow_index_builder.objects import RemoteFile, is_remote
from tests.index_builder.conftest import Live, Run
from tests.ports import free_port
from tests.slow_peer import SlowPeer
from tests.until import until

LINES = [
    {"_id": f"d{number}", "title": f"bees number {number}", "text": "Bees find home by the sun."}
    for number in range(30)
]
DATA = "".join(json.dumps(line) + "\n" for line in LINES).encode()


@pytest.fixture(scope="module")
def peer() -> Iterator[tuple[SlowPeer, int]]:
    port = free_port()
    with SlowPeer(port) as peer:
        yield peer, port


@pytest.fixture(scope="module")
def bucket(peer: tuple[SlowPeer, int]) -> Iterator[str]:
    url, port = peer[0].url, peer[1]
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with pytest.MonkeyPatch.context() as patch, subprocess.Popen(command, **silent) as server:
        for name, value in {**keys, "AWS_ENDPOINT_URL": url}.items():
            patch.setenv(name, value)
        until(lambda: _makes_bucket(url))
        yield "s3://corpora"
        server.kill()


def _makes_bucket(url: str) -> bool:
    try:
        return httpx.put(f"{url}/corpora").is_success
    except httpx.HTTPError:
        return False


def put(url: str, data: bytes) -> None:
    system, path = fsspec.core.url_to_fs(url)
    with system.open(path, "wb") as file:
        file.write(data)


def test_what_is_an_address() -> None:
    assert all(map(is_remote, ("s3://b/c.jsonl", "gs://b", "az://c/d", "https://e.org/c.jsonl")))
    assert not any(map(is_remote, ("corpus.jsonl", "/s3/x", "-", "s3:/x", "milvus://h", "s3://")))


def test_files_and_folders_are_read(bucket: str) -> None:
    put(f"{bucket}/one/corpus.jsonl", DATA)
    put(f"{bucket}/one/other.jsonl", b"{}")
    put(f"{bucket}/two/b.csv", b"_id,text\nb,owls\n")
    put(f"{bucket}/two/a.jsonl", DATA[:100])
    (source,) = open_sources(f"{bucket}/one/corpus.jsonl")
    assert (source.name, source.size_bytes) == ("corpus.jsonl", len(DATA))
    assert [json.loads(line.data) for line in source.lines(1_000)] == LINES
    assert [each.name for each in open_sources(f"{bucket}/one")] == ["corpus.jsonl"]
    assert [each.name for each in open_sources(f"{bucket}/two/")] == ["a.jsonl", "b.csv"]
    before = source.identity
    assert before is not None and before == RemoteFile(f"{bucket}/one/corpus.jsonl").identity
    put(f"{bucket}/one/corpus.jsonl", DATA.replace(b"sun", b"sky"))
    assert open_sources(f"{bucket}/one")[0].identity != before
    for wanted in (f"{bucket}/none.jsonl", "s3://no-bucket/x.jsonl", f"{bucket}/none/"):
        with pytest.raises(InputError, match=r"nothing is at s3|cannot read s3"):
            open_sources(wanted)


def test_parquet_arrow_and_pages_are_read_there(bucket: str, tmp_path: Path) -> None:
    table = pyarrow.Table.from_pylist(LINES)
    pyarrow.parquet.write_table(table, tmp_path / "c.parquet")
    for ending, new in ((".arrow", pyarrow.ipc.new_file), (".arrows", pyarrow.ipc.new_stream)):
        with new(tmp_path / f"c{ending}", table.schema) as writer:
            writer.write_table(table, 7)
    for name in ("c.parquet", "c.arrow", "c.arrows"):
        data = (tmp_path / name).read_bytes()
        put(f"{bucket}/columns/{name}", data)
        for place in (str(tmp_path / name), f"{bucket}/columns/{name}"):
            (source,) = open_sources(place)
            assert [json.loads(line.data) for line in source.lines(1_000)] == LINES
        (tmp_path / name).write_bytes(data[: len(data) * 2 // 3])
        with pytest.raises(InputError, match=f"{name} is damaged or not a"):
            list(open_sources(str(tmp_path / name))[0].lines(1_000))
    put(f"{bucket}/pages/zoo/bees.md", b"# Bees\n\nThey find home.")
    (source,) = open_sources(f"{bucket}/pages")
    assert json.loads(next(source.lines(1_000)).data)["_id"] == "zoo/bees.md"


@pytest.mark.parametrize("mode", ["trickle", "hang"])
def test_a_server_that_sends_slowly_ends_each_step(
    bucket: str, peer: tuple[SlowPeer, int], tmp_path: Path, mode: Literal["trickle", "hang"]
) -> None:
    put(url := f"{bucket}/slow-{mode}/corpus.jsonl", DATA)
    _ends_in_time(peer[0], mode, RemoteFile(url, within_s=0.4))
    (tmp_path / "c.jsonl").write_bytes(DATA)
    with web(tmp_path) as port, SlowPeer(port) as other:
        _ends_in_time(other, mode, RemoteFile(f"{other.url}/c.jsonl", within_s=0.4))


def _ends_in_time(peer: SlowPeer, mode: Literal["trickle", "hang"], file: RemoteFile) -> None:
    """A question, an opening, and a read: each ends, and the next one is right at once."""
    identity, before = file.identity, peer.connections
    opened = file.open()
    with peer.slow(mode):
        for step in (lambda: file.identity, file.open, lambda: opened.read(100)):
            started = time.monotonic()
            with pytest.raises((InputError, OSError), match=r"too slowly|whole response"):
                step()
            assert time.monotonic() - started < 0.4 + 1.5
    assert file.identity == identity
    with file.open() as again:
        assert again.read() == DATA
    opened.close()
    until(lambda: peer.connections <= before + 2)


def test_a_web_server_that_sends_other_bytes_than_asked_is_refused(tmp_path: Path) -> None:
    class Liar(SimpleHTTPRequestHandler):
        """Has a file of 20 MB, and sends of each part 100 MB, or from another place."""

        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "20000000")
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()

        def do_GET(self) -> None:
            start = 0 if self.path == "/place" else int(self.headers["Range"][6:].partition("-")[0])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-19999999/20000000")
            self.send_header("Content-Length", "100000000")
            self.end_headers()
            self.close_connection = True
            for _ in range(1_000):
                try:
                    self.wfile.write(bytes(100_000))
                except OSError:
                    return
                sent.append(100_000)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    sent: list[int] = []
    with web(tmp_path, Liar) as port:
        for path in ("size", "place"):
            with RemoteFile(f"http://127.0.0.1:{port}/{path}").open() as file:
                if path == "place":
                    file.seek(10_000_000)
                with pytest.raises(OSError, match=r"requested|range requests"):
                    file.read()
    assert sum(sent) < 60_000_000


def test_a_build_reads_a_remote_directory(build: Run, live: Live, bucket: str) -> None:
    put(f"{bucket}/build/corpus.jsonl", DATA)
    done = build(f"{bucket}/build")
    assert done.exit_code == 0, done.stderr
    assert live()[STORED_FIELDS].count == 30


@contextmanager
def web(folder: Path, kind: type[SimpleHTTPRequestHandler] = SimpleHTTPRequestHandler) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(kind, directory=str(folder))) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_web_server_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(DATA)
    with web(tmp_path) as port:
        url = f"http://127.0.0.1:{port}"
        (source,) = open_sources(f"{url}/c.jsonl?token=x")
        assert source.name == "c.jsonl"
        assert [json.loads(line.data) for line in source.lines(1_000)] == LINES
        with pytest.raises(InputError, match="nothing is at http"):
            open_sources(f"{url}/none.jsonl")
