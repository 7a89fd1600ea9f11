"""Measures lexical indexes of many documents, generated from a real one: time, bytes, and the effect of 8 bits.

python -m benchmarks.scale.words --index-root INDEX --data DIR [--index-root … --data …] --work runs/scale/words --documents 100000

A real word occurs in as large a fraction of the documents as in the real index, at random, with impacts drawn
from its own. New words are added by Heaps' law, fitted to the real index, each in few documents by Zipf's law. Queries are
real. Every document count has its own directory in the work directory, with a plain and a packed index.

    n   documents           r   real documents      v   words
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.machine import machine
from benchmarks.scale.processes import alone, say, status_bytes
from glow.artifact import IndexRoot
from glow.collection import read_documents, read_queries
from glow.index.postings.format import (
    IMPACTS_FOLDER,
    IMPACTS_HEADER,
    MAXIMA_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    ImpactHeader,
)
from glow.index.postings.impacts import ImpactIndex
from glow.index.postings.lists import PlainLists
from glow.index.postings.packed import pack_lists
from glow.index.postings.vocabulary import Vocabulary
from glow.index.version import Index
from glow.text import lexical_words

DEPTH, WARM_UP = 10, 200
HEAPS_POINTS = (0.25, 0.5, 1.0)
K = (10, 200)
Array = NDArray[Any]


def main(
    index_root: Annotated[list[Path], typer.Option(help="Index of real documents; may be repeated.")],
    data: Annotated[list[Path], typer.Option(help="BEIR folder of each, for its queries and documents.")],
    work: Annotated[Path, typer.Option(help="Folder for what is made.")],
    documents: Annotated[list[int], typer.Option(help="Documents to make; may be repeated.")],
    queries: Annotated[int, typer.Option(help="Timed queries, as many of each collection.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of everything drawn.")] = 0,
) -> None:
    """Generates each index, then searches it plain and packed, each in a separate process."""
    work.mkdir(parents=True, exist_ok=True)
    rows = []
    for count in documents:
        folder = work / str(count)
        if not (folder / "done").exists():
            alone(make, index_root, data, folder, count, queries, seed)
        found = {layout: alone(search, folder, layout) for layout in ("plain", "packed")}
        rows.append({"documents": count, "overlap": overlap(folder), **found})
        say(json.dumps(rows[-1]))
    (work / "report.json").write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


def make(roots: list[Path], data: list[Path], folder: Path, count: int, queries: int, seed: int) -> None:
    """Writes the plain index, and packs a copy of it."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(seed)
    indexes = [Index.open(IndexRoot(root).folder(IndexRoot(root).current())) for root in roots]
    asked = [
        question
        for each, source in zip(indexes, data, strict=True)
        for question in _asked(each, source, queries // len(data), random)
    ]
    (folder / "queries.json").write_text(json.dumps(asked))
    words, shares, impacts = _real(roots)
    more = _new_words(indexes, data, len(words), count)
    say(f"{count:,} documents: {len(words):,} real words, {more:,} new ones")
    for layout in ("plain", "packed"):
        start = time.perf_counter()
        header = _write(folder / layout, words, shares, impacts, more, count, np.random.default_rng(seed))
        made_s, start = time.perf_counter() - start, time.perf_counter()
        if layout == "packed":
            pack_lists(folder / layout, header)
            say(f"made in {made_s:.0f} s, packed in {time.perf_counter() - start:.0f} s")
    (folder / "done").touch()


def _asked(index: Index, source: Path, count: int, random: np.random.Generator) -> list[list[str]]:
    texts = sorted({query.text for query in read_queries(source / "queries.jsonl")})
    rows = random.choice(len(texts), count + WARM_UP, replace=False)
    return [index.preprocessor.pieces.words(texts[row]) for row in rows]


def _real(roots: list[Path]) -> tuple[list[str], Array, list[Array]]:
    """Terms of all indexes, and each term's fraction of documents and impacts."""
    held: dict[str, list[Array]] = {}
    total = 0
    for root in roots:
        impacts = ImpactIndex.open(IndexRoot(root).folder(IndexRoot(root).current()) / IMPACTS_FOLDER)
        lists = impacts._lists
        assert isinstance(lists, PlainLists)
        total += len(impacts)
        for row in range(len(impacts.vocabulary)):
            values = lists.impacts[int(lists.starts[row]) : int(lists.starts[row + 1])]
            held.setdefault(impacts.vocabulary.word(row), []).append(np.asarray(values))
    words = sorted(held, key=str.encode)
    every = [np.concatenate(held[word]) for word in words]
    return words, np.array([len(each) / total for each in every]), every


def _new_words(indexes: list[Index], data: list[Path], known: int, count: int) -> int:
    """Number of new words for this number of documents, by Heaps' exponent of the real vocabulary."""
    documents = [
        (index, document)
        for index, source in zip(indexes, data, strict=True)
        for document in read_documents(source / "corpus.jsonl", index.preprocessor.schema.names)
    ]
    order = np.random.default_rng(0).permutation(len(documents)).tolist()
    seen: set[str] = set()
    sizes = []
    for number, place in enumerate(order, 1):
        index, document = documents[place]
        pre = index.preprocessor
        seen.update(lexical_words(document, pre.schema, pre.pieces))
        sizes.append((number, len(seen)))
    points = [sizes[int(share * len(sizes)) - 1] for share in HEAPS_POINTS]
    numbers, found = np.log(np.array(points, float)).T
    exponent = np.polyfit(numbers, found, 1)[0]
    say(f"Heaps' exponent {exponent:.2f} from {points}")
    return max(int(known * (count / len(documents)) ** exponent) - known, 0)


def _lists(
    words: list[str], shares: Array, impacts: list[Array], more: int, count: int, random: np.random.Generator
) -> Iterator[tuple[str, Array, Array]]:
    """Each word with its rows and impacts, in word order; new words sort last."""
    largest = max(float(each.max()) for each in impacts)
    for word, share, values in zip(words, shares.tolist(), impacts, strict=True):
        rows = (
            np.flatnonzero(random.random(count, np.float32) < share)
            if share > 0.002
            else _few(count, share, random)
        )
        yield word, rows.astype(np.uint32), random.choice(values, len(rows))
    # Zipf: of new words, one in j(j + 1) is in j documents.
    sizes = np.minimum((1 / (1 - random.random(more))).astype(np.int64), 400)
    for number, size in enumerate(sizes.tolist()):
        rows = np.unique(random.integers(0, count, size)).astype(np.uint32)
        yield (
            f"\U0010ffff{number:09d}",
            rows,
            (largest * random.uniform(0.4, 1.0, len(rows))).astype(np.float32),
        )


def _few(count: int, share: float, random: np.random.Generator) -> Array:
    """Rows of a rare word: fewer draws than documents."""
    size = max(random.binomial(count, share), 1)
    return np.unique(random.integers(0, count, size))


def _write(
    folder: Path,
    words: list[str],
    shares: Array,
    impacts: list[Array],
    more: int,
    count: int,
    random: np.random.Generator,
) -> ImpactHeader:
    folder.mkdir(exist_ok=True)
    names, sizes, maxima = [], [], []
    with (folder / "rows.bin").open("wb") as rows_file, (folder / "values.bin").open("wb") as values_file:
        for word, rows, values in _lists(words, shares, impacts, more, count, random):
            if not len(rows):
                continue
            names.append(word)
            sizes.append(len(rows))
            maxima.append(float(values.max()))
            rows_file.write(rows.tobytes())
            values_file.write(values.astype(np.float32).tobytes())
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    for source, name, kind in (("rows.bin", ROWS_FILE, np.uint32), ("values.bin", VALUES_FILE, np.float32)):
        with (folder / name).open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file,
                {
                    "descr": np.lib.format.dtype_to_descr(np.dtype(kind)),
                    "fortran_order": False,
                    "shape": (int(starts[-1]),),
                },
            )
            with (folder / source).open("rb") as raw:
                while block := raw.read(1 << 24):
                    file.write(block)
        (folder / source).unlink()
    Vocabulary.save(folder, names)
    np.save(folder / STARTS_FILE, starts)
    np.save(folder / MAXIMA_FILE, np.array(maxima, np.float32))
    header = ImpactHeader(
        kind="bm25", analyzer="english", documents=count, words=len(names), postings=int(starts[-1])
    )
    header.save(folder / IMPACTS_HEADER)
    return header


