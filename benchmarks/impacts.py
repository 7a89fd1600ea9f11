"""Times lexical search with and without learned impacts, up to a million documents, and bm25s and tantivy.

OMP_NUM_THREADS=1 python -m benchmarks.impacts --index INDEX_ROOT --data DIR --split dev [--documents 1000000] [--tantivy] [--json FILE]

The larger index has copies of the documents, each without 30 % of its words, drawn at random, and with impacts scaled by .6 to 1.
So words keep their document fraction, and documents do not tie. bm25s gets the same BM25 postings as arrays. tantivy
indexes the copies' words as text and computes its own BM25. Each finds the 100 best, query by query, on one thread.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import bm25s
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.machine import machine
from benchmarks.report import emit_json
from glow.artifact import IndexRoot
from glow.evaluation import find_tasks
from glow.index import Index
from glow.index.learned_sparse import LearnedImpacts
from glow.index.postings import ImpactHeader, ImpactIndex, PlainLists
from glow.text import is_lexical

K = 100
ROUNDS = 3
KEPT = 0.7
LEAST = 0.6
LONG = 16
"""Queries to join into a long one."""
Search = Callable[[list[str]], Any]


def blown_up(index: ImpactIndex, copies: int, seed: int) -> ImpactIndex:
    """An index of this number of copies of the documents."""
    random = np.random.default_rng(seed)
    starts, rows, impacts, causes = _arrays(index)
    documents = len(index)
    lists: list[NDArray[np.uint32]] = []
    values: list[NDArray[Any]] = []
    maxima = np.empty(len(starts) - 1, np.float32)
    offsets = (np.arange(copies, dtype=np.uint32) * documents)[:, None]
    for word in range(len(maxima)):
        held = slice(int(starts[word]), int(starts[word + 1]))
        every = (rows[held][None] + offsets).reshape(-1)
        made = np.tile(impacts[held], copies).astype(np.float32)
        made *= random.uniform(LEAST, 1.0, len(made)).astype(np.float32)
        kept = random.random(len(made)) < KEPT
        kept[0] = True
        numbers = (
            made[kept] if impacts.dtype == np.float32 else np.maximum(np.rint(made[kept]), 1).astype(np.uint8)
        )
        lists.append(every[kept])
        values.append(numbers)
        maxima[word] = float(numbers.max()) * index.header.unit
    ends = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    header = ImpactHeader(
        kind=index.header.kind,
        analyzer=index.header.analyzer,
        documents=documents * copies,
        words=len(maxima),
        postings=int(ends[-1]),
        parameters=index.header.parameters,
    )
    joined, codes = np.concatenate(lists), np.concatenate(values)
    new_causes = None if causes is None else np.zeros(len(joined), np.uint8)
    return ImpactIndex(
        header, index.vocabulary, PlainLists(ends, maxima, joined, codes, new_causes, header.unit)
    )


def _arrays(index: ImpactIndex) -> tuple[Any, Any, Any, Any]:
    """The plain arrays of an index."""
    lists = index._lists
    assert isinstance(lists, PlainLists)
    return lists.starts, lists.rows, lists.impacts, lists.causes


def bm25s_of(index: ImpactIndex) -> Search:
    """A bm25s index of the same postings."""
    starts, rows, impacts, _ = _arrays(index)
    peer = bm25s.BM25(method="lucene")
    peer.scores = {
        "data": np.asarray(impacts, np.float32),
        "indices": np.asarray(rows, np.int32),
        "indptr": np.asarray(starts, np.int64),
        "num_docs": len(index),
    }
    peer.nonoccurrence_array = None
    peer.vocab_dict = {index.vocabulary.word(row): row for row in range(len(index.vocabulary))}
    peer.unique_token_ids_set = set(peer.vocab_dict.values())
    term = index.analyzer.term

    def search(words: list[str]) -> Any:
        terms = [term(word) for word in words if is_lexical(word) and term(word) in peer.vocab_dict]
        return peer.retrieve([terms], k=K, show_progress=False) if terms else None

    return search


def tantivy_of(index: ImpactIndex, folder: Path) -> Search:
    """A tantivy index of the copies' words, which computes its own scores."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", stored=False, tokenizer_name="whitespace")
    peer = tantivy.Index(builder.build(), path=str(folder))
    writer = peer.writer(heap_size=1 << 30)
    starts, rows, _, _ = _arrays(index)
    counts = np.bincount(rows, minlength=len(index))
    order = np.argsort(rows, kind="stable")
    words = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[order]
    names = [index.vocabulary.word(row) for row in range(len(index.vocabulary))]
    for place, count in zip((np.cumsum(counts) - counts).tolist(), counts.tolist(), strict=True):
        document = tantivy.Document()
        document.add_text("text", " ".join(names[word] for word in words[place : place + count]))
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    peer.reload()
    searcher, schema, term = peer.searcher(), peer.schema, index.analyzer.term

    def search(asked: list[str]) -> Any:
        terms = [term(word) for word in asked if is_lexical(word)]
        parts = [(tantivy.Occur.Should, tantivy.Query.term_query(schema, "text", each)) for each in terms]
        return searcher.search(tantivy.Query.boolean_query(parts), K, count=False)

    return search


