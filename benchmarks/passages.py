"""Measures gain and cost of passages: questions whose answer is beyond the token limit, and all others.

python -m benchmarks.passages --data $DATA/medquad --documents 3000 --questions 500 --json FILE

Encoding all of MedQuAD with passages takes about ten minutes of one core (69,000 vectors). A sample includes every
document that is relevant to one of the questions. A document is long if the model's token limit leaves words of its
body unread. Questions:

- `past, sentence`   one sentence from the unread part of each long document, which must be unique in the corpus. Its
                     document is relevant. These are not questions of people; they only show whether that part can be
                     found at all.
- `past, detail`     the document's title and the two or three rarest words of that sentence that the read part lacks,
                     as in a question about a known subject. Other documents have the same title.
- `SPLIT`            a split's own questions, all or a sample, which show any loss.
- `SPLIT, past`      those with a word that a relevant long document has only beyond the limit. Words decide, because
                     nobody has marked the place of the answer in a document.

Dense search is exact, with one vector per document against one per passage. Both use the documents' term statistics.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.report import emit_json
from glow.artifact import default_model
from glow.evaluation import compare, evaluate, find_tasks
from glow.evaluation.task import Corpus, Task
from glow.index.passages import TextsOfDocuments, build_passages
from glow.index.vectors import build_dense, set_threads
from glow.records import Document, Hit, Qrel, Query
from glow.runtime import Model, preprocess_documents
from glow.search import search_documents
from glow.text import Preprocessor, TermCounter, field_words, select_terms
from glow.text.passages import PassageCutter, PassageOptions, body_text, sentence_spans

MEASURES = ("R@10", "nDCG@10", "RR@10")
DEPTH = 10
SENTENCE_WORDS = range(6, 41)
DETAIL_WORDS = 3
MIN_LETTERS = 3
BATCH_TOKENS = 512
Run = dict[str, list[Hit]]


@dataclass(frozen=True, slots=True)
class Questions:
    """A set of questions with its relevance judgments; `rel` is the lowest relevant grade."""

    name: str
    queries: list[Query]
    qrels: list[Qrel]
    rel: int = 1


@dataclass(frozen=True, slots=True)
class Parts:
    """The sentences of a long document's body that the tower reads at least in part, and the others."""

    read: list[str]
    unread: list[str]


def main(
    data: Annotated[Path, typer.Option(help="BEIR folder.")],
    split: Annotated[
        list[str], typer.Option(help="Judgements; NAME:GRADE sets the lowest grade that answers.")
    ] = ["dev", "liveqa-dev:2"],  # noqa: B006
    model: Annotated[Path | None, typer.Option(help="Default: what models/DEFAULT names.")] = None,
    documents: Annotated[int, typer.Option(min=1, help="Documents of the sample; default: all.")] = 1 << 30,
    questions: Annotated[int, typer.Option(min=1, help="Most questions of a split.")] = 1 << 30,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write the report.")] = None,
) -> None:
    """Encodes a corpus without and with passages, and searches both with the same questions."""
    set_threads(1)
    opened = Model.open(model or default_model())
    generator = np.random.default_rng(0)
    tasks = [_task(data, name, questions, generator) for name in split]
    corpus = _sample(Corpus(data, opened.preprocessor.schema.names), tasks, documents, generator)
    bench = _Bench(opened, corpus, PassageOptions())
    sets = [*bench.synthetic(generator), *(found for task in tasks for found in bench.judged(task))]
    report = {"model": opened.label, **bench.compare(sets)}
    emit_json(report, json_file)


def _task(data: Path, name: str, questions: int, generator: np.random.Generator) -> Questions:
    """A split, or a sample of its questions."""
    split, _, grade = name.partition(":")
    task: Task = find_tasks(data, [split])[0]
    chosen = generator.permutation(len(task.queries))[:questions]
    queries = [task.queries[place] for place in np.sort(chosen)]
    ids = {query.id for query in queries}
    return Questions(split, queries, [qrel for qrel in task.qrels if qrel.query_id in ids], int(grade or 1))


