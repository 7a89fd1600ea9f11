"""Every way to encode makes the same blocks, survives the death of a worker, and goes on where another ended."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from glow.errors import ConfigError, DependencyError
from glow.index.learned_sparse.component import LearnedJob, make_word_side
from glow.index.stored_fields import DocumentWriter
from glow.index.token_embeddings import StatesJob
from glow.records import Document
from glow.runtime import Model
from glow_index_builder.encoding.blocks import BlockEncoder, EncodedBlocks, plan_blocks
from glow_index_builder.encoding.schedule import (
    Run,
    encode_blocks,
    in_child,
    in_ray,
    in_threads,
    start_encoding,
    start_ray,
)
from glow_index_builder.options import BuildOptions
from tests.artifact.conftest import flip
from tests.conftest import DATA

SHARD = 4
HAS_RAY = importlib.util.find_spec("ray") is not None


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> type[BlockEncoder]:
    """The encoder that dies, where worker processes find it, too."""
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
    """A small corpus that waits to be encoded."""
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
    """The same job by another class."""
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


def test_after_two_kills_blocks_are_encoded_in_another_process(
    tmp_path: Path, learned_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = BuildOptions(model=learned_model, source="-", index_root=tmp_path)
    job = job_of(tmp_path / "here", learned_model, ["a"])
    for name in ("in_threads", "in_child"):
        monkeypatch.setattr(f"glow_index_builder.encoding.schedule.{name}", lambda _, name=name: name)
    chosen: list[object] = [start_encoding(options, job, kills) for kills in (0, 1, 2)]
    assert chosen == ["in_threads", "in_threads", "in_child"]


@pytest.mark.parametrize("more", [{"workers": 2}, {"ray_address": "auto"}])
def test_options_of_ray_need_ray(more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="need --runner ray"):
        BuildOptions(model=tmp_path, source="-", index_root=tmp_path, **more).check_runner()


def test_a_runner_that_is_not_installed_is_refused_by_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DependencyError, match="extra `scale`"):
        BuildOptions(model=tmp_path, source="-", index_root=tmp_path, runner="ray").check_runner()
