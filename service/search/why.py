"""Why a search returns a document or does not: its ranks, the words that it holds, and what removes it.

The search runs as always, but ranks all its matches. Then every allowed document is scored by each method.

    n   allowed documents, and the document itself
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from glow.contract import DocumentExplanation, EncodedPart, HeldWords, encode
from glow.index import Index, RowMask, wanted_until
from glow.index.columns import COLUMNS
from glow.index.columns.filters import FIELD, Expression, parse_filter
from glow.index.passages import PASSAGES
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS, not_found
from glow.index.vectors import VECTORS
from glow.search import (
    Arrangement,
    Constraint,
    EncodedQuery,
    RankedDocuments,
    Scorer,
    arrange,
    constraint_mask,
    dense_scorer,
    fuse_hybrid,
    gather_hybrid,
    held_words,
    live_mask,
    reads_head,
    rows_read,
)
from glow.text import searched_words
from glow_service.search.clock import NEVER, Deadline
from glow_service.search.hits import passage_document
from glow_service.search.plan import SearchPlan
from glow_service.search.render import SCORE_DIGITS, index_name, vector_of
from glow_service.search.run import SearchSession

ROWS_AT_ONCE = 8192
NAMED_WORDS = 6
"""Most words that a summary names."""
_SCORE_OF = {"dense": "dense", "lexical": "lexical", "learned-sparse": "learned"}
"""Retriever -> the part of a score that ranks; `hybrid` ranks by the whole score."""
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Standing:
    """A document in the rankings of one search."""

    rank: int | None = None  # among all matches, from 1
    score: float | None = None
    total: int | None = None  # number of matches, if known
    dropped: str | None = None  # `min_score` or `group_by`, if that removes a match


class DocumentSearch:
    """Explains one document of one search."""

    def __init__(
        self,
        index: Index,
        plan: SearchPlan,
        document_id: str,
        filter: dict[str, Any] | None = None,  # as the user gave it
        deadline: Deadline = NEVER,
    ) -> None:
        row = index[STORED_FIELDS].find(document_id)
        if row is None:
            raise not_found(document_id)
        self._index, self._plan, self._id, self._row, self._filter = index, plan, document_id, row, filter
        arrangement = plan.arrangement and replace(plan.arrangement, min_score=None, group_by="")
        every = max(index[STORED_FIELDS].count, 1)
        whole = replace(plan, top_k=every, offset=0, facets=(), arrangement=arrangement)
        self.session = SearchSession(index, whole, deadline)

    def run(self) -> DocumentExplanation:
        """Runs the search, and explains what becomes of the document."""
        session, plan, vector = self.session, self._plan, self._encode()
        with wanted_until(session.deadline.at):
            ranked = session.rank(vector if session.needs_vector else None)
            standing = self._standing(ranked)
            scores, ranks = self._places(self._scored(vector))
        score = standing.score
        if score is None and plan.source != "browse":
            score = scores.get(_SCORE_OF.get(plan.retriever, "score"))
        scores.pop("score", None)
        words, excluding = self._words(), None
        if plan.filter is not None and not self._mask(plan.filter).mask[self._row]:
            excluding = tuple(self._excluding(self._filter or {}))
        broken = tuple(map(_text_of, self._broken()))
        found = DocumentExplanation(
            index=index_name(self._index),
            id=self._id,
            summary="",
            found=standing.rank is not None,
            rank=standing.rank,
            total=standing.total,
            score=None if score is None else round(score, SCORE_DIGITS),
            ranks=ranks,
            scores={name: round(each, SCORE_DIGITS) for name, each in scores.items()},
            words=words,
            filter=excluding,
            constraints=broken,
            cut_by=self._cut(standing, excluding, broken, words, scores.get("dense")),
            read=self._read(ranked, vector),
        )
        return msgspec.structs.replace(found, summary=self._summary(found))

    def _encode(self) -> Vector | None:
        """The vector of the query, also for a search that needs none."""
        plan, index = self._plan, self._index
        if plan.source == "text":
            vector: Vector = index.encoder.run([self.session.preprocess()])[0]
            return vector
        if plan.source == "vector":
            return np.array(plan.vector, np.float32)
        row = index[STORED_FIELDS].find(plan.like) if plan.source == "like" else None
        return None if row is None else vector_of(index, row)

    def _standing(self, ranked: RankedDocuments) -> Standing:
        """Where it stands in the ranking, after the least score and the groups of the search."""
        arrangement = self._plan.arrangement or Arrangement()
        groups = Arrangement(group_by=arrangement.group_by, group_size=arrangement.group_size)
        steps = [("", ranked)]
        for name, step in (("min_score", Arrangement(min_score=arrangement.min_score)), ("group_by", groups)):
            steps.append((name, arrange(steps[-1][1], step, self._index[COLUMNS].columns, self._mask)))
        total = len(steps[1][1].rows) if self.session.knows_all else None
        standing = Standing(total=total)
        for name, each in steps:
            places = np.flatnonzero(each.rows == self._row)
            if not len(places):
                return replace(standing, rank=None, dropped=name or None)
            standing = Standing(int(places[0]) + 1, float(each.scores[places[0]]), total)
        return standing

    def _mask(self, expression: Expression) -> RowMask:
        return self._index[COLUMNS].masks.mask(expression, self.session.clock.check)

    # Ranks by each method.

    @property
    def _is_remote(self) -> bool:
        index = self._index
        return index[VECTORS].is_remote or (index.holds(POSTINGS) and index[POSTINGS].is_remote)

    @property
    def _fuses(self) -> bool:
        return self._plan.source == "text" and self._index.holds(POSTINGS)

    @property
    def _finds_near(self) -> bool:
        return self._plan.retriever in ("dense", "hybrid")

    def _scored(self, vector: Vector | None) -> RankedDocuments | None:
        """Every allowed document with its scores by each method; in a store, only the document itself is sure to have them."""
        index, plan, session = self._index, self._plan, self.session
        if vector is None:
            return None
        rows = np.array([self._row])
        if not self._is_remote:
            allowed = live_mask(index) if session.allowed is None else session.allowed.mask
            rows = np.union1d(np.flatnonzero(allowed), rows)
        if not self._fuses:
            score = self._in_blocks(dense_scorer(index, vector))
            if score is None:
                return None
            scores = score(rows)
            return RankedDocuments(scores, rows, {"dense": scores}, {})
        fusion = plan.fusion or index.fusion
        query = EncodedQuery(session.text, vector, session.others)
        dense, gathered = gather_hybrid(
            index, query, plan.candidates, plan.params, session.allowed, reads_head(fusion)
        )
        gathered = replace(
            gathered,
            score_dense=self._in_blocks(gathered.score_dense),
            score_covered=self._in_blocks(gathered.score_covered),
        )
        most = len(rows) + 2 * plan.candidates
        calibrates = plan.rerank is None
        return fuse_hybrid(index, gathered, most, fusion, dense.passages, calibrates=calibrates, further=rows)

    def _in_blocks(self, score: Scorer | None) -> Scorer | None:
        """A scorer that looks at the deadline every few thousand rows."""
        if score is None:
            return None
        check = self.session.clock.check

        def scored(rows: NDArray[np.int64]) -> Vector:
            blocks = []
            for start in range(0, max(len(rows), 1), ROWS_AT_ONCE):
                check()
                blocks.append(score(rows[start : start + ROWS_AT_ONCE]))
            return np.concatenate(blocks)

        return scored

    def _places(self, every: RankedDocuments | None) -> tuple[dict[str, float], dict[str, int]]:
        """Scores and ranks of the document by each method; a method that gives it nothing does not rank it."""
        if every is None:
            return {}, {}
        place = int(np.flatnonzero(every.rows == self._row)[0])
        columns = dict(every.parts)
        if self._fuses:
            columns.setdefault("fused", every.scores)
        scores = {name: float(values[place]) for name, values in columns.items()}
        scores = {name: score for name, score in scores.items() if not np.isnan(score)}
        ranks = {
            name: 1 + int(np.count_nonzero(columns[name] > columns[name][place]))
            for name, score in scores.items()
            if (score or name == "dense") and not self._is_remote
        }
        return {**scores, "score": float(every.scores[place])}, ranks

    # What the document holds.

    def _words(self) -> HeldWords | None:
        index, others = self._index, self.session.others
        if not self._fuses:
            return None
        words = list(
            dict.fromkeys(map(str, searched_words(index.preprocessor.pieces.words(self.session.text))))
        )
        impacts, row = index[POSTINGS], np.array([self._row])
        held = dict(zip(words, held_words(impacts, words, row, others)[0].tolist(), strict=True))
        itself = held_words(impacts, words, row)[0].tolist()
        because = {}
        for word, is_itself in zip(words, itself, strict=True):
            if held[word] and not is_itself:
                found = (each for each in others[word] if held_words(impacts, each, row)[0].all())
                because[word] = " ".join(next(found))
        matched, missing = ([word for word in words if held[word] is each] for each in (True, False))
        return HeldWords(tuple(matched), tuple(missing), because)

    def _excluding(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The smallest parts of a filter that exclude the document: terms of an `and` are looked at one by one."""
        if self._mask(parse_filter(given, self._index[COLUMNS].columns)).mask[self._row]:
            return
        terms: Sequence[dict[str, Any]] = ()
        if FIELD not in given:
            several = len(given) > 1
            terms = [{name: value} for name, value in given.items()] if several else given.get("and", ())
        yield from [part for term in terms for part in self._excluding(term)] or [given]

    def _broken(self) -> Iterator[Constraint]:
        analyzed, allowed = self.session.analyzed, None
        if self._plan.filter is not None:
            mask = self._mask(self._plan.filter).mask.copy()
            mask[self._row] = True  # also if the filter excludes it
            allowed = RowMask(mask)
        for constraint in () if analyzed is None else analyzed.constraints:
            held = constraint_mask(self._index, [constraint], allowed, self.session.clock.check)
            if held is not None and not held.mask[self._row]:
                yield constraint

    def _read(self, ranked: RankedDocuments, vector: Vector | None) -> EncodedPart:
        index, row = self._index, np.array([self._row])
        document = index[STORED_FIELDS].rows([self._row])[0]
        if index.holds(PASSAGES):
            best = int(rows_read(index, row, ranked.passages, vector)[0])
            document = passage_document(document, index[PASSAGES].passage_of(document, best))
        tokens = index.preprocessor.document(document)
        return EncodedPart(len(tokens), index.preprocessor.schema.document_tokens, tokens.truncated)

    # The reason.

    def _cut(
        self,
        standing: Standing,
        excluding: Sequence[object] | None,
        broken: Sequence[str],
        words: HeldWords | None,
        cosine: float | None,
    ) -> str | None:
        if excluding is not None or broken:
            return "syntax" if excluding is None else "filter"
        if standing.rank is not None or standing.dropped:
            return standing.dropped
        matches = self.session.matches
        if matches is None:
            return "candidates"
        is_near = self._finds_near and cosine is not None and cosine >= matches.bound
        holds_all = words is not None and not words.missing and not matches.is_whole
        return "candidates" if is_near or holds_all else "match"

    def _summary(self, found: DocumentExplanation) -> str:
        plan = self._plan
        if found.found:
            total = "" if found.total is None else f" of {found.total}"
            reason = self._held(found.words, found.scores.get("dense"))
            return f"Found at rank {found.rank}{total}{reason and ': '}{reason}."
        reasons = {
            "filter": f"the filter excludes it: {_listed([encode(each).decode() for each in found.filter or ()])}",
            "syntax": f"it does not satisfy {_listed(found.constraints)} in the query",
            "group_by": "enough better hits have the same value of `group_by`",
        }
        if found.cut_by == "min_score" and plan.arrangement is not None:
            return (
                f"Not found: its score {found.score:.3g} is below `min_score` {plan.arrangement.min_score:g}."
            )
        if found.cut_by in reasons:
            return f"Not found: {reasons[found.cut_by]}."
        parts = []
        if found.words is not None and plan.retriever != "dense":
            parts.append(self._held(found.words, None))
        if "dense" in found.ranks and self._finds_near:
            parts.append(_nearer(found.ranks["dense"] - 1))
        sentence = f"Not found: {', and '.join(filter(None, parts)) or 'it is no match'}."
        bound = 2.0 if self.session.matches is None else self.session.matches.bound
        if found.cut_by == "candidates":
            sentence += (
                f" The search gathered the best {plan.candidates} documents; `candidates` asks for more."
            )
        elif "dense" in found.scores and self._finds_near and bound <= 1.0:
            sentence += f" Its cosine is {found.scores['dense']:.2f}; a match needs {bound:.2f}."
        if found.read.truncated:
            sentence += f" The encoder read only its first {found.read.tokens} tokens."
        return sentence

    def _held(self, words: HeldWords | None, cosine: float | None) -> str:
        near = "" if cosine is None else f"its cosine is {cosine:.2f}"
        if words is None or not (words.matched or words.missing):
            return near
        if not words.matched:
            none = "it does not hold" if len(words.missing) == 1 else "it holds none of the words"
            return f"{none} {_listed(_quoted(words.missing), 'or')}{near and ', but '}{near}"
        held = [
            f"{name!r} (for {word!r})" if (name := words.because.get(word)) else repr(word)
            for word in words.matched
        ]
        missing = ""
        if words.missing:
            missing = f", but not {_listed(_quoted(words.missing), 'or')}{near and ', and '}{near}"
        return f"it holds {_listed(held)}{missing}"


def _text_of(constraint: Constraint) -> str:
    """A phrase, an exclusion or a field's word as a query has it."""
    text = " ".join(constraint.words)
    quoted = f'"{text}"' if constraint.is_exact else text
    return f"{'-' if constraint.excluded else ''}{constraint.field and constraint.field + ':'}{quoted}"


def _nearer(count: int) -> str:
    if not count:
        return "no document is nearer"
    return "1 document is nearer" if count == 1 else f"{count:,} documents are nearer"


def _quoted(words: Sequence[str]) -> list[str]:
    return [repr(word) for word in words]


def _listed(names: Sequence[str], between: str = "and") -> str:
    """Some names in a sentence, the last one after "and"."""
    more = len(names) - NAMED_WORDS
    shown = [*names[:NAMED_WORDS], f"{more} more"] if more > 0 else list(names)
    return f" {between} ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
