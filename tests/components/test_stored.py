"""Components whose rows are in Milvus answer as those in files, scores within the tolerance; what is merged is the same to the byte."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.errors import MismatchError
from glow.index import COMPONENTS, Segment, open_segment, view_of
from glow.index.milvus import STORED_FOLDER, collections_of, connect, store_segment, stored_header
from glow.index.postings import POSTINGS
from glow.index.ranking import RowMask
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from tests.components.answers import Answers
from tests.components.cases import Case, Segments, verified
from tests.components.conftest import World
from tests.components.kinds import CASES, OLD, document_of
from tests.components.probes import PROBES, Seen
from tests.stores.conftest import assert_alike


@dataclass
class StoredSegments(Segments):
    """Segments whose base is in a collection."""

    address: str = ""  # of the server

    assert_alike = staticmethod(assert_alike)

    def base(self, held: Sequence[Document], **changed: Any) -> Segment:
        return stored(super().base(held, **changed), self.address)


def stored(base: Segment, address: str) -> Segment:
    """A base after `store_segment`, opened again."""
    store_segment(base, base.folder, address, base.folder.with_name("notes"))
    return open_segment(verified(replace(base, readers={})))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"milvus://{tmp_path_factory.mktemp('lite') / 'rows.db'}"


@pytest.fixture(scope="module")
def shared() -> dict[str, dict[str, Any]]:
    return {}


@pytest.fixture
def case(
    request: pytest.FixtureRequest, world: World, address: str, shared: dict[str, dict[str, Any]]
) -> Case:
    kind, name = request.param
    local, _ = world(kind)
    component = next(each for each in COMPONENTS if each.name == name)
    segments = StoredSegments(local.model, local.options, local.new_folder, address=address)
    return Case(component, segments, shared.setdefault(kind, {}))


@pytest.mark.parametrize("case", CASES, indirect=True)
class TestStored:
    """The suite of the contract, over a base in Milvus."""

    test_base_and_delta = Answers.test_base_and_delta_answer_as_a_rebuild
    test_compacted = Answers.test_a_compacted_index_is_to_the_byte_one_built_of_what_is_left
    test_only_deletes = Answers.test_a_delta_that_only_deletes
    test_one_document = Answers.test_one_document
    test_equal_documents = Answers.test_equal_documents_stand_in_the_order_of_their_ids


@pytest.fixture(scope="module")
def both(world: World, address: str) -> tuple[Segment, Segment]:
    """The same documents in files and in a collection."""
    local, _ = world("whole")
    held = [document_of(each) for each in OLD]
    return local.base(held), stored(local.base(held), address)


def test_a_base_alone_answers_alike(both: tuple[Segment, Segment]) -> None:
    for component in COMPONENTS:
        assert_alike(*(PROBES[component.name](Seen.of(view_of([segment]))) for segment in both))


def test_files_that_the_collection_replaces_are_gone(both: tuple[Segment, Segment]) -> None:
    local, remote = (
        {path.relative_to(each.folder).as_posix() for path in each.folder.rglob("*") if path.is_file()}
        for each in both
    )
    assert remote - local == {f"{STORED_FOLDER}/store.json", f"{STORED_FOLDER}/by-id.npy"}
    gone = local - remote
    assert {"documents.sqlite", "impacts/rows.npy", "learned/codes.npy"} <= gone
    assert not {"impacts/words.bin", "columns/columns.json"} & gone


def test_the_largest_impact_of_some_documents_is_found(both: tuple[Segment, Segment]) -> None:
    generator = np.random.default_rng(0)
    local, remote = (each[POSTINGS] for each in both)
    for share in (0.9, 0.3, 0.02, 0.0):
        alive = RowMask(generator.random(len(local)) < share)
        assert_alike(local.largest_of(alive), remote.largest_of(alive))
    assert local.largest == remote.largest


def test_ids_are_found_and_only_those(both: tuple[Segment, Segment]) -> None:
    local, remote = (each[STORED_FIELDS] for each in both)
    assert (both[0][POSTINGS].is_remote, both[1][POSTINGS].is_remote) == (False, True)
    ids = ["d/0", "d/39", "d/4", "d/40", "", "zz", "d/", *(f"d/{number}" for number in range(60))]
    assert local.find_all(ids) == remote.find_all(ids) == [remote.find(each) for each in ids]
    each_alone = [remote.rows_before([each])[0] for each in ids]
    assert local.rows_before(ids) == remote.rows_before(ids) == each_alone
    assert remote.find_all([]) == remote.rows_before([]) == []
    for after in ("", "d/", "d/39", "d/4", "zz"):
        rest = [each for each in remote.by_id() if each[0] > after]
        assert list(local.by_id(after)) == list(remote.by_id(after)) == rest
    assert list(local.scan(3, 7)) == list(remote.scan(3, 7))
    assert list(local.metadata()) == list(remote.metadata())


def test_long_and_odd_documents_come_back_as_they_were(world: World, address: str) -> None:
    local, _ = world("plain")
    texts = ("", "x" * 70_000, "日本" * 30_000, 'quotes " and \n breaks \\ \u2028', "\U0001f41d" * 20_000)
    held = [Document(f"odd/{number} '\"", {"text": (text,)}, {}) for number, text in enumerate(texts)]
    segment = stored(local.base(held, index="flat"), address)
    assert list(segment[STORED_FIELDS].scan()) == held
    assert segment[STORED_FIELDS].find("odd/3 '\"") == 3


def test_a_collection_with_other_rows_is_refused(world: World, address: str) -> None:
    local, _ = world("plain")
    segment = stored(local.base([document_of(each) for each in OLD[:9]], index="flat"), address)
    header = stored_header(segment)
    assert header is not None
    name, closed = header.collections[0].collection, verified(replace(segment, readers={}))
    with pytest.raises(MismatchError, match="belongs to another model, term statistics"):
        open_segment(replace(closed, hashes={**closed.hashes, "model": "x"}))
    entity = connect(address).run(lambda client, _: client.query(name, filter="row == 0"))[0]
    del segment
    changed = {**entity, "id": "another"}
    connect(address).run(lambda client, _: client.upsert(name, [changed]))
    with pytest.raises(MismatchError, match=f"collection {name} holds other rows"):
        open_segment(closed)
    connect(address).run(lambda client, _: client.delete(name, ids=[5]))
    with pytest.raises(MismatchError, match="holds 8 rows, expected 9"):
        open_segment(closed)
    connect(address).run(lambda client, _: client.drop_collection(name))
    with pytest.raises(MismatchError, match="collection is missing"):
        open_segment(closed)


def test_an_import_that_was_cut_off_goes_on(world: World, address: str, tmp_path: Path) -> None:
    local, _ = world("plain")
    base = local.base([document_of(each) for each in OLD], index="flat")
    notes = tmp_path / "notes"

    def killed(rows: int) -> None:
        if rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store_segment(base, base.folder, address, notes, killed)
    assert (base.folder / "documents.sqlite").is_file()
    seen: list[int] = []
    store_segment(base, base.folder, address, notes, seen.append)
    assert seen[0] == len(OLD)  # nothing is imported again
    names = collections_of(base.folder)
    assert len(names) == 1 and set(names.values()) == {address}
