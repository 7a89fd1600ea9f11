"""Makes training pairs from documents alone: parts of a document's text serve as its queries.

Queries are clicked queries, titles, anchors, first sentences, other sentences (an inverse cloze task) and keywords.
The result is a normal data directory. Its corpus is a copy in which a document may lack the source of a query, because
a title that matches only the document's own title teaches nothing. Half of the sources stay by default: a served
document has its title, and common words indicate relevance, too (Lee et al., ORQA, 2019, keep 10 % of the sentences of
their cloze task).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glow.collection import read_documents
from glow.errors import ConfigError, InputError
from glow.records import Document
from glow.schema import FieldSchema
from glow.training.encode import EncodeOptions, Source, open_source
from glow.training.synthesis.candidates import KINDS, Candidate, KeywordCounts, candidates, choose, without
from glow.training.synthesis.round_trip import RoundTrip

__all__ = ["REPORT_FILE", "SynthesisOptions", "synthesize"]

REPORT_FILE = "synthesis.json"
FORMAT_VERSION = 2
POOL = 2
"""Candidates to try per wanted query if the round trip rejects some."""
MIN_SHARE_LEFT = 0.5
Pair = tuple[int, Candidate]
"""A document's number, and a query for it."""


@dataclass(frozen=True, slots=True)
class SynthesisOptions:
    """Options of synthesis.

    Attributes:
        max_queries: most queries per document, >= 1.
        drop: probability in [0, 1] that a query's source is removed from its document's copy; at least half of
            the document's words always stay.
        round_trip: lowest rank at which a query must find its document, >= 0; 0 keeps every query.
        seed: seed of every choice.
        kinds: kinds of queries to make, some of `KINDS`.
        held_out: fraction in [0, 1) of the documents whose queries form the split `dev`. These queries skip the round
            trip, because it would favor the filtering model, and their sources are always removed.
    """

    max_queries: int = 4
    drop: float = 0.5
    round_trip: int = 3
    seed: int = 0
    kinds: tuple[str, ...] = KINDS
    held_out: float = 0.0

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise ConfigError(
                f"expected kinds of queries among {', '.join(KINDS)}, found {', '.join(unknown) or 'none'}"
            )
        if self.max_queries < 1 or not 0.0 <= self.drop <= 1.0 or self.round_trip < 0:
            raise ConfigError(f"expected max_queries >= 1, drop in [0, 1], round_trip >= 0, found {self}")
        if not 0.0 <= self.held_out < 1.0:
            raise ConfigError(f"expected held_out in [0, 1), found {self.held_out:g}")


def synthesize(
    corpus: Path,
    out: Path,
    schema: FieldSchema,
    options: SynthesisOptions = SynthesisOptions(),
    model: Path | None = None,
    encode: EncodeOptions = EncodeOptions(),  # noqa: B008 - frozen
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Writes a data directory of synthetic queries, in the split `train` and perhaps `dev`; keeps an existing one.

    Args:
        corpus: JSON Lines of documents.
        out: directory to write: `corpus.jsonl`, `queries.jsonl` (each with its `kind`), `qrels/train.tsv`, and last
            `synthesis.json`, the report.
        schema: names the text fields.
        options: options of synthesis.
        model: model or checkpoint for the round trip's searches; not opened without a round trip.
        encode: options of encoding.
        progress: called with the number of encoded documents.

    Returns:
        The report: inputs (`made_from`), `documents`, `pairs`, `dropped_sources`, and the queries `tried` and `kept`
        of each kind.

    Raises:
        InputError: if the corpus cannot be read or is empty, or `out` holds queries of another origin.
        ConfigError: if a round trip is requested without a model.
        ArtifactError: if the model cannot be used.
    """
    source = _source(options, model, encode)
    made_from = _made_from(corpus, schema, options, source)
    known = _known(out)
    if known is not None and known.get("made_from") == made_from:
        return known
    documents = list(read_documents(corpus, schema.names))
    if not documents:
        raise InputError(f"{corpus} holds no document with text in {', '.join(schema.names)}")
    tried = list(_pairs(documents, schema, options))
    held_out = _held_out(documents, options)
    kept = [pair for pair in tried if pair[0] not in held_out]
    if source is not None:
        kept = _consistent(kept, RoundTrip(source, documents, schema, progress), documents, options)
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


def _source(options: SynthesisOptions, model: Path | None, encode: EncodeOptions) -> Source | None:
    if not options.round_trip:
        return None
    if model is None:
        raise ConfigError("a round trip needs a model or a checkpoint: give one, or round_trip 0")
    return open_source(model, encode)


def _made_from(
    corpus: Path, schema: FieldSchema, options: SynthesisOptions, source: Source | None
) -> dict[str, Any]:
    """All inputs that decide the result."""
    try:
        with corpus.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {corpus}: {error.strerror}") from error
    return {
        "format": FORMAT_VERSION,
        "corpus": digest,
        "schema": schema.hash,
        "options": {**asdict(options), "kinds": list(options.kinds)},  # as JSON restores it
        "model": source.hash if source else None,
    }


def _known(out: Path) -> dict[str, Any] | None:
    """The report of an earlier synthesis in a directory; None if there is none.

    Raises:
        InputError: if the directory holds queries that were not synthesized.
    """
    try:
        report = json.loads((out / REPORT_FILE).read_bytes())
        return report if isinstance(report, dict) else {}
    except FileNotFoundError:
        if (out / "queries.jsonl").exists():
            raise InputError(
                f"{out} holds queries.jsonl but no {REPORT_FILE}: its queries may be real; give another directory"
            ) from None
        return None
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


def _consistent(
    pairs: Sequence[Pair], trip: RoundTrip, documents: Sequence[Document], options: SynthesisOptions
) -> list[Pair]:
    """The first `max_queries` pairs of each document that pass the round trip."""
    texts = [candidate.text for _, candidate in pairs]
    passed = trip.consistent(texts, [documents[number].id for number, _ in pairs], options.round_trip)
    return _first([pair for pair, good in zip(pairs, passed, strict=True) if good], options.max_queries)


def _first(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """The first `most` pairs of each document."""
    taken: Counter[int] = Counter()
    kept = []
    for number, candidate in pairs:
        if taken[number] < most:
            taken[number] += 1
            kept.append((number, candidate))
    return kept


def _held_out(documents: Sequence[Document], options: SynthesisOptions) -> set[int]:
    """Numbers of the held-out documents."""
    random = np.random.default_rng([options.seed, len(documents), 2])
    return set(np.flatnonzero(random.random(len(documents)) < options.held_out).tolist())


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
