"""Input and versions at a real S3 server: read, written, listed; what is not there or was cut off is told."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.artifact import IndexRoot
from glow.errors import BuildError, ConfigError, InputError
from glow.search import Index
from glow_index_builder.input import open_sources
from glow_index_builder.objects import RemoteFile, is_remote, list_remote, write_remote
from tests.ports import free_port

LINES = [
    {"_id": f"d{number}", "title": f"bees number {number}", "text": "Bees find home by the sun."}
    for number in range(30)
]
DATA = "".join(json.dumps(line) + "\n" for line in LINES).encode()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An empty bucket of a server of its own."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    given = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        until = time.monotonic() + 60
        while True:
            try:
                httpx.put(f"{url}/corpora")
                break
            except httpx.HTTPError:
                assert time.monotonic() < until
                time.sleep(0.1)
        yield "s3://corpora"
        server.kill()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def put(url: str, data: bytes) -> None:
    with write_remote(url) as file:
        file.write(data)


def glow(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "glow", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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
    arrow: Any = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    table = arrow.Table.from_pylist(LINES)
    parquet.write_table(table, tmp_path / "c.parquet")
    for ending, new in ((".arrow", arrow.ipc.new_file), (".arrows", arrow.ipc.new_stream)):
        with new(tmp_path / f"c{ending}", table.schema) as writer:
            writer.write_table(table, 7)
    for name in ("c.parquet", "c.arrow", "c.arrows"):
        data = (tmp_path / name).read_bytes()
        put(f"{bucket}/columns/{name}", data)
        for place in (str(tmp_path / name), f"{bucket}/columns/{name}"):
            (source,) = open_sources(place)
            assert [json.loads(line.data) for line in source.lines(1_000)] == LINES
        (tmp_path / name).write_bytes(data[: len(data) * 2 // 3])
        with pytest.raises(InputError, match=f"{name} is damaged or no"):
            list(open_sources(str(tmp_path / name))[0].lines(1_000))
    put(f"{bucket}/pages/zoo/bees.md", b"# Bees\n\nThey find home.")
    (source,) = open_sources(f"{bucket}/pages")
    assert json.loads(next(source.lines(1_000)).data)["_id"] == "zoo/bees.md"


def test_a_version_goes_there_and_comes_back(bucket: str, toy_model: Path, tmp_path: Path) -> None:
    put(f"{bucket}/build/corpus.jsonl", DATA)
    for name in ("first", "second"):  # one on its own machine each
        done = glow("build", "--input", f"{bucket}/build", "--output", tmp_path / name, "--model", toy_model)
        assert done.returncode == 0, done.stderr
    root = IndexRoot(tmp_path / "first")
    to = f"{bucket}/versions/live.tar.gz"
    assert glow("export-index", "--output", root.path, "--to", to).returncode == 0
    done = glow("import-index", "--output", tmp_path / "there", to, "--publish")
    assert done.returncode == 0, done.stderr
    there = IndexRoot(tmp_path / "there")
    assert there.current() == root.current()
    assert Index.open(there.folder(there.current())).documents.count == 30
    refused = glow("export-index", "--output", root.path, "--to", "https://example.org/x.tar")
    assert refused.returncode == 2 and "can be read alone" in refused.stderr


def test_what_fails_on_the_way_leaves_nothing(bucket: str) -> None:
    with pytest.raises(ValueError, match="stop"), write_remote(f"{bucket}/half.tar") as file:
        file.write(b"x" * 100)
        raise ValueError("stop")
    with pytest.raises(InputError, match="nothing is at"):
        list_remote(f"{bucket}/half.tar")
    with (
        pytest.raises(BuildError, match=r"cannot write s3://no-bucket/x\.tar"),
        write_remote("s3://no-bucket/x.tar") as file,
    ):
        file.write(b"x")
    with pytest.raises(ConfigError), write_remote("https://example.org/x"):
        pass


def test_a_web_server_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(DATA)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        (source,) = open_sources(f"{url}/c.jsonl?token=x")
        assert source.name == "c.jsonl"
        assert [json.loads(line.data) for line in source.lines(1_000)] == LINES
        with pytest.raises(InputError, match="nothing is at http"):
            open_sources(f"{url}/none.jsonl")
        server.shutdown()
