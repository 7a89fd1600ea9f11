"""Measures alternatives over the same data with the same code: BM25, TF-IDF, all-MiniLM-L6-v2.

python -m benchmarks.peers --data DIR [--data DIR] --split dev --out runs/peers [--peer bm25 --peer tfidf] [--rel 2]

Writes OUT/DATA-SPLIT.PEER.trec for each peer and prints the measures.

BM25 is the lexical retriever of glow.evaluation. TF-IDF is scikit-learn's: words of two or more letters without English
stop words, logarithms of counts, cosine. MiniLM is the full 6-layer encoder in sentence-transformers, without further
training, 128 tokens. The last two read a document as one text: its joined fields except the URL.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.report import machine
from glow.evaluation import (
    DEFAULT_MEASURES,
    Corpus,
    DenseOptions,
    Retriever,
    Run,
    Task,
    evaluate,
    find_tasks,
    open_retriever,
    write_run,
)
from glow.evaluation.measures import measure_names
from glow.evaluation.report import Report, report_table, reports_json
from glow.index.vectors import build_dense, set_threads
from glow.records import Document, Hit, Query
from glow.schema import FieldSchema

Peer = Literal["bm25", "tfidf", "minilm"]
MINILM_TOKENS = 128
BATCH = 64


def main(
    data: Annotated[list[Path], typer.Option(help="BEIR folder; may be given several times.")],
    split: Annotated[list[str], typer.Option(help="Judgements, qrels/SPLIT.tsv; may be repeated.")],
    out: Annotated[Path, typer.Option(help="Folder for the TREC runs; made where it is missing.")],
    peer: Annotated[list[str] | None, typer.Option(help="Which; may be repeated. Default: all.")] = None,
    measures: Annotated[list[str], typer.Option(help="As for glow.evaluation.")] = list(DEFAULT_MEASURES),  # noqa: B006
    rel: Annotated[int, typer.Option(help="Lowest relevant grade.")] = 1,
    top_k: Annotated[int, typer.Option(min=1, help="Hits kept for each query.")] = 200,
    threads: Annotated[int, typer.Option(min=1, help="Threads of encoding and searching.")] = 2,
    device: Annotated[str, typer.Option(help="Where MiniLM runs: cpu or cuda.")] = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the reports.")] = None,
) -> None:
    """Searches every split with every peer; each corpus is indexed once for each peer."""
    chosen = peer or list(get_args(Peer))
    if unknown := sorted(set(chosen) - set(get_args(Peer))):
        raise typer.BadParameter(f"no peer {unknown[0]!r}; there are {', '.join(get_args(Peer))}")
    out.mkdir(parents=True, exist_ok=True)
    set_threads(threads)
    reports = []
    for folder in data:
        tasks = find_tasks(folder, split)
        for name in chosen:
            retriever = open_peer(cast(Peer, name), folder, threads, device)
            for task in tasks:
                run = retriever.search(task.queries, top_k)
                write_run(out / f"{task.data}-{task.split}.{name}.trec", run, name)
                reports.append(_report(name, task, run, measure_names(measures), rel, len(retriever.ids)))
    if json_file:
        json_file.write_text(reports_json(reports, per_query=False), encoding="utf-8")
    Console(file=sys.stdout).print(report_table(reports))
    sys.stdout.write(json.dumps(machine()) + "\n")


def _report(name: str, task: Task, run: Run, measures: Sequence[str], rel: int, documents: int) -> Report:
    about = {"model": None, "data": task.data, "split": task.split, "retriever": name}
    evaluation = evaluate(run, task.qrels, measures, rel)
    options = {"rel": rel, "documents": documents, "machine": machine()}
    return Report(about, f"{task.data} {task.split}\n{name}", evaluation, options)


def open_peer(peer: Peer, folder: Path, threads: int, device: str = "cpu") -> Retriever:
    """Opens a peer over the corpus of a data directory."""
    if peer == "bm25":
        return open_retriever("lexical", folder, None, DenseOptions())
    documents = list(Corpus(folder, FieldSchema.preset("glow-default").names))
    return TfIdf(documents) if peer == "tfidf" else MiniLm(documents, threads, device)


def joined(document: Document) -> str:
    """A document as one text: values joined by spaces, fields by full stops, without the URL."""
    return ". ".join(" ".join(values) for name, values in document.fields.items() if name != "url" and values)


class TfIdf:
    """Cosine of TF-IDF vectors; documents that share no word with a query are not returned."""

    def __init__(self, documents: Sequence[Document]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.ids = [document.id for document in documents]
        self._vectoriser = TfidfVectorizer(stop_words="english", sublinear_tf=True)
        self._documents = self._vectoriser.fit_transform(
            [joined(document) for document in documents]
        ).T.tocsr()

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """The k best documents of each query; the earlier one wins a tie."""
        run: dict[str, list[Hit]] = {}
        for start in range(0, len(queries), BATCH):
            block = queries[start : start + BATCH]
            scores = (self._vectoriser.transform([query.text for query in block]) @ self._documents).toarray()
            for query, row in zip(block, scores, strict=True):
                order = np.argsort(-row, kind="stable")[:k]
                run[query.id] = [Hit(self.ids[i], float(row[i])) for i in order if row[i] > 0.0]
        return run


class MiniLm:
    """The 6-layer encoder with mean pooling, and exact search by cosine."""

    def __init__(self, documents: Sequence[Document], threads: int, device: str) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        from glow.nn.bert import minilm_folder

        torch.set_num_threads(threads)
        self.ids = [document.id for document in documents]
        self._model = SentenceTransformer(str(minilm_folder()), device=device, local_files_only=True)
        self._model.max_seq_length = MINILM_TOKENS
        self._index = build_dense(self._encode([joined(document) for document in documents]), "flat")

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """The k nearest documents of each query."""
        scores, rows = self._index.search(self._encode([query.text for query in queries]), k)
        return {
            query.id: [
                Hit(self.ids[row], score)
                for row, score in zip(rows[i].tolist(), scores[i].tolist(), strict=True)
            ]
            for i, query in enumerate(queries)
        }

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        bar = sys.stderr.isatty()
        found: NDArray[np.float32] = self._model.encode(
            texts, batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=bar
        )
        return found


if __name__ == "__main__":
    typer.run(main)
