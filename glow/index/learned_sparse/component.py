"""Learned impacts as a component of an index: `learned/`, and `learned-words/` with their vocabulary."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import LEARNED_HEAD, learned_hash
from glow.errors import ConfigError, MismatchError
from glow.index.component import (
    BuildInputs,
    Component,
    ComponentOptions,
    Corpus,
    Explained,
    Records,
    Rules,
    Texts,
)
from glow.index.learned_sparse.impacts import (
    LEARNED_WORDS_FILES,
    LEARNED_WORDS_FOLDER,
    Expansion,
    LearnedImpacts,
    LearnedView,
    LearnedWords,
    SegmentedLearned,
    StoredLearned,
    WordScorer,
    WordSide,
    choose_words,
)
from glow.index.postings import (
    IMPACTS_HEADER,
    LEARNED_FILES,
    LEARNED_FOLDER,
    POSTINGS,
    ImpactHeader,
    ImpactIndex,
    ImpactWriter,
    Vocabulary,
    merge_impacts,
    pack_codes,
    read_impacts_header,
)
from glow.index.ranking import set_numpy_threads
from glow.index.segment import MergeSource, Segment, Segments
from glow.options import option
from glow.records import Document
from glow.runtime import TERMS, Device, LearnedHead, Model
from glow.text import TermTable, is_lexical, lexical_tokens

CLICKED_QUERIES = "clicked_queries"
"""Field of the queries whose users clicked the document, if the schema has it."""
RECORD = np.dtype([("word", "<u4"), ("cause", "u1"), ("code", "u1")])


def require_learned(model: Model) -> str:
    """The hash of a model's head for learned impacts."""
    digest = learned_hash(model.manifest.files)
    if digest is None:
        raise ConfigError(
            f"--learned-sparse: model {model.label} makes no learned impacts; train a head (glow train --config configs/learned.toml) "
            "and export the model with it (glow export-model --learned)"
        )
    return digest


def make_word_side(
    model: Model,
    documents: Iterable[Document],  # of the index; their clicked queries show which words are searched
    corpus: TermTable,
    terms: TermTable,
    limit: int,
    threads: int,
) -> WordSide:
    """The vocabulary of an index's learned impacts, with the outputs of the model's head."""
    head = LearnedHead.load(model.folder / LEARNED_HEAD)
    encoder = model.encoder("query", "cpu", threads)
    pieces = model.preprocessor.pieces
    queries = Counter(
        word
        for document in documents
        for query in document.fields.get(CLICKED_QUERIES, ())
        for word in pieces.words(query)
        if is_lexical(word)
    )
    return WordSide.make(choose_words(corpus, head, limit, queries), head, model.with_terms(terms), encoder)


@dataclass(frozen=True, slots=True)
class LearnedJob:
    """Makes learned impacts."""

    words: Path  # directory of the vocabulary
    budget: int  # most words of a document
    unit: float | None = None  # the index's impact of code 1; None: derived from the vocabulary

    @property
    def dtype(self) -> np.dtype[Any]:
        """As `EncodeJob`: a word's number, its cause and its code."""
        return RECORD

    def open(self, model: Model, terms: TermTable, device: Device) -> "LearnedEncoder":
        """Opens the encoder, for a model with a head."""
        set_numpy_threads(1)
        head = LearnedHead.load(model.folder / LEARNED_HEAD)
        return LearnedEncoder(WordScorer(WordSide.load(self.words), head.cut, self.budget, self.unit))


class LearnedEncoder:
    """Converts directions of tokens to learned words; safe to use from many threads."""

    reads: tuple[str, ...] = (TERMS,)

    def __init__(self, scorer: WordScorer) -> None:
        self._scorer = scorer

    def encode(self, batch: Texts) -> Records:
        """The most important words of each text."""
        directions = batch.outputs[TERMS]
        parts = [np.empty(0, RECORD)]
        for place, sequence in enumerate(batch.sequences):
            spoken = lexical_tokens(sequence)
            tokens = directions[place, spoken]
            if not np.isfinite(tokens).all():
                raise ValueError(f"the directions of document {batch.texts[place].id!r} are not finite")
            words = self._scorer.score(tokens, sequence.word_ids[spoken])
            records = np.empty(len(words.words), RECORD)
            records["word"], records["cause"], records["code"] = words.words, words.causes, words.codes
            parts.append(records)
        counts = np.fromiter(map(len, parts[1:]), np.int64, len(parts) - 1)
        return Records(np.concatenate(parts), counts)


def words_of(blocks: Iterable[Records]) -> Iterator[LearnedWords]:
    """The learned words of each text, from records of `LearnedEncoder`."""
    for records, counts in blocks:
        ends = np.cumsum(counts).tolist()
        for stop, count in zip(ends, counts.tolist(), strict=True):
            own = records[stop - count : stop]
            yield LearnedWords(own["word"], own["code"], own["cause"])


