"""Makes training pairs from documents alone: parts of a document's text serve as its queries.

Queries are clicked queries, titles, anchors, first sentences, other sentences (an inverse cloze task) and keywords.
The result is a normal data directory. Its corpus is a copy in which a document may lack the source of a query, because
a title that matches only the document's own title teaches nothing. Half of the sources stay by default: a served
document has its title, and common words indicate relevance, too (Lee et al., ORQA, 2019, keep 10 % of the sentences of
their cloze task).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glow.artifact import file_sha256
from glow.collection import read_documents
from glow.errors import ConfigError, InputError
from glow.evaluation import FusedRetriever, LexicalRetriever
from glow.records import Document, Query
from glow.schema import FieldSchema
from glow.training.encode import EncodedCorpus, EncodeOptions, Source, open_source

Kind = Literal["clicked", "title", "anchor", "first", "keywords", "cloze"]
KINDS: tuple[Kind, ...] = ("clicked", "title", "anchor", "first", "keywords", "cloze")
"""Kinds of queries, the most reliable descriptions of their document first."""

MIN_WORDS: dict[Kind, int] = {"clicked": 1, "title": 1, "anchor": 2, "first": 4, "keywords": 2, "cloze": 4}
"""Fewest words: one may be a clicked query or a title (a command's name); in an anchor it is mostly `here` or `more`."""
MAX_WORDS = 40
KEYWORDS = (2, 5)
MIN_LETTERS = 2
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=\s*>>>)")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[^\W_]+(?:[-'.+#_][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible query for a document: its kind and its text."""

    kind: Kind
    text: str


class KeywordCounts:
    """Document frequencies of a corpus's words, for keyword queries."""

    def __init__(self, documents: Sequence[Document], schema: FieldSchema) -> None:
        self._names = tuple(spec.name for spec in schema.fields if spec.kind == "text")
        self._documents = len(documents)
        self._dfs: Counter[str] = Counter()
        for document in documents:
            self._dfs.update(set(self._words(document)))

    def keywords(self, document: Document, count: int) -> str:
        """At most `count` words of highest tf·idf, in the order of their first occurrence."""
        frequencies = Counter(self._words(document))  # keeps the order of first occurrence
        scores = {word: tf * self._idf(word) for word, tf in frequencies.items()}
        best = set(sorted(scores, key=lambda word: -scores[word])[:count])
        return " ".join(word for word in frequencies if word in best)

    def _idf(self, word: str) -> float:
        df = self._dfs[word]
        return log(1.0 + (self._documents - df + 0.5) / (df + 0.5))

    def _words(self, document: Document) -> Iterator[str]:
        for name in self._names:
            for text in document.fields.get(name, ()):
                for word in _WORD.findall(text.lower()):
                    if len(word) >= MIN_LETTERS and any(letter.isalpha() for letter in word):
                        yield word


def candidates(document: Document, counts: KeywordCounts, random: np.random.Generator) -> list[Candidate]:
    """All distinct query candidates of a document, in the order of `KINDS`."""
    by_text: dict[str, Candidate] = {}
    for kind, text in _texts(document, counts, random):
        plain = _SPACE.sub(" ", text).strip()
        if MIN_WORDS[kind] <= len(plain.split()) <= MAX_WORDS and _WORD.search(plain):
            by_text.setdefault(_key(plain), Candidate(kind, plain))
    return list(by_text.values())


def choose(found: Sequence[Candidate], most: int, random: np.random.Generator) -> list[Candidate]:
    """Chooses up to `most`: the first candidate, then random ones that spread evenly over the kinds."""
    if not found:
        return []
    taken: Counter[str] = Counter([found[0].kind])
    turns: list[tuple[int, int, int]] = []
    for place in (random.permutation(len(found) - 1) + 1).tolist():
        turns.append((taken[found[place].kind], len(turns), place))
        taken[found[place].kind] += 1
    return [found[0], *(found[place] for _, _, place in sorted(turns)[: most - 1])]


def without(document: Document, text: str) -> Document:
    """A copy of a document without a text that is a whole value or a whole sentence of it."""
    key = _key(text)
    fields = {
        name: tuple(rest for value in values if (rest := _cut(value, key)))
        for name, values in document.fields.items()
    }
    return Document(document.id, fields, document.metadata)


