"""Words and spelling as components: built, merged and joined; merging and joining equal a build of what is left."""

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.artifact import TERMS_TOWER
from glow.errors import ConfigError, MismatchError
from glow.index import (
    DELTA,
    BuildInputs,
    Explained,
    Records,
    RowEncoder,
    RowLayout,
    Rows,
    Segment,
    Segments,
    Texts,
)
from glow.index.learned_sparse import LEARNED_SPARSE, LearnedOptions, LearnedRules
from glow.index.postings import POSTINGS, ImpactIndex, PostingsOptions, PostingsRules
from glow.index.spelling import SPELLING
from glow.records import Document
from glow.runtime import TERMS, VECTOR, Encoder, Model
from glow.text import (
    Analyzer,
    AnalyzerName,
    CorpusCounter,
    TermTable,
    batches_by_length,
    field_words,
    is_lexical,
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
    vocabulary: TermTable
    made: Segment
    encoded: MadeEncoded = field(default_factory=lambda: MadeEncoded({}))
    threads: int = 1
    spread: None = None
    done: int = 0

    @property
    def notes(self) -> Path:
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
    counted, stems, vocabulary = counter.tables()
    table = terms or select_terms("corpus", counted, own.terms)
    made = Segment("made", folder, folder, "", {}, {}, None, Rows(len(held), first))
    return MadeCorpus(model, held, table, counted, stems, vocabulary, made)


def build_words(corpus: MadeCorpus, rules: PostingsRules) -> Segment:
    """Builds and opens words and spelling."""
    spelling = SPELLING.rules(None, asked(corpus.model, "postings"))
    for component, own in ((POSTINGS, rules), (SPELLING, spelling)):
        assert own is not None
        component.build(corpus, own)
        corpus.made = corpus.made.with_reader(component, component.open(corpus.made))
    return corpus.made


def asked(model: Model, *made: str) -> BuildInputs:
    return BuildInputs(model, 32, "cpu", 1, "corpus", {name: PostingsRules() for name in made})


def files(folder: Path) -> dict[str, bytes]:
    """Path -> content."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


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
    rows = RowLayout([len(base), len(delta)], gone)
    return component.reader(Segments("v", (base, delta), rows, rows, order))


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
    blocks = [Records(np.concatenate(done[each.id]), np.array([*map(len, done[each.id])])) for each in held]
    assert encoder.reads == (TERMS,) and all(block.records.dtype == job.dtype for block in blocks)
    corpus.encoded = MadeEncoded({LEARNED_SPARSE.name: blocks})
    build_words(corpus, words)
    LEARNED_SPARSE.build(corpus, rules)
    return corpus.made.with_reader(LEARNED_SPARSE, LEARNED_SPARSE.open(corpus.made))


@pytest.fixture(scope="module")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**16), count=st.integers(0, 25), max_words=st.sampled_from([8, 1000]))
@pytest.mark.parametrize("analyzer", ["plain", "english"])
def test_spelling_counts_whole_words_of_the_texts(
    model: Model, analyzer: AnalyzerName, seed: int, count: int, max_words: int
) -> None:
    with TemporaryDirectory() as scratch:
        corpus = corpus_of(model, made_up(count, seed), Path(scratch) / "made", None, max_words)
        made = build_words(corpus, PostingsRules(analyzer=analyzer))
        held: Counter[str] = Counter()
        for document in corpus.held:
            texts = [text for name, values in document.fields.items() if name != "url" for text in values]
            held.update({word for text in texts for word in model.preprocessor.pieces.words(text)})
        expected = {
            word: held[word]
            for word, _ in corpus.counted.items()
            if held[word] and 4 <= len(word) <= 24 and word.isalpha() and is_lexical(word)
        }
        assert dict(made[SPELLING].items()) == expected
        assert list(expected) == [word for word, _ in made[SPELLING].items()]


def test_rules_of_an_index_make_what_is_added_and_what_replaces_it(tmp_path: Path, model: Model) -> None:
    asked_for = POSTINGS.rules(PostingsOptions(), asked(model))
    assert asked_for is not None and asked_for.average_length is None
    corpus = corpus_of(model, made_up(20), tmp_path / "base")
    base = build_words(corpus, asked_for)
    assert set(files(tmp_path / "base" / "stems")) == {"terms.json", "words.bin", "offsets.npy", "dfs.npy"}
    assert POSTINGS.report(base, asked_for, {})["lexical"]["postings"] == base[POSTINGS].header.postings
    added, replaced = (POSTINGS.rules_of(base, delta=delta) for delta in (True, False))
    assert added is not None and replaced is not None
    assert added.stems == tmp_path / "base" / "stems" and added.analyzer == "english"
    assert added.average_length == base[POSTINGS].header.parameters["average_length"]
    again = build_words(corpus_of(model, corpus.held, tmp_path / "again", corpus.terms), added)
    assert files(again.folder / "impacts") == files(base.folder / "impacts")


def test_words_by_another_analyzer_are_not_joined(tmp_path: Path, model: Model) -> None:
    whole = corpus_of(model, made_up(9), tmp_path / "whole")
    readers = [
        build_words(corpus_of(model, whole.held, tmp_path / name, whole.terms), PostingsRules(analyzer=name))[
            POSTINGS
        ]
        for name in ("plain", "english")
    ]
    with pytest.raises(MismatchError, match="of its base by the analyzer plain, of its delta by english"):
        joined_of(POSTINGS, readers[0], readers[1], np.array([0]))


def test_without_words_there_is_no_spelling(model: Model) -> None:
    assert POSTINGS.rules(PostingsOptions(lexical=False), asked(model)) is None
    assert SPELLING.rules(None, asked(model)) is None


def rules_for(model: Model, **options: Any) -> LearnedRules:
    """Rules of a build."""
    chosen = LearnedOptions.model_validate({"learned": True, **options})
    rules = LEARNED_SPARSE.rules(chosen, asked(model, "postings"))
    assert rules is not None
    return rules


def test_only_the_head_of_an_index_adds_to_it(tmp_path: Path, learned_model: Path) -> None:
    model = Model.open(learned_model)
    rules = rules_for(model, learned_budget=5, learned_words=20)
    corpus = corpus_of(model, made_up(24, 5), tmp_path / "base")
    base = learned_segment(corpus, PostingsRules(), rules, Made())
    assert LEARNED_SPARSE.report(base, rules, {})["learned"]["words"] == 20
    added = LEARNED_SPARSE.rules_of(replace(base, hashes=rules.hashes), delta=True)
    assert added is not None and added.words == tmp_path / "base" / "learned-words"
    LEARNED_SPARSE.check_model(added, model)
    with pytest.raises(MismatchError, match="other learned impacts than made has: expected the hash none"):
        LEARNED_SPARSE.check_model(replace(added, hashes={}), model)


def test_impacts_in_other_units_are_not_joined(tmp_path: Path, learned_model: Path) -> None:
    model = Model.open(learned_model)
    rules = rules_for(model)
    base, delta = (
        learned_segment(corpus_of(model, made_up(5), tmp_path / str(unit)), PostingsRules(), each, Made())
        for unit, each in ((0, rules), (1, replace(rules, unit=0.5)))
    )
    said = r"of its base in the unit 0\.\d+, of its delta in 0\.5; roll back"
    with pytest.raises(MismatchError, match=said):
        joined_of(LEARNED_SPARSE, base[LEARNED_SPARSE], delta[LEARNED_SPARSE], np.array([0]))


@pytest.fixture
def made(tmp_path: Path, learned_model: Path) -> Segment:
    """A version with words and learned impacts, nothing open."""
    model = Model.open(learned_model)
    corpus = corpus_of(model, made_up(8), tmp_path / "base")
    return verified(learned_segment(corpus, PostingsRules(analyzer="plain"), rules_for(model), Made()))


def test_words_of_other_rows_are_refused(made: Segment) -> None:
    other = replace(made, rows=Rows(9)).with_reader(POSTINGS, ImpactIndex.open(made.folder / "impacts"))
    told = r"index made: impacts of 8 documents, 9 stored documents; rebuild"
    with pytest.raises(MismatchError, match=told):
        POSTINGS.open(other)
    learned = r"learned/ holds impacts \(learned\) of 8 documents, "
    with pytest.raises(MismatchError, match=f"index made: {learned}9 stored documents; rebuild the index"):
        LEARNED_SPARSE.open(other)
    for component, said in (
        (POSTINGS, "delta/ holds impacts of 8 documents, "),
        (LEARNED_SPARSE, f"delta/{learned}"),
    ):
        told = f"{said}delta/delta.json says 9 documents; roll back to an older"
        with pytest.raises(MismatchError, match=told):
            component.open(replace(other, below=DELTA))


def test_they_say_what_they_serve_and_why_a_document_was_found(made: Segment) -> None:
    impacts = POSTINGS.open(made)
    assert impacts is not None
    learned = LEARNED_SPARSE.open(made.with_reader(POSTINGS, impacts))
    assert learned is not None
    assert POSTINGS.serves(impacts) == {"lexical": "", "hybrid": ""}
    assert LEARNED_SPARSE.serves(learned) == {"learned-sparse": ""}
    lacks = "this index holds no words, 'hybrid' needs them; build it with --lexical"
    assert POSTINGS.serves(None)["hybrid"] == lacks
    assert LEARNED_SPARSE.serves(None)["learned-sparse"].endswith("build it with glow build --learned-sparse")
    assert POSTINGS.info(impacts) == {"analyzer": "plain"} and POSTINGS.info(None) == {"analyzer": None}
    hit = Explained(int(impacts.search(["bees"], 1)[1][0]), {"bees": "owls"})
    lines = POSTINGS.explain(impacts, "hybrid", ["bees", "unheard"], hit)["lexical"]
    assert [line["word"] for line in lines] == ["bees"] and lines[0]["impact"] > 0
    told = LEARNED_SPARSE.explain(learned, "learned-sparse", ["bees"], hit)["learned"]
    assert told[0]["bm25"] == lines[0]["impact"] and told[0]["because"] == "owls"
    assert (
        POSTINGS.explain(impacts, "dense", ["bees"], hit)
        == LEARNED_SPARSE.explain(learned, "lexical", ["bees"], hit)
        == {}
    )


def test_learned_impacts_need_a_head_and_words(toy_model: Path, learned_model: Path) -> None:
    learned = LEARNED_SPARSE.options.model_validate({"learned": True})
    with pytest.raises(ConfigError, match=r"--learned-sparse: model .* makes no learned impacts"):
        LEARNED_SPARSE.rules(learned, asked(Model.open(toy_model), "postings"))
    with pytest.raises(ConfigError, match="remove --no-lexical"):
        LEARNED_SPARSE.rules(learned, asked(Model.open(learned_model)))
