"""Every way to encode makes the same blocks, survives the death of a worker, and goes on where another ended."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.errors import ConfigError, DependencyError
from glow.index.learned_sparse.component import LearnedJob, make_word_side
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.index.token_embeddings import StatesJob
from glow.records import Document
from glow.runtime import Model
from glow.text import TermTable
from glow_index_builder.encoding.blocks import BlockEncoder, EncodedBlocks, plan_blocks
from glow_index_builder.encoding.schedule import (
    Run,
    encode_blocks,
    encode_texts,
    in_child,
    in_ray,
    in_threads,
    start_encoding,
    start_ray,
)
from glow_index_builder.encoding.text_encoder import TextEncoder
from glow_index_builder.options import BuildOptions
from tests.artifact.conftest import flip
from tests.conftest import DATA

SHARD = 4
HAS_RAY = importlib.util.find_spec("ray") is not None


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> type[BlockEncoder]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    module = importlib.import_module("deadly_encoder")
    found: type[BlockEncoder] = module.DeadlyEncoder
    return found


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    """Ray for all tests of this file: it starts slowly."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        try:
            start_ray(2)
        except Exception:  # Ray raises no other kind when its processes hang at their start
            ray.shutdown()
            start_ray(2)
        yield
        ray.shutdown()


@pytest.fixture(params=["child", pytest.param("ray", marks=pytest.mark.skipif(not HAS_RAY, reason="no ray"))])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("ray_here")
    return str(request.param)


def job_of(folder: Path, model: Path, ids: list[str]) -> BlockEncoder:
    folder.mkdir()
    with DocumentWriter(folder / "documents.sqlite") as writer:
        for number, identifier in enumerate(ids):
            writer.add(Document(identifier, {"title": (f"bees {number}",), "text": ("home " * number,)}))
    opened = Model.open(model)
    terms = opened.preprocessor.terms
    terms.save(folder / "terms")
    make_word_side(opened, (), terms, terms, 40, 1).save(folder / "learned-words")
    places = (model, folder / "documents.sqlite", folder / "terms", None, folder / "shards")
    learned, states = LearnedJob(folder / "learned-words", 5), StatesJob(DATA / "toy-reranker", 16)
    return BlockEncoder(*places, "cpu", 1, {"learned_sparse": learned, "token_embeddings": states})


def as_job(kind: type[BlockEncoder], job: BlockEncoder) -> BlockEncoder:
    return kind(**vars(job))


def encode(encoding: AbstractContextManager[Run], job: BlockEncoder, count: int) -> EncodedBlocks:
    return encode_blocks(encoding, plan_blocks(count, SHARD), job.folder, 32, lambda _: None, job.jobs)


def facts(found: EncodedBlocks) -> list[Any]:
    return [(block.start, block.rows, block.truncated) for block in found.blocks]


def vectors(job: BlockEncoder) -> dict[str, bytes]:
    """Of each block, and its records of components."""
    files = [file for suffix in ("f32", *job.jobs) for file in job.folder.glob(f"*.{suffix}")]
    return {path.name: path.read_bytes() for path in files}


def test_it_makes_the_same_blocks_though_a_worker_is_killed_and_goes_on_where_one_ended(
    kind: str, deadly: type[BlockEncoder], tmp_path: Path, learned_model: Path
) -> None:
    ids = [f"d{number}" for number in range(9)] + ["once"]
    plain = job_of(tmp_path / "plain", learned_model, ids)
    job = job_of(tmp_path / "here", learned_model, ids)
    expected = encode(in_threads(plain), plain, len(ids))

    def encoding() -> AbstractContextManager[Run]:
        dying = as_job(deadly, job)
        return in_child(dying) if kind == "child" else in_ray(dying, 1)

    found = encode(encoding(), job, len(ids))
    assert (found.failures, found.poison) == (1, {})
    assert facts(found) == facts(expected)
    assert vectors(job) == vectors(plain)
    assert len(vectors(job)) == 9

    names = sorted(vectors(job))
    (job.folder / names[0]).unlink()
    flip(job.folder / names[5], 7)
    kept = (job.folder / names[8]).stat().st_mtime_ns
    found = encode(encoding(), job, len(ids))
    assert (found.resumed, found.documents) == (1, 8)
    assert vectors(job) == vectors(plain)
    assert (job.folder / names[8]).stat().st_mtime_ns == kept


def test_a_document_that_kills_its_process_costs_itself_alone(
    deadly: type[BlockEncoder], tmp_path: Path, learned_model: Path
) -> None:
    ids = ["a", "poison", "c"]
    job = job_of(tmp_path / "here", learned_model, ids)
    plan = plan_blocks(len(ids), 2)
    found = encode_blocks(in_child(as_job(deadly, job)), plan, job.folder, 32, lambda _: None, {})
    assert found.poison == {1: "the process that encoded it died"}
    assert [block.rows for block in found.blocks] == [1, 1]


def test_a_model_that_is_gone_ends_the_build_and_not_only_a_worker(
    tmp_path: Path, learned_model: Path
) -> None:
    job = job_of(tmp_path / "here", learned_model, ["a"])
    (tmp_path / "here" / "terms" / "terms.json").unlink()
    with pytest.raises(Exception, match=r"cannot read terms/terms\.json"):
        encode(in_child(job), job, 1)


def test_texts_alone_have_the_vectors_and_records_of_blocks(tmp_path: Path, learned_model: Path) -> None:
    """As an upsert encodes them, whatever the number of threads."""
    ids = [f"d{number}" for number in range(40)]
    job = job_of(tmp_path / "here", learned_model, ids)
    blocks = encode(in_threads(job), job, len(ids))
    documents = list(DocumentStore(job.store).scan())
    encoder = TextEncoder.open(Model.open(learned_model), TermTable.load(job.terms), "cpu", job.jobs)
    found = []
    for threads in (1, 3):
        folder, done = tmp_path / str(threads), list[int]()
        folder.mkdir()
        found.append(encode_texts(documents, encoder, threads, folder, done.append, job.jobs))
        assert sum(done) == len(ids)
    np.testing.assert_array_equal(found[0].vectors()[0:40], found[1].vectors()[0:40])
    np.testing.assert_allclose(found[0].vectors()[0:40], blocks.vectors()[0:40], atol=1e-5)
    for name in job.jobs:
        one, other, whole = (
            b"".join(each.records.tobytes() for each in texts.records(name)) for texts in (*found, blocks)
        )
        assert one == other == whole
    nothing = encode_texts([], encoder, 2, tmp_path, lambda _: None, job.jobs)
    assert nothing.vectors().shape == (0, 32) and not list(nothing.records("learned_sparse"))


def test_after_two_kills_blocks_are_encoded_in_another_process(
    tmp_path: Path, learned_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = BuildOptions(model=learned_model, source="-", index_root=tmp_path)
    job = job_of(tmp_path / "here", learned_model, ["a"])
    for name in ("in_threads", "in_child"):
        monkeypatch.setattr(f"glow_index_builder.encoding.schedule.{name}", lambda _, name=name: name)
    chosen: list[object] = [start_encoding(options, job, kills) for kills in (0, 1, 2)]
    assert chosen == ["in_threads", "in_threads", "in_child"]


def test_ray_is_asked_for_and_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = BuildOptions(model=tmp_path, source="-", index_root=tmp_path)
    for more in ({"workers": 2}, {"ray_address": "auto"}):
        with pytest.raises(ConfigError, match="need --runner ray"):
            chosen.model_copy(update=more).check_runner()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DependencyError, match="extra `scale`"):
        chosen.model_copy(update={"runner": "ray"}).check_runner()
