"""Why a search returns a document or does not: its ranks, the words that it holds, and what removes it.

The search runs as always, but ranks all its matches. Then every allowed document is scored by each method.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from glow_service.search.render import SCORE_DIGITS, index_name
from glow_service.search.request import fault
from glow_service.search.run import SearchSession

ROWS_AT_ONCE = 8192
NAMED_WORDS = 6
"""Most words that a summary names."""
Vector = NDArray[np.float32]


class DocumentSearch:
    """A search for a text, and a document that it may return."""

    def __init__(
        self,
        index: Index,
        plan: SearchPlan,
        document_id: str,
        condition: dict[str, Any] | None,  # the filter as the user wrote it
        deadline: Deadline = NEVER,
    ) -> None:
        row = index[STORED_FIELDS].find(document_id)
        if row is None:
            raise not_found(document_id)
        if plan.source != "text":
            raise fault("/query", "required to explain a document, but missing")
        self._index, self._plan, self._id, self._row = index, plan, document_id, row
        self._condition = condition
        self._finds_near = plan.retriever in ("dense", "hybrid")
        arrangement = plan.arrangement and replace(plan.arrangement, min_score=None, group_by="")
        every = max(index[STORED_FIELDS].count, 1)
        whole = replace(plan, top_k=every, offset=0, facets=(), arrangement=arrangement)
        self.session = SearchSession(index, whole, deadline)

    def run(self) -> DocumentExplanation:
        """Runs the search, and explains what becomes of the document."""
        index, session, row = self._index, self.session, self._row
        vector: Vector = index.encoder.run([session.preprocess()])[0]
        with wanted_until(session.deadline.at):
            ranked = session.rank(vector if session.needs_vector else None)
            scores, ranks = self._ranks(self._scored(vector))
        order = self._plan.arrangement or Arrangement()
        groups = Arrangement(group_by=order.group_by, group_size=order.group_size)
        scored = ranked if order.min_score is None else ranked.take(ranked.scores >= order.min_score)
        last = arrange(scored, groups, index[COLUMNS].columns, self._mask)
        words, excluding, broken = (
            self._words(),
            tuple(self._excluding(self._condition)),
            tuple(self._broken()),
        )
        steps = {"filter": not excluding, "syntax": not broken}
        steps |= {self._missed(words, scores): row in ranked.rows, "min_score": row in scored.rows}
        steps["group_by"] = row in last.rows
        cut = next((name for name, passes in steps.items() if not passes), None)
        score = ranked.scores[ranked.rows == row]
        explanation = DocumentExplanation(
            index=index_name(index),
            id=self._id,
            summary="",
            found=cut is None,
            rank=None if cut else int(np.flatnonzero(last.rows == row)[0]) + 1,
            total=len(scored.rows) if session.knows_all else None,
            score=round(float(score[0]), SCORE_DIGITS) if len(score) else None,
            ranks=ranks,
            scores=scores,
            words=words,
            filter=excluding,
            constraints=broken,
            cut_by=cut,
            read=self._read(ranked, vector),
        )
        return msgspec.structs.replace(explanation, summary=self._summary(explanation))

    def _mask(self, expression: Expression) -> RowMask:
        return self._index[COLUMNS].masks.mask(expression, self.session.clock.check)

    def _missed(self, words: HeldWords | None, scores: dict[str, float]) -> str:
        """What removes it if it is no match: `match`, or `candidates` if it only was not gathered."""
        matches = self.session.matches
        if matches is None or (self._finds_near and scores.get("dense", -np.inf) >= matches.bound):
            return "candidates"
        return "candidates" if words and not words.missing and not matches.is_whole else "match"

    # Ranks by each method.

    def _scored(self, vector: Vector) -> RankedDocuments:
        """Every allowed document with its scores by each method; in a store, candidates and the document itself."""
        index, plan, session, rows = self._index, self._plan, self.session, np.array([self._row])
        if not self._is_remote:
            allowed = live_mask(index) if session.allowed is None else session.allowed.mask
            rows = np.union1d(np.flatnonzero(allowed), rows)
        if not index.holds(POSTINGS):
            score = dense_scorer(index, vector)
            scores = np.full(len(rows), np.nan, np.float32) if score is None else self._checked(score)(rows)
            return RankedDocuments(scores, rows, {"dense": scores}, {})
        fusion, query = plan.fusion or index.fusion, EncodedQuery(session.text, vector, session.others)
        dense, gathered = gather_hybrid(
            index, query, plan.candidates, plan.params, session.allowed, reads_head(fusion)
        )
        near, covered = gathered.score_dense, gathered.score_covered
        gathered = replace(
            gathered,
            score_dense=near and self._checked(near),
            score_covered=covered and self._checked(covered),
        )
        most = len(rows) + 2 * plan.candidates
        return fuse_hybrid(index, gathered, most, fusion, dense.passages, further=rows)

    @property
    def _is_remote(self) -> bool:
        index = self._index
        return index[VECTORS].is_remote or (index.holds(POSTINGS) and index[POSTINGS].is_remote)

    def _checked(self, score: Scorer) -> Scorer:
        """A scorer that looks at the deadline every few thousand rows."""

        def scored(rows: NDArray[np.int64]) -> Vector:
            blocks = []
            for start in range(0, max(len(rows), 1), ROWS_AT_ONCE):
                self.session.clock.check()
                blocks.append(score(rows[start : start + ROWS_AT_ONCE]))
            return np.concatenate(blocks)

        return scored

    def _ranks(self, every: RankedDocuments) -> tuple[dict[str, float], dict[str, int]]:
        """Scores and ranks of the document by each method; a method that adds nothing to it does not rank it."""
        place, scores, ranks = int(np.flatnonzero(every.rows == self._row)[0]), {}, {}
        for name, values in {**every.parts, "fused": every.scores}.items():
            score = float(values[place])
            if not np.isnan(score) and (name != "fused" or len(every.parts) > 1):
                scores[name] = round(score, SCORE_DIGITS)
                if (score or name == "dense") and not self._is_remote:
                    ranks[name] = 1 + int(np.count_nonzero(values > score))
        return scores, ranks

    # What the document holds, and what of it was read.

    def _words(self) -> HeldWords | None:
        index, others, row = self._index, self.session.others, np.array([self._row])
        if not index.holds(POSTINGS):
            return None
        distinct = dict.fromkeys(searched_words(index.preprocessor.pieces.words(self.session.text)))
        words = [str(word) for word in distinct]
        because = dict[str, str]()
        for word in words:
            for way in ((word,), *others.get(word, ())):
                if word not in because and held_words(index[POSTINGS], way, row).all():
                    because[word] = " ".join(way)
        replaced = {word: name for word, name in because.items() if word != name}
        return HeldWords(tuple(because), tuple(word for word in words if word not in because), replaced)

    def _excluding(self, condition: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
        """The smallest parts of a filter that exclude the document: terms of an `and` are looked at one by one."""
        if not condition or self._mask(parse_filter(condition, self._index[COLUMNS].columns)).mask[self._row]:
            return
        terms = (
            [{name: value} for name, value in condition.items()]
            if len(condition) > 1
            else condition.get("and", ())
        )
        inner = [part for term in terms for part in self._excluding(term)] if FIELD not in condition else []
        yield from inner or [condition]

    def _broken(self) -> Iterator[str]:
        """Phrases, exclusions and fields of the query that the document does not satisfy."""
        analyzed, allowed = self.session.analyzed, None
        if self._plan.filter is not None:
            mask = self._mask(self._plan.filter).mask.copy()
            mask[self._row] = True  # also if the filter excludes it
            allowed = RowMask(mask)
        for constraint in () if analyzed is None else analyzed.constraints:
            passing = constraint_mask(self._index, [constraint], allowed, self.session.clock.check)
            if passing is not None and not passing.mask[self._row]:
                yield _text_of(constraint)

    def _read(self, ranked: RankedDocuments, vector: Vector) -> EncodedPart:
        index, document = self._index, self._index[STORED_FIELDS].rows([self._row])[0]
        if index.holds(PASSAGES):
            best = int(rows_read(index, np.array([self._row]), ranked.passages, vector)[0])
            document = passage_document(document, index[PASSAGES].passage_of(document, best))
        tokens = index.preprocessor.document(document)
        return EncodedPart(len(tokens), index.preprocessor.schema.document_tokens, tokens.truncated)

    def _summary(self, answer: DocumentExplanation) -> str:
        plan, words, matches, more = self._plan, answer.words, self.session.matches, ""
        cosine, words_held = answer.scores.get("dense"), "" if words is None else _held(words)
        if answer.found:
            reasons = [words_held] if words_held else []
            if cosine is not None and (words is None or words.missing):
                reasons.append(f"its cosine is {cosine:.2f}")
            total = "" if answer.total is None else f" of {answer.total:,}"
            return f"Found at rank {answer.rank:,}{total}: {', and '.join(reasons)}."
        if answer.cut_by == "filter":
            reason = f"the filter excludes it: {_listed([encode(each).decode() for each in answer.filter])}"
        elif answer.cut_by == "syntax":
            reason = f"it does not satisfy {_listed(answer.constraints)} in the query"
        elif answer.cut_by == "min_score" and plan.arrangement is not None:
            reason = f"its score {answer.score:.3g} is below `min_score` {plan.arrangement.min_score:g}"
        elif answer.cut_by == "group_by":
            reason = "enough better hits have the same value of `group_by`"
        else:
            before = answer.ranks.get("dense", 0) - 1
            nearer = "1 document is nearer" if before == 1 else f"{before:,} documents are nearer"
            parts = (
                words_held if plan.retriever != "dense" else "",
                nearer if self._finds_near and before >= 0 else "",
            )
            reason = ", and ".join(filter(None, parts)) or "it is no match"
            if answer.cut_by == "candidates":
                more = (
                    f" The search gathered the best {plan.candidates} documents; `candidates` asks for more."
                )
            elif matches is not None and self._finds_near and matches.bound <= 1 and cosine is not None:
                more = f" Its cosine is {cosine:.2f}; a match needs {matches.bound:.2f}."
            if answer.read.truncated:
                more += f" The encoder read only its first {answer.read.tokens} tokens."
        return f"Not found: {reason}.{more}"


def _held(words: HeldWords) -> str:
    names = [(word, words.because.get(word)) for word in words.matched]
    held_words = [f"{name!r} (for {word!r})" if name else repr(word) for word, name in names]
    missing = _listed([repr(word) for word in words.missing], "or")
    if not held_words:
        return missing and f"it does not hold {missing}"
    return f"it holds {_listed(held_words)}{missing and f', but not {missing}'}"


def _text_of(constraint: Constraint) -> str:
    """A phrase, an exclusion or a field's word as a query has it."""
    text = " ".join(constraint.words)
    start = "-" * constraint.excluded + (constraint.field and f"{constraint.field}:")
    return start + (f'"{text}"' if constraint.is_exact else text)


def _listed(names: Sequence[str], between: str = "and") -> str:
    more = len(names) - NAMED_WORDS
    shown = [*names[:NAMED_WORDS], f"{more} more"] if more > 0 else list(names)
    return f" {between} ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
