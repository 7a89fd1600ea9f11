"""The lexical index as a component: BM25 impacts in `impacts/`, and in `stems/` the statistics for the idf of stems."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, tee
from pathlib import Path
from typing import Any

import numpy as np

from glow.errors import ConfigError, MismatchError
from glow.index.component import BuildInputs, Component, ComponentOptions, Corpus, Explained, Rules
from glow.index.postings.build import Bm25, build_lexical, merge_impacts
from glow.index.postings.impacts import ImpactIndex, ImpactsView, SegmentedImpacts, SegmentImpacts
from glow.index.postings.lists import IMPACTS_FOLDER, IMPACTS_HEADER, read_impacts_header
from glow.index.segment import MergeSource, Segment, Segments
from glow.options import option
from glow.text import (
    DEFAULT_ANALYZER,
    Analyzer,
    AnalyzerName,
    LexicalFields,
    TermStats,
    TermTable,
    check_analyzer,
    select_terms,
)

STEMS_FOLDER = "stems"
"""Statistics for idf, for later additions; only if they differ from those of the encoder's words."""
WEIGHT_DIGITS = 4
"""Decimal places of an impact, in explanations."""


class PostingsOptions(ComponentOptions):
    """Options of `glow build`."""

    lexical: bool = option(True, "Build a lexical index, for lexical and hybrid search.")
    analyzer: AnalyzerName = option(DEFAULT_ANALYZER, "Index words unchanged (plain), or as English stems.")
    text_field: tuple[str, ...] = option(
        (), "Metadata that lexical search reads as text; repeatable.", metavar="NAME"
    )
    no_text_field: bool = option(
        False, "Do not search ids, paths of urls and short metadata such as brand or category."
    )

    @property
    def lexical_fields(self) -> LexicalFields:
        """Whose words are indexed, besides the model's text fields."""
        return LexicalFields(text=tuple(dict.fromkeys(self.text_field)), weak=not self.no_text_field)


@dataclass(frozen=True, slots=True)
class PostingsRules(Rules):
    """How words are indexed."""

    analyzer: AnalyzerName = DEFAULT_ANALYZER  # turns words into terms
    # Whose words are indexed, besides the model's text fields
    fields: LexicalFields = field(default_factory=LexicalFields)
    bm25: Bm25 | None = None  # the parameters; None: the defaults
    # In words, of the collection that is extended; None: that of the documents
    average_length: float | None = None
    term_stats: TermStats = "corpus"  # source of the idf of stems
    # Directory of the index's statistics for the idf of stems; None: they are to be computed
    stems: Path | None = None

    @property
    def has_stems(self) -> bool:
        """Whether the index has statistics of its own: for stems, or for words that its encoder does not read."""
        return self.analyzer != "plain" or self.fields != LexicalFields()


