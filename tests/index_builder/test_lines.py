"""Lines of input: JSON of every form, plain and compressed, from files, folders and standard input."""

import gzip
import io
import json
import os
import sys
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from glow.errors import DependencyError, InputError
from glow.index.stored_fields import STORED_FIELDS
from glow_index_builder.input.source import Source, open_sources
from tests.index_builder.conftest import Live, Run, lines_of, records_of


@pytest.mark.parametrize("extra", [0, 1, 2, 3, 100_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_beyond_the_limit_costs_itself_alone(tmp_path: Path, end: bytes, extra: int) -> None:
    path = tmp_path / "input.jsonl"
    path.write_bytes(b"x" * (10 + extra) + end + (b"next" + end if end else b""))
    first, *others = lines_of(path, 10)
    assert first.data.startswith(b"x" * 10) and first.is_too_long == (extra > 0)
    assert [(line.number, line.data) for line in others] == ([(2, b"next")] if end else [])


@settings(max_examples=50)
@given(
    content=st.lists(
        st.sampled_from([b"\n", b"\r\n", b"\r", b" ", b"abc", b"0123456789", b"\x00"]), max_size=30
    )
)
def test_every_byte_of_a_file_belongs_to_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "input"
    path.write_bytes(b"".join(content))
    found = lines_of(path, 10)
    expected = [line.strip(b"\r") for line in b"".join(content).split(b"\n")]
    kept = [(number, data) for number, data in enumerate(expected, start=1) if data.strip()]
    assert [line.number for line in found] == [number for number, _ in kept]
    for line, (_, data) in zip(found, kept, strict=True):
        if not line.is_too_long:
            assert line.data.strip(b"\r") == data
    assert sum(line.read_bytes for line in found) <= path.stat().st_size


def packed_frames(data: bytes, size: int = 4096) -> bytes:
    """Frames of `size` bytes each, as parallel compressors write them, with an empty and a skippable one between."""
    compress = partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1})
    frames = [compress(data[start : start + size]) for start in range(0, len(data), size)]
    return (b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + compress(b"")).join(frames)


COMPRESS = {".gz": gzip.compress, ".zst": packed_frames}
NUMBERED = b"".join(b'{"_id": "%d"}\n' % number for number in range(2000))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
def test_a_long_line_takes_no_memory(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes(pack(b"x" * (32 << 20)))
    tracemalloc.start()
    try:
        assert [line.is_too_long for line in lines_of(path)] == [True]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_lines_are_the_plain_ones(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, packed = tmp_path / "plain.jsonl", tmp_path / f"packed.jsonl{suffix}"
    plain.write_bytes(NUMBERED)
    packed.write_bytes(COMPRESS[suffix](NUMBERED))
    assert lines_of(packed) == lines_of(plain) and len(lines_of(plain)) == 2000
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed.read_bytes())))
    (source,) = open_sources("-")
    assert (source.name, source.size_bytes, len(list(source.lines(100)))) == ("stdin", None, 2000)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_that_is_cut_off_or_changed_is_refused_with_the_place(
    tmp_path: Path, suffix: str
) -> None:
    path, whole = tmp_path / f"bad.jsonl{suffix}", COMPRESS[suffix](NUMBERED)
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 0xFF
    cuts = [whole[:size] for size in (5, 12, len(whole) // 2, len(whole) - 5, len(whole) - 1)]
    told = rf"bad\.jsonl{suffix} is damaged or cut off after line \d+: .+; fetch it again"
    for content in (*cuts, changed):
        path.write_bytes(content)
        with pytest.raises(InputError, match=told):
            lines_of(path)


def test_a_file_that_is_not_what_its_name_says_or_not_there_is_refused(tmp_path: Path) -> None:
    for suffix in (".gz", ".zst", ".parquet"):
        path = tmp_path / f"x{suffix}"
        path.write_bytes(NUMBERED)
        told = rf"x{suffix} is not a {suffix} file: it begins with 7b 22 5f 69"
        with pytest.raises(InputError, match=told):
            open_sources(str(path))
    with pytest.raises(InputError, match=r"cannot read gone\.jsonl: No such file"):
        list(Source("gone.jsonl", tmp_path / "gone.jsonl").lines(10))


def test_a_folder_may_mix_formats_and_beir_s_corpus_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(NUMBERED))
    (tmp_path / "a.jsonl").write_bytes(NUMBERED)
    (tmp_path / "c.jsonl.zst").write_bytes(packed_frames(NUMBERED))
    (tmp_path / "notes.log").write_bytes(NUMBERED)
    found = open_sources(str(tmp_path))
    assert [source.name for source in found] == ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst"]
    assert [source.size_bytes for source in found] == [len(NUMBERED), None, None]
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(NUMBERED))
    assert [source.name for source in open_sources(str(tmp_path))] == ["corpus.jsonl.gz"]
    os.mkfifo(tmp_path / "pipe")
    assert open_sources(str(tmp_path / "pipe"))[0].size_bytes is None


