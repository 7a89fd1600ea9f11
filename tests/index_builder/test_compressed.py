"""Compressed input reads as plain input does, in little memory, and a damaged file is told from a whole one."""

import gzip
import io
import sys
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from backports import zstd

from glow.errors import DependencyError, InputError
from glow_index_builder.input.source import Line, Source, open_sources


def lines(path: Path, max_line_bytes: int = 100) -> list[Line]:
    return list(Source(path.name, path).lines(max_line_bytes))


def packed_frames(data: bytes, size: int = 4096) -> bytes:
    """Frames of `size` bytes each, as parallel compressors write them, with an empty and a skippable one between."""
    compress = partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1})
    frames = [compress(data[start : start + size]) for start in range(0, len(data), size)]
    return (b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + compress(b"")).join(frames)


COMPRESS = {".gz": gzip.compress, ".zst": packed_frames}
NUMBERED = b"".join(b'{"_id": "%d"}\n' % number for number in range(2000))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_lines_are_the_plain_ones(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "plain.jsonl").write_bytes(NUMBERED)
    (tmp_path / f"packed.jsonl{suffix}").write_bytes(COMPRESS[suffix](NUMBERED))
    packed = lines(tmp_path / f"packed.jsonl{suffix}", 100)
    assert packed == lines(tmp_path / "plain.jsonl", 100)
    assert len(packed) == 2000


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_that_is_cut_off_anywhere_is_refused_with_the_place(
    tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"cut.jsonl{suffix}"
    whole = COMPRESS[suffix](NUMBERED)
    for size in (5, 12, len(whole) // 2, len(whole) - 5, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(InputError, match=rf"cut\.jsonl{suffix} is damaged or cut off after line \d+: "):
            lines(file, 100)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_with_a_changed_byte_is_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"bad.jsonl{suffix}"
    damaged = bytearray(COMPRESS[suffix](NUMBERED))
    damaged[len(damaged) // 2] ^= 0xFF
    file.write_bytes(damaged)
    with pytest.raises(InputError, match=r"is damaged or cut off after line \d+: .+; fetch it again"):
        lines(file, 100)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_bomb_of_one_line_takes_little_memory(tmp_path: Path, suffix: str) -> None:
    data = b"x" * (64 << 20)
    packed = gzip.compress(data) if suffix == ".gz" else zstd.compress(data)
    (tmp_path / f"bomb{suffix}").write_bytes(packed)
    del data
    tracemalloc.start()
    try:
        assert [line.is_too_long for line in lines(tmp_path / f"bomb{suffix}", 1000)] == [True]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_standard_input_may_be_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    for pack in COMPRESS.values():
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(pack(NUMBERED))))
        (source,) = open_sources("-")
        assert len(list(source.lines(100))) == 2000


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    for suffix in (".gz", ".zst", ".parquet"):
        file = tmp_path / f"x{suffix}"
        file.write_bytes(NUMBERED)
        with pytest.raises(
            InputError, match=rf"x{suffix} is not a {suffix} file: it begins with 7b 22 5f 69"
        ):
            open_sources(str(file))


def test_a_folder_may_mix_formats_and_beir_s_corpus_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(NUMBERED))
    (tmp_path / "a.jsonl").write_bytes(NUMBERED)
    (tmp_path / "c.jsonl.zst").write_bytes(packed_frames(NUMBERED))
    found = open_sources(str(tmp_path))
    assert [source.name for source in found] == ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst"]
    assert [source.size_bytes for source in found] == [len(NUMBERED), None, None]
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(NUMBERED))
    assert [source.name for source in open_sources(str(tmp_path))] == ["corpus.jsonl.gz"]


def test_a_format_whose_package_is_missing_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jsonl.zst").write_bytes(packed_frames(NUMBERED))
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(
        DependencyError, match=r"x\.jsonl\.zst needs the package backports\.zstd.*extra `formats`"
    ):
        open_sources(str(tmp_path / "x.jsonl.zst"))