class Postings(Component[SegmentImpacts, ImpactsView]):
    """Inverted index of the documents' terms."""

    name, label, stage = "postings", "impacts", "lexical"
    part = "impacts"
    paths, stays = (f"{IMPACTS_FOLDER}/",), (f"{STEMS_FOLDER}/",)
    options = PostingsOptions

    def rules(self, options: PostingsOptions, inputs: BuildInputs) -> PostingsRules | None:
        fields, own = options.lexical_fields, inputs.model.preprocessor
        for name in fields.text:
            if name == "_id" or name in own.schema.names or not options.lexical:
                cause = "it reads metadata" if options.lexical else "--no-lexical builds no words"
                raise ConfigError(f"--text-field {name}: {cause}; the model's own fields are searched anyway")
        if not options.lexical:
            return None
        check_analyzer(options.analyzer, own.weighting.unit)
        return PostingsRules(analyzer=options.analyzer, fields=fields, term_stats=inputs.term_stats)

    def rules_of(self, segment: Segment, *, delta: bool) -> PostingsRules | None:
        if not segment.has(f"{IMPACTS_FOLDER}/{IMPACTS_HEADER}"):
            return None
        header = read_impacts_header(segment.path(IMPACTS_FOLDER))
        rules = PostingsRules(analyzer=header.analyzer, fields=header.fields)
        if not delta:
            return rules
        if header.kind != "bm25":
            raise MismatchError(
                f"the lexical index has the kind {header.kind}, and only bm25 can be extended; build the index again"
            )
        parameters = header.parameters
        return replace(
            rules,
            bm25=Bm25(parameters["k1"], parameters["b"]),
            average_length=parameters["average_length"],
            stems=segment.root / STEMS_FOLDER if rules.has_stems else None,
        )

    def build(self, corpus: Corpus, rules: PostingsRules) -> None:
        """As `Component`: reads the documents a second time, because words must be counted first."""
        own, fields = corpus.model.preprocessor, rules.fields
        documents, again = tee(corpus.documents())

        def weak_words() -> Iterator[set[str]]:
            for each in again:
                corpus.advance(1)
                yield fields.weak_words(each, own.schema, own.pieces)

        build_lexical(
            corpus.made.folder / IMPACTS_FOLDER,
            (fields.words(each, own.schema, own.pieces) for each in documents),
            corpus.vocabulary,
            _idf_table(corpus, rules),
            rules.bm25,
            average_length=rules.average_length,
            analyzer=Analyzer(rules.analyzer),
            fields=fields,
            weak_words=weak_words(),
        )

    def merge(self, sources: Sequence[MergeSource], rules: PostingsRules, target: Segment) -> None:
        merge_impacts([(each.segment[self], each.live) for each in sources], target.folder / IMPACTS_FOLDER)

    def report(self, segment: Segment, rules: PostingsRules, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Counts, parameters and size."""
        header, folder = segment[self].header, segment.path(IMPACTS_FOLDER)
        size_bytes = sum((folder / name).stat().st_size for name in header.files)
        return {
            "lexical": {
                "kind": header.kind,
                "analyzer": header.analyzer,
                "words": header.words,
                "postings": header.postings,
                "parameters": header.parameters,
                "size_bytes": size_bytes,
                "bytes_per_posting": round(size_bytes / max(header.postings, 1), 2),
            }
        }

    def open(self, segment: Segment) -> ImpactIndex | None:
        if not segment.has_any(self.paths):
            return None
        segment.require(f"{IMPACTS_FOLDER}/{IMPACTS_HEADER}")
        folder = segment.path(IMPACTS_FOLDER)
        segment.require(*(f"{IMPACTS_FOLDER}/{name}" for name in read_impacts_header(folder).files))
        impacts = ImpactIndex.open(folder)
        count, documents = len(impacts), segment.rows.documents
        if count != documents:
            said = (
                f"{segment.below} holds impacts of {count} documents, {segment.below}delta.json says {documents} documents"
                if segment.below
                else f"index {segment.name}: impacts of {count} documents, {documents} stored documents"
            )
            raise MismatchError(f"{said}; {segment.remedy}")
        return impacts

    def reader(self, segments: Segments[SegmentImpacts]) -> ImpactsView:
        """Searches all segments, if their words are those of one analyzer."""
        if segments.only is not None:
            return segments.only
        base, *added = (each.analyzer.name for each in segments.readers)
        for delta in added:
            if base != delta:
                raise MismatchError(
                    f"index {segments.name}: words of its base by the analyzer {base}, of its delta by {delta}; "
                    "roll back to its base"
                )
        return SegmentedImpacts(segments)

    def serves(self, reader: ImpactsView | None) -> Mapping[str, str]:
        """Lexical retrieval, alone or in hybrid search."""
        if reader is not None:
            return {"lexical": "", "hybrid": ""}
        return {
            request: f"this index holds no words, {request!r} needs them; build it with --lexical"
            for request in ("lexical", "learned-sparse", "hybrid")
        }

    def info(self, reader: ImpactsView | None) -> dict[str, Any]:
        """The analyzer's name."""
        return {"analyzer": None if reader is None else reader.analyzer.name}

    def explain(
        self, reader: ImpactsView, retriever: str, words: Sequence[str], hit: Explained
    ) -> dict[str, Any]:
        """What each query word of the document adds to the score, and what else counts as one."""
        if retriever == "dense":
            return {}
        counts, row = Counter(words), np.array([hit.row], np.int64)
        impacts = reader.by_word(list(counts), row)[0].tolist()
        lines: list[dict[str, Any]] = [
            {"word": word, "impact": round(count * impact, WEIGHT_DIGITS)}
            for (word, count), impact in zip(counts.items(), impacts, strict=True)
            if impact > 0
        ]
        known = set(map(reader.analyzer.term, words))
        for word in counts:
            for other in hit.others.get(word, ()):
                parts = reader.by_word(other, row)[0].tolist()
                terms = list(map(reader.analyzer.term, other))
                added = sum(part for part, term in zip(parts, terms, strict=True) if term not in known)
                if all(parts) and added:
                    because = " ".join(other)
                    lines.append({"word": word, "impact": round(added, WEIGHT_DIGITS), "because": because})
        return {"lexical": lines}


def document_words(corpus: Corpus, fields: LexicalFields) -> Iterator[Iterator[str]]:
    """The indexed words of each document, the weak ones last; reports progress."""
    own = corpus.model.preprocessor
    for document in corpus.documents():
        weak = fields.weak_words(document, own.schema, own.pieces)
        yield chain(fields.words(document, own.schema, own.pieces), weak)
        corpus.advance(1)


def _idf_table(corpus: Corpus, rules: PostingsRules) -> TermTable:
    """The statistics for idf; those of stems are computed from these documents, and saved, unless the index has them."""
    if not rules.has_stems:
        return corpus.terms
    if rules.stems is not None:
        return TermTable.load(rules.stems)
    own = Analyzer(rules.analyzer).table(corpus.model.preprocessor.terms)
    table = select_terms(rules.term_stats, corpus.counted_terms, own)
    table.save(corpus.made.folder / STEMS_FOLDER)
    return table


POSTINGS = Postings()