def build_learned(
    folder: Path,
    rows: Iterable[LearnedWords],  # the words of each document, or of each passage, in order
    words: Sequence[str],  # the vocabulary, sorted by UTF-8 bytes
    unit: float,
    budget: int,
    # Combines the words of a document's passages, as `WordScorer.best_of`; required for passages
    join: Callable[[Sequence[LearnedWords]], LearnedWords] | None = None,
    # Int [n + 1], the first row of each document if rows are passages; None: row i is document i
    first: NDArray[np.int64] | NDArray[np.uint32] | None = None,
) -> ImpactHeader:
    """Writes the folder."""
    documents = iter(rows)
    if first is not None and join is not None:
        documents = _by_document(documents, first, join)
    with ImpactWriter(folder, words) as writer:
        for document in documents:
            writer.add(document.words.tolist(), pack_codes(document.codes, document.causes).tolist())
        parameters = {"unit": unit, "budget": float(budget)}
        return writer.finish("learned", lambda _words, _rows, values: values, parameters)


def _by_document(
    rows: Iterator[LearnedWords],
    first: NDArray[np.int64] | NDArray[np.uint32],
    join: Callable[[Sequence[LearnedWords]], LearnedWords],
) -> Iterator[LearnedWords]:
    for start, stop in pairwise(first.tolist()):
        yield join(list(islice(rows, stop - start)))


WEIGHT_DIGITS = 4
"""Decimal places of an impact, in explanations."""


class LearnedOptions(ComponentOptions):
    """Options of `glow build`."""

    learned: bool = option(
        False,
        "Add learned sparse retrieval, which also finds related terms. Needs a model with a head for it.",
        flag="--learned-sparse",
    )
    learned_budget: int = option(
        100, "Most learned terms per document.", ge=1, le=10_000, flag="--expansion-terms"
    )
    learned_words: int = option(
        10_000,
        "Number of distinct learned terms: the most likely in queries.",
        ge=1,
        flag="--expansion-vocabulary",
    )


@dataclass(frozen=True, slots=True)
class LearnedRules(Rules):
    """How learned impacts are made."""

    budget: int = 100  # most words of a document
    limit: int = 10_000  # most words of the vocabulary; ignored if `words` is given
    words: Path | None = None  # directory of the index's vocabulary; None: it is still to be chosen
    unit: float | None = None  # the index's impact of code 1; None: derived from the vocabulary
    index: str = ""  # its name, for messages; empty: there is none yet