def timed(searches: dict[str, Search], queries: Sequence[list[str]]) -> dict[str, dict[str, float]]:
    """Milliseconds per query of each, alternating by rounds; by queries, postings would be in the CPU cache."""
    found: dict[str, list[float]] = {name: [] for name in searches}
    for each in searches.values():
        each(queries[0])
    for _ in range(ROUNDS):
        for name, search in searches.items():
            for words in queries:
                start = time.perf_counter()
                search(words)
                found[name].append((time.perf_counter() - start) * 1e3)
    return {
        name: {
            "p50_ms": round(statistics.median(times), 3),
            "mean_ms": round(statistics.fmean(times), 3),
            "p95_ms": round(statistics.quantiles(times, n=20)[-1], 3),
        }
        for name, times in found.items()
    }


def measure(
    bm25: ImpactIndex, learned: ImpactIndex | None, queries: Sequence[list[str]], peers: dict[str, Search]
) -> dict[str, Any]:
    """Times of each, and the number of postings to add."""
    searches: dict[str, Search] = {
        "bm25": lambda words: bm25.search(words, K),
    }
    if learned is not None:
        both = LearnedImpacts(bm25, learned)
        searches["learned"] = lambda words: both.search(words, K)
    lists = [sum(len(each.rows) for each in bm25.lists(words)) for words in queries]
    return {
        "documents": len(bm25),
        "postings": bm25.header.postings,
        "learned_postings": 0 if learned is None else learned.header.postings,
        "postings_of_a_query": round(statistics.fmean(lists)),
        "times": timed(searches | peers, queries),
    }


def main(
    index: Annotated[Path, typer.Option(help="Index root with learned impacts.")],
    data: Annotated[Path, typer.Option(help="Data folder with the queries.")],
    split: Annotated[str, typer.Option(help="Judgements that name the queries.")] = "dev",
    queries: Annotated[int, typer.Option(help="Most queries, drawn with a seed.")] = 200,
    documents: Annotated[int, typer.Option(help="Documents to blow up to; 0: none.")] = 1_000_000,
    tantivy: Annotated[bool, typer.Option(help="Measure tantivy too, which indexes for minutes.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")] = None,
) -> None:
    """Prints times as JSON."""
    root = IndexRoot(index)
    folder = root.folder(root.current())
    pieces = Index.open(folder).preprocessor.pieces
    bm25 = ImpactIndex.open(folder / "impacts")
    learned = ImpactIndex.open(folder / "learned") if (folder / "learned").is_dir() else None
    texts = [query.text for query in find_tasks(data, [split])[0].queries]
    drawn = np.random.default_rng(0).choice(len(texts), min(queries, len(texts)), replace=False)
    asked = [list(pieces.words(texts[place])) for place in drawn.tolist()]
    report: dict[str, Any] = {"machine": machine(), "queries": len(asked), "k": K}
    report["as_it_is"] = measure(bm25, learned, asked, {"bm25s": bm25s_of(bm25)})
    if documents:
        copies = -(-documents // len(bm25))
        large = blown_up(bm25, copies, 0)
        more = None if learned is None else blown_up(learned, copies, 1)
        peers = {"bm25s": bm25s_of(large)}
        with tempfile.TemporaryDirectory() as scratch:
            if tantivy:
                peers["tantivy"] = tantivy_of(large, Path(scratch))
            report["blown_up"] = measure(large, more, asked, peers)
            long = [
                [word for words in asked[start : start + LONG] for word in words]
                for start in range(0, len(asked) - LONG, LONG)
            ]
            report["blown_up_long_queries"] = measure(large, more, long, peers)
    emit_json(report, json_file)


if __name__ == "__main__":
    typer.run(main)