def _sample(
    corpus: Iterable[Document], tasks: Sequence[Questions], count: int, generator: np.random.Generator
) -> list[Document]:
    """Every document with a grade above 0, then others at random, in the order of the corpus."""
    every = list(corpus)
    judged = {qrel.document_id for task in tasks for qrel in task.qrels if qrel.grade > 0}
    order = [every[place] for place in generator.permutation(len(every))]
    order.sort(key=lambda document: document.id not in judged)
    kept = {document.id for document in order[: max(count, 1)]} | judged
    return [document for document in every if document.id in kept]


class _Bench:
    """A corpus with its term statistics and passage boundaries."""

    def __init__(self, model: Model, documents: list[Document], options: PassageOptions) -> None:
        self.model = model
        self.documents = documents
        self.options = options
        own = model.preprocessor
        counter = TermCounter()
        for document in documents:
            counter.add(field_words(document, own.schema, own.pieces))
        self.preprocessor: Preprocessor = model.with_terms(select_terms("corpus", counter.table(), own.terms))
        self.cutter = PassageCutter(self.preprocessor, options)
        found = ((document.id, self._parts(document)) for document in documents)
        self.long = {identifier: parts for identifier, parts in found if parts}

    def _parts(self, document: Document) -> Parts | None:
        if self.cutter.field not in self.preprocessor.document(document).dropped_words:
            return None
        text, room = (
            body_text(document, self.cutter.field),
            self.preprocessor.room(document, self.cutter.field),
        )
        parts, used = Parts([], []), 0
        for start, end in sentence_spans(text):
            (parts.read if used < room else parts.unread).append(text[start:end])
            pieces = self.preprocessor.pieces
            used += sum(len(pieces.pieces(word)) for word in pieces.words(text[start:end]))
        return parts

    def _other_words(self, document: Document) -> set[str]:
        """Words of all fields except the body."""
        words = field_words(document, self.preprocessor.schema, self.preprocessor.pieces)
        return {word for name, found in words.items() if name != self.cutter.field for word in found}

    def _words(self, text: str) -> list[str]:
        return [
            word
            for word in self.preprocessor.pieces.words(text)
            if word.isalpha() and len(word) >= MIN_LETTERS
        ]

    def synthetic(self, generator: np.random.Generator) -> list[Questions]:
        """Questions made from unread sentences."""
        counts = Counter(
            text[start:end]
            for document in self.documents
            for text in (body_text(document, self.cutter.field),)
            for start, end in sentence_spans(text)
        )
        sentences, details = Questions("past, sentence", [], []), Questions("past, detail", [], [])
        for document in self.documents:
            parts = self.long.get(document.id)
            candidates = [
                text
                for text in (parts.unread if parts else [])
                if counts[text] == 1 and len(self.preprocessor.pieces.words(text)) in SENTENCE_WORDS
            ]
            if not parts or not candidates:
                continue
            sentence = candidates[int(generator.integers(len(candidates)))]
            _ask(sentences, document, sentence)
            known = {*self._words(" ".join(parts.read)), *self._other_words(document)}
            fresh = [word for word in dict.fromkeys(self._words(sentence)) if word not in known]
            rare = sorted(fresh, key=lambda word: -self.preprocessor.weigher.idf(word))[:DETAIL_WORDS]
            if len(rare) > 1:
                _ask(details, document, " ".join([*document.fields.get("title", ()), *rare]))
        return [sentences, details]

    def judged(self, task: Questions) -> list[Questions]:
        """A split's questions, and those whose answer seems to be beyond the token limit."""
        texts = {query.id: query.text for query in task.queries}
        known = {document.id: document for document in self.documents}
        past = set()
        for qrel in task.qrels:
            parts = self.long.get(qrel.document_id)
            if parts and qrel.grade >= task.rel:
                read = {*self._words(" ".join(parts.read)), *self._other_words(known[qrel.document_id])}
                unread = set(self._words(" ".join(parts.unread)))
                if any(word in unread and word not in read for word in self._words(texts[qrel.query_id])):
                    past.add(qrel.query_id)
        queries = [query for query in task.queries if query.id in past]
        qrels = [qrel for qrel in task.qrels if qrel.query_id in past]
        return [task, Questions(f"{task.name}, past", queries, qrels, task.rel)]

    def compare(self, sets: Sequence[Questions]) -> dict[str, Any]:
        """Encodes twice, searches and measures."""
        with tempfile.TemporaryDirectory() as folder:
            started = time.process_time()
            passages = build_passages(self.documents, self.cutter, Path(folder))
            cut_s = time.process_time() - started
            whole, whole_s = self._encode(self.documents)
            parts, parts_s = self._encode(
                text
                for row, document in enumerate(self.documents)
                for text in TextsOfDocuments(passages).of(document, row)
            )
            dense, cut = build_dense(whole, "flat"), build_dense(parts, "flat")
            encoder = self.model.encoder("query", batch_tokens=BATCH_TOKENS)
            measured = {}
            for asked in filter(lambda found: found.queries, sets):
                vectors = encoder.encode([self.preprocessor.query(query.text) for query in asked.queries])
                scores, rows = dense.search(vectors, DEPTH)
                folded = search_documents(cut, passages, vectors, DEPTH)
                before = self._run(asked, zip(scores, rows, strict=True))
                after = self._run(asked, ((scores, rows) for scores, rows, _ in folded))
                measured[asked.name] = _measured(asked, before, after)
        return {
            "documents": len(self.documents),
            "long_documents": len(self.long),
            "passages": len(passages),
            "passages_per_document": round(len(passages) / len(self.documents), 2),
            "cpu_ms": {
                "cut_per_document": round(1e3 * cut_s / len(self.documents), 2),
                "encode_per_document": round(1e3 * whole_s / len(self.documents), 2),
                "encode_per_passage": round(1e3 * parts_s / len(passages), 2),
                "build_ratio": round((cut_s + parts_s) / whole_s, 2),
            },
            "questions": measured,
        }

    def _encode(self, documents: Iterable[Document]) -> tuple[NDArray[np.float32], float]:
        """Vectors, and the CPU seconds of their encoding on one thread."""
        encoder = self.model.encoder("document", batch_tokens=BATCH_TOKENS)
        started = time.process_time()
        blocks = []
        for _, _, sequences in preprocess_documents(documents, self.preprocessor):
            blocks.append(encoder.encode(sequences))
            sys.stderr.write(f"\r{sum(map(len, blocks))} vectors")
        sys.stderr.write("\n")
        return np.concatenate(blocks), time.process_time() - started

    def _run(self, asked: Questions, found: Iterable[tuple[Any, Any]]) -> Run:
        return {
            query.id: [
                Hit(self.documents[row].id, score)
                for score, row in zip(scores.tolist(), rows.tolist(), strict=True)
            ]
            for query, (scores, rows) in zip(asked.queries, found, strict=True)
        }


def _ask(questions: Questions, document: Document, text: str) -> None:
    questions.queries.append(Query(document.id, text))
    questions.qrels.append(Qrel(document.id, document.id, 1))


def _measured(asked: Questions, before: Run, after: Run) -> dict[str, Any]:
    """Each measure without and with passages, and the 95 % interval of the gain."""
    first, second = (evaluate(run, asked.qrels, MEASURES, asked.rel) for run in (before, after))
    found: dict[str, Any] = {"queries": len(asked.queries)}
    for measure in MEASURES:
        gain = compare(first.values[measure], second.values[measure])
        interval = [round(gain.low, 4), round(gain.high, 4)]
        means = {"without": round(gain.mean_a, 4), "with": round(gain.mean_b, 4)}
        found[measure] = {**means, "gain": round(gain.difference, 4), "interval": interval}
    return found


if __name__ == "__main__":
    typer.run(main)
