"""A search over shards: every shard's candidates in one round, the page's documents in a second, both at once from all.

What ranks is worked out here, from the candidates of all shards, so a ranking does not depend on how documents were cut into
shards (`glow.search.shards`).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from glow.errors import FormatError, GlowError, ShardError
from glow.search import (
    Columns,
    FacetCounts,
    FilterBoost,
    FilterMasks,
    Index,
    MergedCandidates,
    Ranked,
    arrange,
    columns_in_memory,
    count_values,
    expression_to_json,
    fields_in,
    merge_candidates,
)
from glow_service.search import (
    NEVER,
    AnswerSize,
    Deadline,
    FoundDocument,
    SearchAnswer,
    SearchCall,
    SearchSession,
    page_of,
)
from glow_service.shards.opening import ShardedIndex
from glow_service.shards.transport import Answers
from glow_service.shards.wire import (
    Found,
    HighlightWire,
    RankCall,
    ShowCall,
    Shown,
    found_from_json,
    rank_bytes,
    show_bytes,
    shown_from_json,
)

__all__ = ["open_session"]

LONGEST_S = 30.0
RANK_SHARE = SHOW_SHARE = 0.8
"""Fraction of the remaining time that a round may take: a shard that is late must leave time for what follows."""
SCORE = "score"


def open_session(index: Index, call: SearchCall, deadline: Deadline = NEVER) -> SearchSession:
    """One search of an index, or of a set of shards."""
    if isinstance(index, ShardedIndex):
        return ShardedSession(index, call, deadline)
    return SearchSession(index, call, deadline)


class ShardedSession(SearchSession):
    """One search of a set; arguments as for `SearchSession`.

    Attributes:
        missing: number of a shard that gave no answer -> why.
    """

    __slots__ = ("_set", "missing")

    def __init__(self, index: ShardedIndex, call: SearchCall, deadline: Deadline = NEVER) -> None:
        super().__init__(index, call, deadline)
        self._set = index
        self.missing: dict[int, str] = {}

    def retrieve(self, vector: NDArray[np.float32] | None) -> SearchAnswer:
        """As `SearchSession.retrieve`.

        Raises:
            ShardError: if no shard answers.
            DocumentNotFoundError: if no document has the id that others are to be like.
            DeadlineError: if the deadline passes.
        """
        call, clock = self.call, self.clock
        if call.source == "vector":
            vector = np.array(call.vector, np.float32)
        elif call.source == "like":
            vector = self._set.documents.vector(call.like)
        found = self._rank(vector)
        merged = self._merge(found)
        clock.lap("search")
        ranked = merged.ranked
        columns = self._columns(found, merged)
        if call.arrangement is not None:
            masks = FilterMasks(columns)
            ranked = arrange(
                ranked, call.arrangement, columns, lambda expression: masks.mask(expression, clock.check)
            )
            clock.switch("search")
        facets = self._count(found, merged, columns)
        hits = self._show(ranked, merged)
        clock.lap("fetch")
        return self._answer(hits, facets, None, self.missing)

    def unfinished(self) -> SearchAnswer:
        """What there is of an answer whose time is over: no hits, for showing them would ask the shards again."""
        return self._answer((), {}, None, self.missing)

    def _rank(self, vector: NDArray[np.float32] | None) -> dict[int, Found]:
        call = self.call
        asked = RankCall.model_construct(
            source="all" if call.source == "browse" else "query",
            text=self.text,
            vector=None if vector is None else vector.tolist(),
            retriever=call.retriever if call.source == "text" else "dense",
            candidates=self._wanted(),
            ef_search=call.params.ef_search,
            nprobe=call.params.nprobe,
            exact=call.params.exact,
            filter=None if call.filter is None else expression_to_json(call.filter),
            fields=sorted(_fields(call)),
            timeout_ms=int(self._left_s() * 1_000) + 1,
        )
        body = asked.model_dump(exclude_defaults=True)
        calls = {
            number: orjson.dumps({**body, "version": record.version})
            for number, record in enumerate(self._set.shards.shards)
        }
        most_bytes = rank_bytes(asked.candidates, len(asked.fields))
        answers = self._set.transport.ask("rank", calls, self._left_s() * RANK_SHARE, most_bytes)
        found = self._read(answers, found_from_json)
        if not found:
            self.clock.check()
            raise ShardError(f"no shard answers: {describe(self.missing)}; see that they run")
        return found

    def _read(
        self,
        answers: Answers,
        read: Callable[[bytes], Any],
        asked: Mapping[int, list[str]] | None = None,
    ) -> dict[int, Any]:
        """What shards answered; those that did not, or showed other documents than `asked`, are noted."""
        self.missing.update(answers.failed)
        found = {}
        for number, body in sorted(answers.found.items()):
            try:
                value = read(body)
                if asked is not None and [each.document.id for each in value] != asked[number]:
                    raise FormatError("it shows other documents than it was asked for")
                found[number] = value
            except GlowError as error:
                self.missing[number] = str(error)
        return found

    def _left_s(self) -> float:
        left = self.deadline.left_s()
        return LONGEST_S if left is None else min(left, LONGEST_S)

    def _wanted(self) -> int:
        """As many candidates as one index would gather; what others are to be like is no hit."""
        call = self.call
        if call.source == "browse":
            return call.offset + call.top_k
        return call.candidates + (call.source == "like")

    def _merge(self, found: Mapping[int, Found]) -> MergedCandidates:
        call = self.call
        retriever = call.retriever if call.source == "text" else "dense"
        finds = {number: (each.ids, each.candidates) for number, each in found.items()}
        fusion, largest = call.fusion or self._set.fusion, self._set.shards.largest
        merged = merge_candidates(finds, self._wanted(), retriever, fusion, largest)
        ranked = merged.ranked
        if call.source == "browse":
            ranked = Ranked(ranked.scores, ranked.rows, {}, {})
        if call.source == "like":
            others = np.array([merged.ids[row] != call.like for row in ranked.rows.tolist()], np.bool_)
            parts = {name: values[others] for name, values in ranked.parts.items()}
            ranked = Ranked(ranked.scores[others], ranked.rows[others], parts, ranked.passages)
        return MergedCandidates(ranked, merged.ids, merged.shards, merged.rows, merged.passages)

    def _columns(self, found: Mapping[int, Found], merged: MergedCandidates) -> Columns:
        """Metadata of the candidates, as far as they are arranged or counted by them."""
        wanted = _fields(self.call)
        if not wanted:
            return columns_in_memory([], {})
        by_id = {
            name: metadata
            for each in found.values()
            for name, metadata in zip(each.ids, each.metadata, strict=bool(each.metadata))
        }
        metadata = [by_id.get(name, {}) for name in merged.ids]
        known = self._set.shards.fields
        return columns_in_memory(metadata, {name: known[name].types for name in wanted if name in known})

    def _count(
        self, found: Mapping[int, Found], merged: MergedCandidates, columns: Columns
    ) -> dict[str, FacetCounts]:
        call, rows = self.call, merged.ranked.rows
        matching = sum(each.matching for each in found.values())
        if call.retriever == "lexical" and len(rows) < call.candidates:
            matching = len(rows)  # no other document shares a word with the query
        counts = {
            facet.field: count_values(columns, facet.field, rows, facet.limit, matching)
            for facet in call.facets
        }
        if counts:
            self.clock.lap("facets")
        return counts

    def _show(self, ranked: Ranked, merged: MergedCandidates) -> tuple[FoundDocument, ...]:
        """The page's hits from the shards that hold them; those of a shard that fails meanwhile are missing."""
        call, page = self.call, page_of(self.call, ranked)
        shards: dict[int, list[int]] = defaultdict(list)
        for place, hit in enumerate(page):
            shards[int(merged.shards[hit.row])].append(place)
        calls = {
            number: self._show_call(number, [page[place].row for place in places], merged, len(page))
            for number, places in shards.items()
        }
        shown: dict[int, Shown] = {}
        if calls:
            most_bytes = show_bytes(max(map(len, shards.values())))
            answers = self._set.transport.ask("show", calls, self._left_s() * SHOW_SHARE, most_bytes)
            asked = {
                number: [merged.ids[page[place].row] for place in places] for number, places in shards.items()
            }
            for number, hits in self._read(answers, shown_from_json, asked).items():
                shown.update(zip(shards[number], hits, strict=True))
        size = AnswerSize(call.max_bytes, len(page), may_cut=call.may_cut)
        for place, found in sorted(shown.items()):
            at = page[place]
            size.add(
                FoundDocument(at.score, at.row, at.parts, found.document, found.passage, (), found.highlights)
            )
        return tuple(size.found)

    def _show_call(self, number: int, rows: Sequence[int], merged: MergedCandidates, hits: int) -> bytes:
        call, places = self.call, np.array(rows, np.int64)
        highlight = None
        if call.highlight is not None:
            options = call.highlight.options
            highlight = HighlightWire(
                fields=list(call.highlight.fields),
                fragments=options.fragments,
                fragment_chars=options.fragment_chars,
                hits=hits,
            )
        asked = ShowCall(
            version=self._set.shards.shards[number].version,
            rows=merged.rows[places].tolist(),
            passages=merged.passages[places].tolist(),
            text=self.text,
            fields=None if call.fields is None else list(call.fields),
            metadata=None if call.metadata is None else list(call.metadata),
            highlight=highlight,
            timeout_ms=int(self._left_s() * 1_000) + 1,
        )
        return orjson.dumps(asked.model_dump())


def describe(missing: Mapping[int, str]) -> str:
    """Which shards are missing, and why, for people."""
    return "; ".join(f"shard {number}: {reason}" for number, reason in sorted(missing.items()))


def _fields(call: SearchCall) -> set[str]:
    """Names of the metadata that candidates are counted, sorted, grouped or boosted by."""
    names = {facet.field for facet in call.facets}
    wanted = call.arrangement
    if wanted is not None:
        names |= {key.field for key in wanted.sort if key.field != SCORE}
        names |= {wanted.group_by} if wanted.group_by else set()
        for boost in wanted.boosts:
            names |= fields_in(boost.filter) if isinstance(boost, FilterBoost) else {boost.field}
    return names