def search(folder: Path, layout: str) -> dict[str, Any]:
    """Times the queries one at a time on one warm thread, and stores their hits."""
    start = time.perf_counter()
    index = ImpactIndex.open(folder / layout)
    opened_s = time.perf_counter() - start
    asked = json.loads((folder / "queries.json").read_text())
    for words in asked[:WARM_UP]:
        index.search(words, DEPTH)
    times: dict[int, list[float]] = {k: [] for k in K}
    found = []
    for words in asked[WARM_UP:]:
        for k in K:
            start = time.perf_counter()
            _, rows = index.search(words, k)
            times[k].append((time.perf_counter() - start) * 1e3)
            if k == DEPTH:
                found.append(rows.tolist())
    (folder / f"{layout}-found.json").write_text(json.dumps(found))
    size = sum((folder / layout / name).stat().st_size for name in index.header.files)
    lists = sum(
        (folder / layout / name).stat().st_size
        for name in index.header.files
        if name in {"rows.npy", "impacts.npy", "postings.npy"}
    )
    return {
        "postings": index.header.postings,
        "words": index.header.words,
        "bytes_per_posting": round(size / index.header.postings, 3),
        "lists_bytes_per_posting": round(lists / index.header.postings, 3),
        "opened_s": round(opened_s, 2),
        "own_mib": status_bytes("RssAnon") >> 20,
        **{f"p50_ms_{k}": round(float(np.quantile(each, 0.5)), 3) for k, each in times.items()},
        **{f"p99_ms_{k}": round(float(np.quantile(each, 0.99)), 3) for k, each in times.items()},
    }


def overlap(folder: Path) -> float:
    """Fraction of the plain index's first ten hits that the packed one also has."""
    plain, packed = (json.loads((folder / f"{name}-found.json").read_text()) for name in ("plain", "packed"))
    shares = [len(set(a) & set(b)) / len(a) for a, b in zip(plain, packed, strict=True) if a]
    return round(float(np.mean(shares)), 4)


if __name__ == "__main__":
    typer.run(main)
