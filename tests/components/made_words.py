"""Made documents, built into words, spelling and learned impacts without a build around them."""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import TERMS_TOWER
from glow.index import Asked, BaseAndDelta, Records, RowEncoder, Rows, Segment, Segments, Texts
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.postings import POSTINGS, PostingsRules
from glow.index.spelling import SPELLING
from glow.records import Document
from glow.runtime import TERMS, VECTOR, Encoder, Model
from glow.text import (
    Analyzer,
    CorpusCounter,
    TermTable,
    batches_by_length,
    field_words,
    select_terms,
)

NOUNS = "bees owls rivers glaciers coffee beans engines foxes teapot naïveté Zürich running runs 東京".split()
WORDS = [*NOUNS, "the", "of", "tea", "x86", "a" * 30, "home", "homes", "homing"]
QUERY = ["bees", "bees", "rivers", "coffee", "unheard", "runs"]


def made_up(count: int, seed: int = 0) -> list[Document]:
    """Documents with a word in the url alone, and with more anchors than a tower reads."""
    rng = np.random.default_rng(seed)

    def some(words: int) -> str:
        return " ".join(rng.choice(WORDS, words))

    return [
        Document(
            f"d/{seed}/{number}",
            {
                "title": (some(3),),
                "anchor": tuple(some(1) for _ in range(number % 12)),
                "clicked_queries": (some(2),),
                "url": (f"https://example.org/{rng.choice(WORDS)}/onlyhere.html",),
                "text": (some(int(rng.integers(0, 40))),),
            },
        )
        for number in range(count)
    ]


@dataclass
class MadeEncoded:
    """Records in memory."""

    blocks: dict[str, list[Records]]

    def records(self, component: str) -> Iterator[Records]:
        """As `Encoded`."""
        return iter(self.blocks[component])

    def vectors(self) -> Any:
        """None: no component of words asks for them."""
        return np.empty((0, 1), np.float32)


@dataclass
class MadeCorpus:
    """Documents in memory, of which components are built."""

    model: Model
    held: list[Document]
    terms: TermTable
    counted: TermTable
    counted_terms: TermTable
    made: Segment
    encoded: MadeEncoded = field(default_factory=lambda: MadeEncoded({}))
    threads: int = 1
    spread: None = None
    done: int = 0

    @property
    def notes(self) -> Path:
        """As `Corpus`."""
        return self.made.folder

    def documents(self) -> Iterator[Document]:
        """All, in the order of rows."""
        return iter(self.held)

    def advance(self, count: int) -> None:
        """Adds up."""
        self.done += count


def corpus_of(
    model: Model,
    held: list[Document],
    folder: Path,
    terms: TermTable | None = None,
    max_words: int = 1000,
    first: NDArray[np.uint32] | None = None,
) -> MadeCorpus:
    """A corpus whose segment is written into a folder, which is made; without `terms` the index's table is its own."""
    folder.mkdir(parents=True)
    own, counter = model.preprocessor, CorpusCounter(Analyzer("english"), max_words)
    for document in held:
        counter.add(field_words(document, own.schema, own.pieces))
    counted, stems = counter.tables()
    table = terms or select_terms("corpus", counted, own.terms)
    made = Segment("made", folder, folder, "", {}, {}, None, Rows(len(held), first))
    return MadeCorpus(model, held, table, counted, stems, made)


def build_words(corpus: MadeCorpus, rules: PostingsRules) -> Segment:
    """Builds and opens words and spelling."""
    for component, own in (
        (POSTINGS, rules),
        (SPELLING, SPELLING.rules(None, asked(corpus.model, "postings"))),
    ):
        assert own is not None
        component.build(corpus, own)
        corpus.made = corpus.made.with_reader(component, component.open(corpus.made))
    return corpus.made


def asked(model: Model, *made: str) -> Asked:
    return Asked(model, 32, "cpu", 1, "corpus", {name: PostingsRules() for name in made})


def files(folder: Path) -> dict[str, bytes]:
    """Path -> content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def encode(
    model: Model, texts: Sequence[Document], terms: TermTable, encoder: RowEncoder
) -> list[NDArray[Any]]:
    """Records of each text, by batches of the tower, as a build makes them."""
    preprocessor = model.with_terms(terms)
    tower = Encoder(model.folder / TERMS_TOWER, preprocessor.pieces.pad_id, "cpu", 1, 512)
    sequences = [preprocessor.document(text) for text in texts]
    found: dict[int, NDArray[Any]] = {}
    for rows in batches_by_length([len(each) for each in sequences], tower.batch_tokens):
        batch = [sequences[row] for row in rows]
        vectors, terms = tower.run_outputs(batch, [VECTOR, TERMS])
        records, counts = encoder.encode(Texts([texts[row] for row in rows], batch, vectors, {TERMS: terms}))
        found |= zip(rows, np.split(records, np.cumsum(counts)[:-1]), strict=True)
    return [found[row] for row in range(len(texts))]


def verified(segment: Segment, **changes: Any) -> Segment:
    """A version of what was made, none of it open."""
    known: Any = dict.fromkeys(files(segment.folder), ((0,), ""))
    return replace(segment, files=known, readers={}, **changes)


def joined_of(component: Any, base: Any, delta: Any, gone: NDArray[np.int64]) -> Any:
    order = np.random.default_rng(0).permutation(len(base) + len(delta)).astype(np.uint32)
    segments = Segments(len(base), len(delta), gone)
    return component.join(BaseAndDelta("v", base, delta, segments, gone, order))


Made = dict[str, list[NDArray[Any]]]
"""Id of a document -> records of its texts: who is encoded in another batch may round in another way."""


def learned_segment(
    corpus: MadeCorpus, words: PostingsRules, rules: Any, done: Made, *, has_passages: bool = False
) -> Segment:
    """Builds and opens words and learned impacts; of passages, every document is cut in two."""
    held, folder = corpus.held, corpus.made.folder
    if has_passages:
        first = np.arange(0, 2 * len(held) + 1, 2, dtype=np.uint32)
        corpus.made = replace(corpus.made, rows=Rows(len(held), first))
    LEARNED_SPARSE.prepare(corpus, rules)
    before = files(folder)
    LEARNED_SPARSE.prepare(replace(corpus, held=held[1:]), rules)
    assert files(folder) == before  # words that were chosen stay
    job = pickle.loads(pickle.dumps(LEARNED_SPARSE.encoding(corpus.made, rules)))  # noqa: S301 - made here
    encoder = job.open(corpus.model, corpus.terms, "cpu")
    for each in held:
        if each.id not in done:
            text = each.fields["text"][0]
            halves = (text[: len(text) // 2], text[len(text) // 2 :]) if has_passages else (text,)
            texts = [Document(each.id, {**each.fields, "text": (half,)}) for half in halves]
            done[each.id] = encode(corpus.model, texts, corpus.terms, encoder)
    blocks = [
        Records(np.concatenate(done[each.id]), np.array([len(one) for one in done[each.id]])) for each in held
    ]
    assert encoder.reads == (TERMS,) and all(block.records.dtype == job.dtype for block in blocks)
    corpus.encoded = MadeEncoded({LEARNED_SPARSE.name: blocks})
    build_words(corpus, words)
    LEARNED_SPARSE.build(corpus, rules)
    return corpus.made.with_reader(LEARNED_SPARSE, LEARNED_SPARSE.open(corpus.made))
