"""The suite's first half: what a component answers and writes, whatever segments its documents lie in."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.errors import FormatError, MismatchError
from glow.index import COMPONENTS, Explained, MergeSource, Rows, existing_rules, view_of
from glow.index.passages import PASSAGES
from glow.index.spelling import SPELLING, SpellingTable
from glow.search import RETRIEVERS
from tests.components.cases import AnyComponent, Case, all_of, files_of, needs_of, verified
from tests.components.kinds import NEW, OLD, document_of
from tests.components.probes import Seen

__all__ = ["Answers"]

DELTA_SAYS = "delta/delta.json says {1} documents; roll back to an older version"
SAID = {
    "stored_fields": (
        "index made: {0} stored documents, {1} in the manifest; rebuild the index",
        f"delta/ holds {{0}} stored documents, {DELTA_SAYS}",
    ),
    "columns": (
        "columns/ describes {0} documents, the index has {1}; rebuild the index",
        f"delta/columns/ describes {{0}} documents, {DELTA_SAYS}",
    ),
    "passages": (
        "index made: passages/ holds {0} documents, its manifest {1}; rebuild the index",
        f"delta/passages/ holds {{0}} documents, {DELTA_SAYS}",
    ),
    "postings": (
        "index made: impacts of {0} documents, {1} stored documents; rebuild the index",
        f"delta/ holds impacts of {{0}} documents, {DELTA_SAYS}",
    ),
    "learned_sparse": (
        "index made: learned/ holds impacts (learned) of {0} documents, {1} stored documents; rebuild the index",
        f"delta/learned/ holds impacts (learned) of {{0}} documents, {DELTA_SAYS}",
    ),
}
"""What components say of other rows than they have, of a base and of a delta; vectors' own test has theirs."""


