"""What `glow ingest` makes of the log: the last word counts, nothing twice, what fails is told and costs itself alone."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from glow.artifact import IndexRoot
from glow.errors import ArtifactNotFoundError, BusyError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.ingest import INGEST_FOLDER, IngestLog, OperationId, Outcome, find_outcome, read_state
from glow_index_builder.ingest import Ingester, IngestOptions
from glow_index_builder.versions.gc import collect
from tests.ingest.conftest import MakeRoot, held, holding, start_ingest
from tests.made_index import documents, made, stages, write
from tests.program import glow
from tests.until import until


@pytest.fixture
def root(root_of: MakeRoot) -> IndexRoot:
    return root_of(12)


def ingester(root: IndexRoot, model: Path, **options: Any) -> Ingester:
    given = IngestOptions(index_root=root.path, model=model, threads=1, **options)
    return Ingester(given, stages())


def log_of(root: IndexRoot) -> IngestLog:
    return IngestLog(root.path / INGEST_FOLDER, 1 << 30)


def check(root: IndexRoot) -> int:
    return glow("ingest", "--index-root", root.path, "--check").returncode


def outcome(root: IndexRoot, accepted: OperationId) -> Outcome:
    found = find_outcome(root.path / INGEST_FOLDER, accepted)
    assert found is not None
    return found


def text(identifier: str, words: str) -> dict[str, Any]:
    return {"_id": identifier, "text": words}


def test_the_last_word_on_each_document_counts(root: IndexRoot, toy_model: Path) -> None:
    before, one, two = held(root), log_of(root), log_of(root)
    one.append("upsert", documents=[text("a", "first"), text("b", "bees")])
    two.append("upsert", documents=[text("a", "second"), text("d/3", "owls")])
    one.append("delete", ids=["b", "d/5", "nobody"])
    two.append("upsert", documents=[text("d/5", "again")])
    last = one.append("delete", ids=["d/6"])
    live = root.current()
    assert ingester(root, toy_model).apply_waiting() == 5
    expected = {**before, "a": "second", "d/3": "owls", "d/5": "again"}
    del expected["d/6"]
    assert held(root) == expected
    assert root.history() == [live]  # all of it is one version
    found = outcome(root, last)
    assert (found.state, found.version) == ("applied", root.current())
    assert found.counts == {"new": 1, "replaced": 2, "deleted": 1, "unchanged": 0, "unknown": 2}
    assert ingester(root, toy_model).apply_waiting() == 0
    assert held(root) == expected


def test_what_a_filter_deletes_is_what_it_finds_in_its_turn(root: IndexRoot, toy_model: Path) -> None:
    log = log_of(root)
    log.append("upsert", documents=[{**text("new", "early"), "lang": "en"}])
    log.append("delete_by_filter", filter={"field": "lang", "eq": "en"})
    log.append("upsert", documents=[{**text("later", "late"), "lang": "en"}])
    bad = log.append("delete_by_filter", filter={"field": "nowhere", "eq": 1})
    last = log.append("upsert", documents=[text("last", "words")])
    assert ingester(root, toy_model).apply_waiting() == 5
    assert set(held(root)) == {f"d/{number}" for number in range(12) if number % 3} | {"later", "last"}
    assert outcome(root, bad).state == "failed"
    assert "no field 'nowhere'" in outcome(root, bad).reason
    assert outcome(root, last).state == "applied"


def test_a_patch_changes_metadata_and_nothing_else(root: IndexRoot, toy_model: Path) -> None:
    log, before = log_of(root), held(root)
    log.append("upsert", documents=[{**text("d/3", "owls"), "price": 1, "at": {"x": 1, "y": 2}}])
    log.append("patch", id="d/3", metadata={"price": 2, "at": {"x": None}})
    log.append("patch", id="nobody", metadata={"price": 1})
    log.append("patch", id="d/3", metadata={"price": 3, "text": "no metadata"})
    log.append("patch", id="d/4", metadata={"lang": None})
    log.append("delete", ids=["d/5"])
    last = log.append("patch", id="d/5", metadata={"price": 1})
    assert ingester(root, toy_model).apply_waiting() == 7
    expected = {**before, "d/3": "owls"}
    del expected["d/5"]
    assert held(root) == expected
    stored = Index.open(root.folder(root.current()))[STORED_FIELDS]
    assert stored.get("d/3").metadata == {"price": 3, "at": {"y": 2}}
    assert "lang" not in stored.get("d/4").metadata
    counts = outcome(root, last).counts
    assert counts == {"new": 0, "replaced": 2, "deleted": 1, "unchanged": 0, "unknown": 2}


def test_a_patch_that_makes_a_document_too_large_fails_alone(root: IndexRoot, toy_model: Path) -> None:
    log = log_of(root)
    large = log.append("patch", id="d/3", metadata={"notes": "x" * 1_000_000})
    last = log.append("patch", id="d/3", metadata={"price": 1})
    assert ingester(root, toy_model).apply_waiting() == 2
    assert "longer than 1000000 bytes" in outcome(root, large).reason
    assert outcome(root, last).counts["replaced"] == 1


def test_a_deletion_by_filter_is_one_step_that_one_rollback_takes_back(
    toy_model: Path, tmp_path: Path
) -> None:
    records = [{**each, "kind": "old" if n % 10 else "new"} for n, each in enumerate(documents(2_400))]
    root = made(toy_model, write(tmp_path / "first.jsonl", records), tmp_path / "index", index="flat")
    log, whole = log_of(root), root.current()
    worker = ingester(root, toy_model, keep=1)
    accepted = log.append("delete_by_filter", filter={"field": "kind", "eq": "old"})
    assert worker.apply_waiting() == 1
    assert root.history() == [whole]  # 2,160 deletions, and readers saw one version
    found = outcome(root, accepted)
    assert (found.before, found.counts["deleted"], len(held(root))) == (whole, 2_160, 240)
    # Whatever comes later, the version stays, and one command goes back to it.
    for number in range(4):
        log.append("upsert", documents=[text(f"n/{number}", "later")])
        worker.apply_waiting()
        collect(root, 1, now=time.time() + 3_700)
    assert len(held(root)) == 244
    done = glow("rollback", "--index-root", root.path, found.before)
    assert (done.returncode, root.current(), len(held(root))) == (0, whole, 2_400)
    assert worker.apply_waiting() == 0  # what was rolled back is not applied again
    log.append("upsert", documents=[text("after", "later")])
    worker.apply_waiting()
    assert len(held(root)) == 2_401
    (root.path / "PINNED").write_text(f"{whole} until 2026-11-02T10:15:00+00:00\n")
    collect(root, 1, now=time.time() + 3_700)
    assert whole not in root.versions()  # once its time has passed it may go


def test_versions_before_deletions_are_kept_up_to_a_number(
    root: IndexRoot, toy_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow_index_builder.ingest.MOST_KEPT", 3)
    log, worker = log_of(root), ingester(root, toy_model)
    root.pin(root.current())
    for number in range(5):
        log.append("upsert", documents=[{**text("again", "words"), "lang": f"l{number}"}])
        log.append("delete_by_filter", filter={"field": "lang", "eq": f"l{number}"})
    worker.apply_waiting()
    assert len(root.pinned()) == 4
    assert root.versions()[0] in root.pinned()  # that one is pinned for good


def test_all_documents_go_only_if_they_are_meant_and_new_ones_come(root: IndexRoot, toy_model: Path) -> None:
    log = log_of(root)
    every = log.append("delete_by_filter", filter={"not": {"or": []}})
    assert ingester(root, toy_model).apply_waiting() == 1
    assert (outcome(root, every).state, len(held(root))) == ("failed", 12)
    assert "matches every document" in outcome(root, every).reason
    log.append("delete_by_filter", filter={"and": []}, all=True)
    log.append("upsert", documents=[text(f"n/{each}", "words") for each in range(1_100)])
    assert ingester(root, toy_model).apply_waiting() == 2
    assert set(held(root)) == {f"n/{each}" for each in range(1_100)}
    log.append("upsert", documents=[text("last", "words")])
    assert ingester(root, toy_model).apply_waiting() == 1
    assert len(held(root)) == 1_101


def test_positions_are_known_without_the_state_file(root: IndexRoot, toy_model: Path) -> None:
    log = log_of(root)
    log.append("upsert", documents=[text("a", "words")])
    ingester(root, toy_model).apply_waiting()
    live, state = root.current(), root.path / INGEST_FOLDER / "state.json"
    for damage in (state.unlink, lambda: state.write_text("{")):
        damage()
        # What led to a version is known by it; what changed nothing may be looked at again, and changes nothing again.
        assert ingester(root, toy_model).apply_waiting() <= 1
        log.append("delete", ids=["nobody"])
        assert ingester(root, toy_model).apply_waiting() == 1
    assert root.current() == live
    assert read_state(root.path / INGEST_FOLDER).applied[log.writer].number == 3


def test_a_delta_that_grows_is_folded_in(root_of: MakeRoot, toy_model: Path) -> None:
    root = root_of(60)
    log = log_of(root)
    for start in range(0, 1_500, 300):
        notes = [text(f"n/{start + each}", f"a note, number {each}") for each in range(300)]
        log.append("upsert", documents=notes)
    said: list[str] = []
    given = IngestOptions(index_root=root.path, model=toy_model, threads=2, batch_documents=300, keep=2)
    Ingester(given, stages(), said.append).apply_waiting()
    assert len(held(root)) == 1_560
    assert sum("compacted" in line for line in said) >= 2
    ingested = root.manifest(root.current()).parameters["ingested"]
    assert ingested[log.writer]["number"] == 5  # also where the last step was to compact
    assert len(root.versions()) <= 8


def test_an_operation_that_is_larger_than_a_delta_may_be_is_applied_in_pieces(
    root: IndexRoot, toy_model: Path
) -> None:
    log = log_of(root)
    notes = [text(f"n/{each}", f"a note, number {each}") for each in range(1_500)]
    accepted = log.append("upsert", documents=notes)
    worker = ingester(root, toy_model, batch_documents=400)
    assert worker.apply_waiting() == 1
    assert len(held(root)) == 1_512
    found = outcome(root, accepted)
    assert (found.state, found.counts["new"], found.version) == ("applied", 1_500, root.current())
    deleted = log.append("delete", ids=[f"n/{each}" for each in range(1_500)])
    assert worker.apply_waiting() == 1
    assert (len(held(root)), outcome(root, deleted).counts["deleted"]) == (12, 1_500)


def test_a_fault_of_the_command_costs_no_write(root: IndexRoot, toy_model: Path, tmp_path: Path) -> None:
    accepted = log_of(root).append("upsert", documents=[text("a", "words")])
    with pytest.raises(ArtifactNotFoundError):
        ingester(root, tmp_path / "no-model").apply_waiting()
    assert find_outcome(root.path / INGEST_FOLDER, accepted) is None
    assert ingester(root, toy_model).apply_waiting() == 1
    assert "a" in held(root)


def test_damage_is_told_and_what_follows_is_applied(root: IndexRoot, toy_model: Path) -> None:
    log = log_of(root)
    accepted = [log.append("upsert", documents=[text(f"n{number}", "words")]) for number in range(3)]
    path = root.path / INGEST_FOLDER / "log" / f"{log.writer}.log"
    path.write_bytes(path.read_bytes().replace(b'"n1"', b'"n7"'))
    assert ingester(root, toy_model).apply_waiting() == 3
    assert {"n0", "n2"} <= set(held(root)) and not {"n1", "n7"} & set(held(root))
    found = [outcome(root, each) for each in accepted]
    assert [each.state for each in found] == ["applied", "failed", "applied"]
    assert "is damaged: its checksum differs" in found[1].reason


def test_one_process_applies_at_a_time(root: IndexRoot, toy_model: Path) -> None:
    (root.path / INGEST_FOLDER).mkdir()
    with holding("RootLock(Path(sys.argv[1])).hold(0.0)", root.path / INGEST_FOLDER):
        with pytest.raises(BusyError), ingester(root, toy_model).claim():
            pass
        assert check(root) == 0
    assert check(root) == 1


def test_the_command_goes_on_until_it_is_ended(root: IndexRoot, toy_model: Path) -> None:
    with start_ingest(root, toy_model, "--poll-interval-s", "0.1") as process:
        for number in range(2):
            log_of(root).append("upsert", documents=[text(f"n{number}", "words")])
            until(lambda name=f"n{number}": name in held(root))  # type: ignore[misc]
        process.terminate()
        assert process.wait(30) == 0
    assert json.loads((root.path / INGEST_FOLDER / "state.json").read_text())["applied"]