def _texts(
    document: Document, counts: KeywordCounts, random: np.random.Generator
) -> Iterator[tuple[Kind, str]]:
    fields = document.fields
    yield from (("clicked", text) for text in fields.get("clicked_queries", ()))
    titles = fields.get("title", ())
    yield from (("title", text) for text in titles)
    yield from (("anchor", text) for text in fields.get("anchor", ()))
    sentences = [sentence for body in fields.get("text", ()) for sentence in _SENTENCE_END.split(body)]
    # A body may begin with its title; the first sentence is then the next long enough one.
    known = {_key(title) for title in titles}
    least = MIN_WORDS["first"]
    others = [text for text in sentences if _key(text) not in known and len(text.split()) >= least]
    yield from (("first", sentence) for sentence in others[:1])
    low, high = KEYWORDS
    yield "keywords", counts.keywords(document, int(random.integers(low, high + 1)))
    yield from (("cloze", sentence) for sentence in others[1:])


def _cut(value: str, key: str) -> str:
    if _key(value) == key:
        return ""
    sentences = _SENTENCE_END.split(value)
    kept = [sentence for sentence in sentences if _key(sentence) != key]
    return value if len(kept) == len(sentences) else " ".join(kept)


def _key(text: str) -> str:
    """A key that ignores case, white space and surrounding punctuation."""
    return _SPACE.sub(" ", text).strip(" .!?").lower()


REPORT_FILE = "synthesis.json"
FORMAT_VERSION = 2
POOL = 2
"""Candidates to try per wanted query if the round trip rejects some."""
MIN_SHARE_LEFT = 0.5
Pair = tuple[int, Candidate]
"""A document's number, and a query for it."""


@dataclass(frozen=True, slots=True)
class SynthesisOptions:
    """Options of synthesis."""

    max_queries: int = 4  # most queries per document, >= 1
    # probability in [0, 1] that a query's source is removed from its document's copy; at least half of the document's words always stay
    drop: float = 0.5
    round_trip: int = 3  # lowest rank at which a query must find its document, >= 0; 0 keeps every query
    seed: int = 0  # seed of every choice
    kinds: tuple[str, ...] = KINDS  # kinds of queries to make, some of `KINDS`
    # fraction in [0, 1) of the documents whose queries form the split `dev`; these skip the round trip, because it would
    # favor the filtering model, and their sources are always removed
    held_out: float = 0.0

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise ConfigError(
                f"expected kinds of queries among {', '.join(KINDS)}, found {', '.join(unknown) or 'none'}"
            )
        are_shares = 0.0 <= self.drop <= 1.0 and 0.0 <= self.held_out < 1.0
        if self.max_queries < 1 or self.round_trip < 0 or not are_shares:
            raise ConfigError(
                f"expected max_queries >= 1, drop in [0, 1], round_trip >= 0, held_out in [0, 1), found {self}"
            )


CANDIDATES = 50
"""Hits to fuse: a document that one retriever ranks first counts even if the other ranks it far down."""
BLOCK_QUERIES = 1024