class Answers:
    """Every component answers and writes the same however its documents came to it; `case` says which."""

    def test_base_and_delta_answer_as_a_rebuild(self, case: Case) -> None:
        case.check(case.changed())

    def test_a_compacted_index_is_to_the_byte_one_built_of_what_is_left(self, case: Case) -> None:
        def both() -> tuple[Path, Path]:
            changed = case.changed()
            merged = case.segments.merged(changed.kept, delta=False)
            return merged.folder, case.segments.rebuilt(changed.base, changed.left).folder

        same_files(case.component, *case.once("compacted", both))

    def test_a_delta_over_a_delta_is_to_the_byte_one_of_both(self, case: Case) -> None:
        def both() -> tuple[Path, Path]:
            base, new = case.changed().base, [document_of(each) for each in NEW]
            before, added = (case.segments.delta(base, held) for held in (new[:6], new[6:]))
            live = np.arange(6) != 4
            merged = case.segments.merged([MergeSource(before, live), all_of(added)], delta=True)
            return merged.folder, case.segments.delta(base, [*new[:4], *new[5:]]).folder

        same_files(case.component, *case.once("delta over delta", both))

    def test_a_delta_that_only_deletes(self, case: Case) -> None:
        """It holds no row, needs no model, and something can be added to it."""
        changed = case.once("deleted", lambda: case.change(OLD, [], ("d/1", "d/8", "d/39")))
        assert changed.delta.rows.documents == 0 and changed.delta.get(case.component) is not None
        case.check(changed)

        def both() -> tuple[Path, Path]:
            new = case.segments.delta(changed.base, [document_of(each) for each in NEW])
            return case.segments.merged([all_of(changed.delta), all_of(new)], delta=True).folder, new.folder

        same_files(case.component, *case.once("deleted and added", both))

    @pytest.mark.parametrize("new", [[], NEW[4:5]], ids=["deleted", "added"])
    def test_one_document(self, case: Case, new: list[Any]) -> None:
        deleted = () if new else (OLD[9]["_id"],)
        changed = case.once(f"one {bool(new)}", lambda: case.change(OLD[9:10], new, deleted))
        assert changed.base.rows.documents == 1
        case.check(changed)

    def test_equal_documents_stand_in_the_order_of_their_ids(self, case: Case) -> None:
        names = ["b", "e", "a", "f", "d", "c"]
        records = [{**OLD[7], "_id": name} for name in names]
        changed = case.once("equal", lambda: case.change(records[:3], records[3:]))
        case.check(changed)
        assert sorted(names) == Seen.of(case.segments.joined(changed.base, changed.delta, changed.gone)).ids
        # Told by ids, answers are the same whatever row each stands in.
        held = sorted(changed.left, key=lambda document: document.id)
        again = case.once("equal by id", lambda: case.segments.rebuilt(changed.base, held))
        rebuilt = case.once("equal by row", lambda: case.segments.rebuilt(changed.base, changed.left))
        assert case.answers(view_of([again])) == case.answers(view_of([rebuilt]))

    @pytest.mark.parametrize("count", [1, 2, 5])
    def test_any_number_of_segments_answers_as_one(self, case: Case, count: int) -> None:
        documents = [document_of(each) for each in OLD[:20]]
        first, *later = np.array_split(np.arange(20), count)
        base = case.once(f"first {count}", lambda: case.segments.base(documents[: len(first)], index="flat"))
        parts = [[documents[row] for row in rows] for rows in later]
        added = case.once(f"later {count}", lambda: [case.segments.delta(base, part) for part in parts])
        gone = np.array([1, 2, 9, 19])
        ids = [document.id.encode() for document in documents]
        order = np.argsort(np.array(sorted(range(20), key=ids.__getitem__))).astype(np.uint32)
        left = [document for row, document in enumerate(documents) if row not in gone]
        joined = view_of([base, *added], gone, order)
        case.compare(joined, base, [documents[row] for row in gone], left)

    def test_it_asks_for_no_reader_but_those_it_needs(self, case: Case) -> None:
        """Else it would be shared when what it reads has changed."""
        for segment in (case.changed().base, case.changed().delta):
            opened, asked = verified(segment), set[str]()
            opened = replace(opened, root=segment.root)
            for component in COMPONENTS:
                if component.name == case.component.name:
                    component.open(replace(opened, readers=Noting(opened.readers, asked)))
                    assert asked <= needs_of(component)
                reader = component.open(opened)
                if reader is not None:
                    opened = opened.with_reader(component, reader, component.first(reader))

    def test_other_rows_than_the_segment_has_are_refused(self, case: Case) -> None:
        if case.component.per == "index":
            return  # it has no rows
        for segment in (case.changed().base, case.changed().delta):
            documents, first = segment.rows.documents + 1, segment.rows.first
            if first is not None:
                first = np.append(first, first[-1] + np.uint32(1))
            wrong = replace(segment, rows=Rows(documents, first))
            with pytest.raises((FormatError, MismatchError)) as caught:
                case.component.open(wrong)
            told = str(caught.value)
            counts = [rows.count(case.component.per) for rows in (segment.rows, wrong.rows)]
            assert all(str(count) in told for count in counts), told
            if case.component.name in SAID:
                assert told == SAID[case.component.name][bool(segment.below)].format(*counts)

    def test_what_it_says_goes_into_json(self, case: Case) -> None:
        """Report, manifest, `/info`, explanations, and why a request is refused."""
        component, base = case.component, case.changed().base
        reader, rules = base[component], existing_rules(base, delta=False)[component.name]
        view = view_of([base])[component]
        hit = Explained(0, {})
        said = [
            component.report(base, rules, {}), component.counts(reader), component.parameters(reader), component.info(view),
            component.info(None), *(component.explain(view, name, ["bees"], hit) for name in RETRIEVERS),
        ]  # fmt: skip
        assert json.loads(json.dumps(said)) == said
        assert component.info(view).keys() == component.info(None).keys()
        lacks, serves = component.serves(None), component.serves(view)
        assert set(serves) <= set(lacks)
        assert not any(serves.values())
        assert all("build it" in why for why in lacks.values())


class Noting(Mapping[str, Any]):
    def __init__(self, readers: Mapping[str, Any], asked: set[str]) -> None:
        self._readers, self._asked = readers, asked

    def __getitem__(self, name: str) -> Any:
        self._asked.add(name)
        return self._readers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def same_files(component: AnyComponent, merged: Path, built: Path) -> None:
    """A component's files are the same, but for cut texts of passages and for spelling beside stems, which keep more."""
    found, expected = files_of(merged, component), files_of(built, component)
    assert expected and found.keys() == expected.keys()
    names = set(expected)
    if component is PASSAGES:
        name = "passages/passages.json"
        more, less = (json.loads(files[name]) for files in (found, expected))
        assert more.pop("left_out") >= less.pop("left_out") and more == less
        names.remove(name)
    if component is SPELLING and _has_stems(built):
        more, less = (dict(SpellingTable.open(folder / "spelling").items()) for folder in (merged, built))
        assert all(more[word] >= count for word, count in less.items())
        names.clear()
    assert [name for name in sorted(names) if found[name] != expected[name]] == []


def _has_stems(folder: Path) -> bool:
    return json.loads((folder / "impacts" / "impacts.json").read_bytes())["analyzer"] != "plain"