class LearnedSparse(Component[StoredLearned, LearnedView]):
    """Learned impacts, searched together with those of BM25."""

    name, label, stage, prepares = "learned_sparse", "learned impacts", "learned", "learned-words"
    part = "learned"
    paths, stays = (f"{LEARNED_FOLDER}/",), (f"{LEARNED_WORDS_FOLDER}/",)
    needs = ("postings",)
    options = LearnedOptions

    def rules(self, options: LearnedOptions, inputs: BuildInputs) -> LearnedRules | None:
        if not options.learned:
            return None
        digest = require_learned(inputs.model)
        if POSTINGS.name not in inputs.rules:
            raise ConfigError("--learned-sparse needs BM25: remove --no-lexical")
        return LearnedRules(
            hashes={"learned": digest}, budget=options.learned_budget, limit=options.learned_words
        )

    def rules_of(self, segment: Segment, *, delta: bool) -> LearnedRules | None:
        if not segment.has(f"{LEARNED_FOLDER}/{IMPACTS_HEADER}"):
            return None
        header = read_impacts_header(segment.path(LEARNED_FOLDER))
        hashes = {name: digest for name, digest in segment.hashes.items() if name == "learned"}
        return LearnedRules(
            hashes=hashes,
            budget=int(header.parameters["budget"]),
            words=(segment.root / LEARNED_WORDS_FOLDER).resolve(),
            unit=header.unit,
            index=segment.name,
        )

    def check_model(self, rules: LearnedRules, model: Model) -> None:
        """As `Component`: the head must be that of the index."""
        own, expected = learned_hash(model.manifest.files), rules.hashes.get("learned")
        if own != expected:
            raise MismatchError(
                f"model {model.label} makes other learned impacts than {rules.index} has: expected the hash "
                f"{(expected or 'none')[:8]}, found {(own or 'none')[:8]}; give the model that built it with --model"
            )

    def prepare(self, corpus: Corpus, rules: LearnedRules) -> None:
        """Chooses the vocabulary; it stays the same if documents are left out later, because records refer to its positions."""
        chosen = f"{LEARNED_WORDS_FOLDER}/{LEARNED_WORDS_FILES[0]}"
        if rules.words is None and not corpus.made.has(chosen):
            side = make_word_side(
                corpus.model, corpus.documents(), corpus.counted, corpus.terms, rules.limit, corpus.threads
            )
            side.save(corpus.made.folder / LEARNED_WORDS_FOLDER)

    def encoding(self, segment: Segment, rules: LearnedRules) -> LearnedJob:
        return LearnedJob(_words_folder(segment, rules), rules.budget, rules.unit)

    def build(self, corpus: Corpus, rules: LearnedRules) -> None:
        target = corpus.made
        side = WordSide.load(_words_folder(target, rules))
        # Nothing is scored here: only the head's unit is needed, which an existing index has.
        cut = 0.0 if rules.unit is not None else LearnedHead.load(corpus.model.folder / LEARNED_HEAD).cut
        scorer = WordScorer(side, cut, rules.budget, rules.unit)
        rows = words_of(corpus.encoded.records(self.name))
        folder = target.folder / LEARNED_FOLDER
        build_learned(folder, rows, side.words, scorer.unit, rules.budget, scorer.best_of, target.rows.first)

    def merge(self, sources: Sequence[MergeSource], rules: LearnedRules, target: Segment) -> None:
        merge_impacts(
            [(each.segment[self].learned, each.live) for each in sources], target.folder / LEARNED_FOLDER
        )

    def report(self, segment: Segment, rules: LearnedRules, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Counts, parameters and size."""
        header, folder = segment[self].learned.header, segment.path(LEARNED_FOLDER)
        return {
            "learned": {
                "words": len(Vocabulary.load(_words_folder(segment, rules))),
                "postings": header.postings,
                "postings_per_document": round(header.postings / max(header.documents, 1), 1),
                "parameters": header.parameters,
                "size_bytes": sum((folder / name).stat().st_size for name in LEARNED_FILES),
            }
        }

    def open(self, segment: Segment) -> StoredLearned | None:
        """As `Component`; a delta has the vocabulary of its base."""
        if not segment.has_any(self.paths):
            return None
        segment.require(*(f"{LEARNED_FOLDER}/{name}" for name in LEARNED_FILES))
        if segment.files is not None and not segment.below:
            segment.require(*(f"{LEARNED_WORDS_FOLDER}/{name}" for name in LEARNED_WORDS_FILES))
        learned = ImpactIndex.open(segment.path(LEARNED_FOLDER))
        count, kind, documents = len(learned), learned.header.kind, segment.rows.documents
        if count != documents or kind != "learned":
            content = f"{segment.below}{LEARNED_FOLDER}/ holds impacts ({kind}) of {count} documents"
            said = (
                f"{content}, {segment.below}delta.json says {documents} documents"
                if segment.below
                else f"index {segment.name}: {content}, {documents} stored documents"
            )
            raise MismatchError(f"{said}; {segment.remedy}")
        bm25 = segment[POSTINGS]
        if not isinstance(bm25, ImpactIndex) or bm25.is_remote:
            raise MismatchError(
                f"index {segment.name}: BM25 is in a store, learned impacts are not; {segment.remedy}"
            )
        return LearnedImpacts(bm25, learned)

    def reader(self, segments: Segments[StoredLearned]) -> LearnedView:
        """Searches all segments, if their impacts have one unit."""
        if segments.only is not None:
            return segments.only
        base, *added = (each.learned.header.unit for each in segments.readers)
        for delta in added:
            if base != delta:
                raise MismatchError(
                    f"index {segments.name}: learned impacts of its base in the unit {base:g}, of its delta in "
                    f"{delta:g}; roll back to its base"
                )
        return SegmentedLearned(segments)

    def serves(self, reader: LearnedView | None) -> Mapping[str, str]:
        """Learned sparse retrieval."""
        why = "this index holds no learned impacts; build it with glow build --learned-sparse"
        return {"learned-sparse": "" if reader is not None else why}

    def explain(
        self, reader: LearnedView, retriever: str, words: Sequence[str], hit: Explained
    ) -> dict[str, Any]:
        """What each word of the query adds, by its source."""
        if retriever not in ("learned-sparse", "hybrid"):
            return {}
        expansions = reader.expansions(words, hit.row)
        return {"learned": [_line(word, each, hit.because.get(word)) for word, each in expansions.items()]}


def _words_folder(segment: Segment, rules: LearnedRules) -> Path:
    return rules.words or segment.path(LEARNED_WORDS_FOLDER).resolve()


def _line(word: str, expansion: Expansion, because: str | None) -> dict[str, Any]:
    bm25, learned = (round(impact, WEIGHT_DIGITS) for impact in (expansion.bm25, expansion.learned))
    line = {"word": word, "bm25": bm25, "learned": learned}
    return line if because is None else {**line, "because": because}


LEARNED_SPARSE = LearnedSparse()