def is_consistent(
    source: Source,
    documents: Sequence[Document],
    schema: FieldSchema,
    pairs: Sequence[Pair],
    rank: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> NDArray[np.bool_]:
    """Which queries find their document among the first `rank`, by vectors and BM25 fused by reciprocal ranks, bool [pairs].

    Others are mostly too general (`See also`, `Introduction`) or not about its subject.
    """
    names = [spec.name for spec in schema.fields if spec.kind == "text"]
    retriever = FusedRetriever(
        [EncodedCorpus(source, documents, progress), LexicalRetriever(documents, names)]
    )
    found = np.zeros(len(pairs), np.bool_)
    for start in range(0, len(pairs), BLOCK_QUERIES):
        block = range(start, min(start + BLOCK_QUERIES, len(pairs)))
        run = retriever.search([Query(str(i), pairs[i][1].text) for i in block], max(CANDIDATES, rank))
        for i in block:
            wanted = documents[pairs[i][0]].id
            found[i] = any(hit.document_id == wanted for hit in run[str(i)][:rank])
    return found


def synthesize(
    corpus: Path,
    out: Path,
    schema: FieldSchema,
    options: SynthesisOptions = SynthesisOptions(),
    model: Path | None = None,
    encode: EncodeOptions = EncodeOptions(),  # noqa: B008 - frozen
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Writes a data directory of synthetic queries, in the split `train` and perhaps `dev`, and the report; keeps an existing one.

    `model` is a model or checkpoint for the round trip's searches.
    """
    source = None
    if options.round_trip:
        if model is None:
            raise ConfigError("a round trip needs a model or a checkpoint: give one, or round_trip 0")
        source = open_source(model, encode)
    try:
        digest = file_sha256(corpus)
    except OSError as error:
        raise InputError(f"cannot read {corpus}: {error.strerror}") from error
    made_from = {  # all that decides the result
        "format": FORMAT_VERSION,
        "corpus": digest,
        "schema": schema.hash,
        "options": {**asdict(options), "kinds": list(options.kinds)},  # as JSON restores it
        "model": source.hash if source else None,
    }
    known = _known(out)
    if isinstance(known, dict) and known.get("made_from") == made_from:
        return known
    documents = list(read_documents(corpus, schema.names))
    if not documents:
        raise InputError(f"{corpus} holds no document with text in {', '.join(schema.names)}")
    tried = list(_pairs(documents, schema, options))
    random = np.random.default_rng([options.seed, len(documents), 2])
    held_out = set(np.flatnonzero(random.random(len(documents)) < options.held_out).tolist())
    kept = [pair for pair in tried if pair[0] not in held_out]
    if source is not None:
        consistent = is_consistent(source, documents, schema, kept, options.round_trip, progress)
        kept = [pair for pair, is_kept in zip(kept, consistent, strict=True) if is_kept]
        kept = _first(kept, options.max_queries)
    judged = _first([pair for pair in tried if pair[0] in held_out], options.max_queries)
    copies, dropped = _copies(documents, [*kept, *judged], schema, options, held_out)
    _write(out, copies, {"train": kept, "dev": judged} if held_out else {"train": kept})
    report = {
        "made_from": made_from,
        "documents": len(documents),
        "pairs": len(kept),
        "held_out": len(judged),
        "dropped_sources": dropped,
        "tried": _by_kind(tried),
        "kept": _by_kind(kept),
    }
    # Written last: the next call rewrites the directory of a stopped one.
    (out / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def _known(out: Path) -> Any:
    """The report of an earlier synthesis in a directory; {} if there is none."""
    if not (out / REPORT_FILE).exists() and (out / "queries.jsonl").exists():
        raise InputError(
            f"{out} holds queries.jsonl but no {REPORT_FILE}: its queries may be real; give another directory"
        )
    try:
        return json.loads((out / REPORT_FILE).read_bytes())
    except (OSError, ValueError):
        return {}


def _pairs(documents: Sequence[Document], schema: FieldSchema, options: SynthesisOptions) -> Iterator[Pair]:
    counts = KeywordCounts(documents, schema)
    most = options.max_queries * (POOL if options.round_trip else 1)
    for number, document in enumerate(documents):
        random = np.random.default_rng([options.seed, number])
        usable = [one for one in candidates(document, counts, random) if one.kind in options.kinds]
        for candidate in choose(usable, most, random):
            yield number, candidate


def _first(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """The first `most` pairs of each document."""
    taken: Counter[int] = Counter()
    kept = []
    for number, candidate in pairs:
        if taken[number] < most:
            taken[number] += 1
            kept.append((number, candidate))
    return kept


def _copies(
    documents: Sequence[Document],
    pairs: Sequence[Pair],
    schema: FieldSchema,
    options: SynthesisOptions,
    held_out: Set[int],
) -> tuple[list[Document], int]:
    """The documents without some sources of their queries (for held-out ones, all removable), and the number removed."""
    names = [spec.name for spec in schema.fields if spec.kind == "text"]
    copies = list(documents)
    random = np.random.default_rng([options.seed, len(documents), 1])
    dropped = 0
    for number, candidate in pairs:
        share = 1.0 if number in held_out else options.drop
        if candidate.kind == "keywords" or random.random() >= share:
            continue
        shorter = without(copies[number], candidate.text)
        left, before = _words(shorter, names), _words(copies[number], names)
        if left < before and left >= max(MIN_SHARE_LEFT * _words(documents[number], names), 1):
            copies[number] = shorter
            dropped += 1
    return copies, dropped


def _words(document: Document, names: Sequence[str]) -> int:
    return sum(len(text.split()) for name in names for text in document.fields.get(name, ()))


def _write(out: Path, documents: Sequence[Document], splits: Mapping[str, Sequence[Pair]]) -> None:
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    # The empty report of an unfinished directory marks its queries as synthetic.
    (out / REPORT_FILE).write_text("{}\n", encoding="utf-8")
    with (out / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for document in documents:
            fields = {name: v if len(v) > 1 else "".join(v) for name, v in document.fields.items()}
            line = {"_id": document.id, **fields, **document.metadata}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    place = 0
    with (out / "queries.jsonl").open("w", encoding="utf-8") as queries:
        for split, pairs in splits.items():
            with (out / "qrels" / f"{split}.tsv").open("w", encoding="utf-8") as qrels:
                qrels.write("query-id\tcorpus-id\tscore\n")
                for number, candidate in pairs:
                    line = {"_id": f"s{place}", "text": candidate.text, "kind": candidate.kind}
                    queries.write(json.dumps(line, ensure_ascii=False) + "\n")
                    qrels.write(f"s{place}\t{documents[number].id}\t1\n")
                    place += 1


def _by_kind(pairs: Sequence[Pair]) -> dict[str, int]:
    counts = Counter(candidate.kind for _, candidate in pairs)
    return {kind: counts[kind] for kind in KINDS}
