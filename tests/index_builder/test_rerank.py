"""Term representations in an index: built in shards, resumed, added to, compacted, and refused where they do not belong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.errors import ArtifactError, MismatchError
from glow.index import Index
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS
from glow.index.token_embeddings import TOKEN_EMBEDDINGS
from glow.search import Reranking, rank_dense, rerank
from tests.index_builder.conftest import Documents, Make, maker, report_of
from tests.made_index import compacted, deleted, opened, upserted, write
from tests.search.test_index import remake

WORDS = (
    "bees honey find way home sun dance salt water rice bread oven river stone moon night train city".split()
)


def made_up(count: int, salt: int = 0) -> Documents:
    """Documents of 1 to 60 words, so that some are cut."""

    def words(number: int) -> list[str]:
        return [WORDS[(number * 5 + salt + step * 3) % len(WORDS)] for step in range(number % 60 + 1)]

    return [
        {"_id": f"d{n}", "title": WORDS[n % len(WORDS)], "text": " ".join(words(n))} for n in range(count)
    ]


@pytest.fixture
def make(tmp_path: Path, toy_model: Path, toy_reranker: Path) -> Make:
    return maker(tmp_path, model=toy_model, rerank=toy_reranker)


def codes(index: Index) -> dict[str, list[Any]]:
    assert index.holds(TOKEN_EMBEDDINGS)
    found = {}
    for document in index[STORED_FIELDS].scan():
        row = index[STORED_FIELDS].find(document.id)
        states, mask = index[TOKEN_EMBEDDINGS].read(np.array([row]))
        found[document.id] = [states.tolist(), mask.tolist()]
    return found


def test_what_is_stored_is_what_the_re_ranker_reads(make: Make) -> None:
    root = make("one", made_up(40))
    index = opened(root)
    assert index.holds(TOKEN_EMBEDDINGS) and index.reranker is not None
    assert len(index[TOKEN_EMBEDDINGS]) == 40
    header = index[TOKEN_EMBEDDINGS].header
    assert (header.bits, header.size, header.split) == (4, 16, 2)
    assert (header.position_start, header.document_tokens) == (24, 64)
    read = index.reranker.documents().read(list(index[STORED_FIELDS].scan()))
    assert index[TOKEN_EMBEDDINGS].lengths(np.arange(40)).tolist() == [len(states) for states in read]
    for row, exact in enumerate(read):
        states, _ = index[TOKEN_EMBEDDINGS].read(np.array([row]))
        step = (exact.max() + 0.17) / 15
        assert np.abs(states[0] - exact).max() <= step + 1e-3
    told, manifest = report_of(root.folder(root.current()))["rerank"], root.manifest(root.current())
    assert told["bits"] == 4 and told["tokens"] > 500 and told["bytes_per_token"] < 14
    assert manifest.parents["reranker"]["name"] == "toy-reranker"
    assert manifest.hashes["reranker"] == told["reranker"]


def test_threads_and_shards_change_nothing(make: Make) -> None:
    one, other = make("one", made_up(50)), make("other", made_up(50), threads=3, shard_documents=7)
    assert codes(opened(one)) == codes(opened(other))


def test_added_and_compacted_documents_are_stored_as_a_build_stores_them(make: Make, toy_model: Path) -> None:
    root = make("one", made_up(40), term_stats="model")
    changed = [*made_up(4, salt=7), *({**each, "_id": "new" + each["_id"]} for each in made_up(30, salt=3))]
    upserted(root, toy_model, changed)
    deleted(root, "d20", "d21")
    kept = [each for each in made_up(40)[4:] if each["_id"] not in ("d20", "d21")]
    expected = opened(make("rebuilt", [*kept, *changed], term_stats="model"))
    delta = opened(root)
    compacted(root)
    for index in (delta, opened(root)):
        assert hits(index) == hits(expected)
        assert codes(index) == codes(expected)


def hits(index: Index) -> list[tuple[str, float]]:
    text = "bees find the way home"
    vector = index.encoder.run([index.preprocessor.query(text)])[0]
    ranked, is_whole = rerank(index, text, rank_dense(index, vector, 60), Reranking(50), vector=vector)
    assert is_whole
    ids = [document.id for document in index[STORED_FIELDS].rows(ranked.rows[:50].tolist())]
    return [
        (name, round(float(score), 4)) for name, score in zip(ids, ranked.parts["rerank"][:50], strict=True)
    ]


def test_the_best_passage_is_what_is_read(make: Make) -> None:
    text = "bees honey find way home sun"
    body = ". ".join(["salt water rice bread oven river stone"] * 30 + [text])
    index = opened(make("one", [{"_id": "long", "title": "salt", "text": body}, *made_up(20)], passages=True))
    assert index.holds(PASSAGES) and index.holds(TOKEN_EMBEDDINGS)
    assert len(index[TOKEN_EMBEDDINGS]) == len(index[PASSAGES]) > 21
    vector = index.encoder.run([index.preprocessor.query(text)])[0]
    first = rank_dense(index, vector, 21)
    row = index[STORED_FIELDS].find("long")
    ranked, _ = rerank(index, text, first, Reranking(21), vector=vector)
    place = ranked.rows.tolist().index(row)
    assert index.reranker is not None
    query = index.reranker.query(text)
    stored, mask = index[TOKEN_EMBEDDINGS].read(np.array([first.passages[row]]))
    assert ranked.parts["rerank"][place] == pytest.approx(
        float(index.reranker.score(query, stored, mask)[0]), abs=1e-4
    )
    # Words alone know no passage: the vector tells which.
    words_only = type(first)(first.scores, first.rows, first.parts, {})
    told, _ = rerank(index, text, words_only, Reranking(21), vector=vector)
    np.testing.assert_allclose(told.parts["rerank"], ranked.parts["rerank"], atol=1e-4)
    blind, _ = rerank(index, text, words_only, Reranking(21))
    assert blind.parts["rerank"][blind.rows.tolist().index(row)] != pytest.approx(
        float(ranked.parts["rerank"][place]), abs=1e-3
    )


def test_a_folder_that_is_no_re_ranker_is_refused_before_anything_is_read(
    make: Make, toy_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(MismatchError, match="toy-model is of kind model, expected reranker"):
        make("one", made_up(5), rerank=toy_model)
    with pytest.raises(ArtifactError, match="no reranker at"):
        make("one", made_up(5), rerank=tmp_path / "nowhere")
    assert not (tmp_path / "one" / ".work").exists()


def test_a_re_ranker_that_was_exchanged_is_refused(make: Make) -> None:
    root = make("one", made_up(20))
    version = root.folder(root.current())
    weights = version / "reranker" / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    remake(version)
    with pytest.raises(MismatchError, match="not the re-ranker that its manifest names"):
        opened(root)


def test_a_version_shares_the_re_ranker_that_was_opened(make: Make, toy_model: Path, tmp_path: Path) -> None:
    root = make("one", made_up(20))
    first = opened(root)
    upserted(root, toy_model, [{"_id": "more", "text": "bees find the way home"}])
    second = Index.open(root.folder(root.current()), like=first)
    # Of a rebuild it has the same content, too.
    write(tmp_path / "one.jsonl", made_up(25))
    make("one", made_up(25))
    third = Index.open(root.folder(root.current()), like=second)
    assert first.reranker is second.reranker is third.reranker
    assert hits(third) == hits(opened(root))