def test_a_format_whose_package_is_missing_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jsonl.zst").write_bytes(packed_frames(NUMBERED))
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    told = r"x\.jsonl\.zst needs the package backports\.zstd.*extra `formats`"
    with pytest.raises(DependencyError, match=told):
        open_sources(str(tmp_path / "x.jsonl.zst"))


RECORDS: list[dict[str, Any]] = [
    {"_id": "1", "text": 'a "bee" \\ {', "n": 12345678901234567, "x": [1.10, {"y": "]"}]},
    {"_id": "2", "text": "ants ü"},
]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(RECORDS),
        "\ufeff \n" + json.dumps(RECORDS, indent=2) + "\n",
        "\n".join(json.dumps(each, indent=1) for each in RECORDS),
        "\n".join(json.dumps(each) for each in RECORDS),
    ],
)
def test_an_array_pretty_objects_and_lines_are_the_same(content: str, tmp_path: Path) -> None:
    path, packed = tmp_path / "a.json", tmp_path / "b.json.gz"
    path.write_text(content, encoding="utf-8")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert records_of(path) == records_of(packed) == RECORDS


def test_a_long_item_costs_itself_and_one_without_end_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"_id": 1}, {"_id": 2, "t": "' + "x" * 5_000 + '"}, 3]')
    first, second, third = lines_of(path)
    assert (first.number, second.is_too_long, len(second.data), third.data) == (1, True, 1_001, b"3")
    path.write_text('[{"_id": 1}, {"_id": 2, "t": "' + "x" * 20_000_000 + '"}, 3]')
    with pytest.raises(InputError, match="more than"):
        lines_of(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[{"_id": 1}, {"_id": 2, ', "cut off after item 1"),
        ('[{"_id": 1}', "cut off after item 1"),
        ('[{"_id": 1}, nonsense]', "after item 1: .*nonsense"),
        ('{\n"_id": 1}\n{"_id": 2,\n "x"}', "after item 1"),
        ("[" * 10_000, "after item 0"),
    ],
)
def test_what_is_not_json_has_its_place(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        lines_of(path)


PRODUCTS = '[{"sku": 1, "text": "bees"}, {"sku": 2, "text": "ants"}]'


@pytest.mark.parametrize(
    ("content", "key", "options"),
    [
        (f'{{"total": 2, "products": {PRODUCTS}}}', "products", []),
        (f'{{"data": {{"products": {PRODUCTS}}}}}', "data.products", []),
        (f'{{\n "products": {PRODUCTS}\n}}', "products", []),
        ('{"products": [\n{"sku": 1},\n{"sku": 2}\n]}', "products", []),
        (f'{{"products": {PRODUCTS}}}', "products", ["--max-line-bytes", 40]),
        (f'{{\n"products": [{{"sku": 1}}, "{"x" * 70_000}"]}}', "products", ["--max-line-bytes", 100]),
    ],
)
def test_documents_below_a_key_are_refused_by_its_name(
    content: str, key: str, options: list[Any], build: Run, tmp_path: Path
) -> None:
    path = tmp_path / "products.json"
    path.write_text(content)
    done = build(path, *options)
    assert done.exit_code in (2, 4), done.stderr
    assert f"The key '{key}' holds a list" in done.stderr and f"jq -c '.{key}[]' FILE" in done.stderr


BULK = """{"index": {"_index": "shop", "_id": "1"}}
{"text": "bees", "id": 7}
{"create": {}}
{"_id": "2", "text": "ants"}
{"delete": {"_id": "3"}}
{"update": {"_id": "4"}}
{"doc": {"text": "x"}}

{"index": {"_id": 5}}
{}
"""
DUMP = '{"_index": "shop", "_type": "_doc", "_id": "1", "_score": 1, "_source": {"text": "bees", "id": 7}}\n'


def test_exports_of_elasticsearch_are_read_and_named(build: Run, tmp_path: Path, live: Live) -> None:
    path = tmp_path / "bulk.json"
    path.write_text(BULK)
    told = records_of(path)
    assert told[:2] == [{"_id": "1", "text": "bees", "id": 7}, {"_id": "2", "text": "ants"}]
    assert "'delete'" in told[2] and "'update'" in told[3] and told[4] == {"_id": 5}
    done = build(path, "--max-reject-ratio", "0.9")
    assert done.exit_code == 0 and "input: Elasticsearch's bulk format" in done.stdout, done.output
    assert live()[STORED_FIELDS].get("1").metadata == {"id": 7}
    for stdin in (DUMP.encode(), json.dumps([{"_id": "1", "text": "bees", "id": 7}], indent=2).encode()):
        done = build("-", stdin=stdin)
        assert done.exit_code == 0 and ("elasticdump" in done.stdout) == (stdin == DUMP.encode())
        assert live()[STORED_FIELDS].get("1").metadata == {"id": 7}
