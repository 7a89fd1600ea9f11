"""Learned impacts in an index: what every word adds to every document, pruned, added to, compacted, refused where they do not belong."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.artifact import LEARNED_HEAD, TERMS_TOWER
from glow.errors import GateError
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE, LEARNED_WORDS_FOLDER, LearnedImpacts, WordSide
from glow.index.passages import PASSAGES
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.runtime import TERMS, Encoder, LearnedHead, Model
from glow.text import lexical_tokens
from tests.index_builder.conftest import Make, maker, report_of
from tests.index_builder.test_rerank import judged, made_up
from tests.made_index import compacted, deleted, opened, upserted, write

QUERY = ["bees", "bees", "river", "unheard", "winter"]


@pytest.fixture
def make(tmp_path: Path, learned_model: Path) -> Make:
    return maker(tmp_path, model=learned_model, learned=True)


def impacts_of(index: Index, words: Sequence[str]) -> dict[str, list[float]]:
    """What each word alone adds to every document that can be found, BM25 left out."""
    assert index.holds(LEARNED_SPARSE)
    found = {}
    for document in index[STORED_FIELDS].scan():
        row = index[STORED_FIELDS].find(document.id)
        assert row is not None
        expansions = index[LEARNED_SPARSE].expansions(words, row)
        found[document.id] = [expansions[word].learned if word in expansions else 0.0 for word in words]
    return found


def exhaustive(index: Index, model: Path, folder: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Every word's impact in every document, worked out one by one without codes or pruning: words, and float64 [n, W]."""
    opened_model, side = Model.open(model), WordSide.load(folder / LEARNED_WORDS_FOLDER)
    head = LearnedHead.load(model / LEARNED_HEAD)
    encoder = Encoder(model / TERMS_TOWER, opened_model.preprocessor.pieces.pad_id)
    rows = []
    for document in index[STORED_FIELDS].scan():
        sequence = index.preprocessor.document(document)
        (terms,) = encoder.run_outputs([sequence], [TERMS])
        tokens = terms[0, lexical_tokens(sequence)].astype(np.float64)
        nearest = (tokens @ side.directions.T.astype(np.float64)).max(0) if len(tokens) else -1.0
        rows.append(side.gains * np.maximum(nearest - head.cut, 0.0))
    return list(side.words), np.array(rows)


def test_an_unpruned_index_ranks_as_scoring_every_word_does(make: Make, learned_model: Path) -> None:
    root = make("one", made_up(60), learned_budget=10_000)
    index, folder = opened(root), root.folder(root.current())
    words, expected = exhaustive(index, learned_model, folder)
    assert index.holds(LEARNED_SPARSE) and index.holds(POSTINGS)
    unit = json.loads((folder / "learned" / "impacts.json").read_bytes())["parameters"]["unit"]
    found = np.array(list(impacts_of(index, words).values()))
    assert np.abs(found - expected).max() <= unit / 2 + 1e-5
    assert (found > 0).mean() > 0.02
    known = [word for word in QUERY if word in words]
    every = np.arange(len(expected))
    coded = unit * np.rint(expected / unit)
    total = index[POSTINGS].score(QUERY, every) + sum(coded[:, words.index(word)] for word in known)
    scores, rows = index[LEARNED_SPARSE].search(QUERY, 60)
    np.testing.assert_allclose(scores, np.sort(total[total > 0])[::-1], rtol=1e-5)
    assert set(rows.tolist()) == set(np.flatnonzero(total > 0).tolist())


def test_a_cause_is_the_word_that_is_nearest(make: Make, learned_model: Path) -> None:
    root = make("one", made_up(20), learned_budget=10_000)
    index, folder = opened(root), root.folder(root.current())
    side, model = WordSide.load(folder / LEARNED_WORDS_FOLDER), Model.open(learned_model)
    encoder = Encoder(learned_model / TERMS_TOWER, model.preprocessor.pieces.pad_id)
    assert index.holds(LEARNED_SPARSE)
    checked = 0
    for row, document in enumerate(index[STORED_FIELDS].scan()):
        sequence = index.preprocessor.document(document)
        spoken = lexical_tokens(sequence)
        cosines = encoder.run_outputs([sequence], [TERMS])[0][0, spoken] @ side.directions.T
        for word, found in index[LEARNED_SPARSE].expansions(side.words, row).items():
            if found.cause is not None:
                here = cosines[:, side.words.index(word)]
                assert here[sequence.word_ids[spoken] == found.cause].max() >= here.max() - 1e-5
                checked += 1
    assert checked > 100


def test_a_budget_keeps_what_matters_most(make: Make, learned_model: Path) -> None:
    root = make("one", made_up(40), learned_budget=5)
    index, folder = opened(root), root.folder(root.current())
    words, expected = exhaustive(index, learned_model, folder)
    weights = WordSide.load(folder / LEARNED_WORDS_FOLDER).weights
    found = np.array(list(impacts_of(index, words).values()))
    assert (found > 0).sum(1).max() == 5
    for kept, every in zip(found, expected * weights, strict=True):
        least = (every[kept > 0]).min(initial=np.inf)
        assert (every[kept == 0] <= least * 1.05 + 0.01).all()  # but for what rounding to codes changes
    told = report_of(folder)["learned"]
    assert told["postings_per_document"] <= 5 and told["parameters"]["budget"] == 5
    assert told["words"] == len(words)


def test_documents_count_for_words_they_do_not_hold(make: Make) -> None:
    index = opened(make("one", made_up(40), learned_budget=10_000))
    assert isinstance(index[LEARNED_SPARSE], LearnedImpacts) and index.holds(POSTINGS)
    words = [word for word in WORDS_HERE if index[POSTINGS].holds(word)]
    more = 0
    for row in range(40):
        for word, found in index[LEARNED_SPARSE].expansions(words, row).items():
            assert index[LEARNED_SPARSE].by_word([word], np.array([row]))[0, 0] == pytest.approx(
                found.bm25 + found.learned
            )
            more += found.bm25 == 0 and found.cause is not None
    assert more > 0


WORDS_HERE = (
    "bees honey find way home sun dance salt water rice bread oven river stone moon night train city".split()
)


def test_documents_of_no_word_one_word_and_many(make: Make) -> None:
    documents = [
        {"_id": "none", "text": "the of and"},
        {"_id": "one", "text": "bees"},
        {"_id": "many", "text": "bees " * 100_000},
    ]
    index = opened(make("one", documents, max_line_bytes=2_000_000))
    found = impacts_of(index, ["bees"])
    assert found["none"] == [0.0]
    assert found["one"][0] > 0 and found["many"][0] > 0


@pytest.mark.parametrize("options", [{"threads": 3}, {"shard_documents": 7}])
def test_threads_and_shards_change_nothing(make: Make, options: dict[str, int]) -> None:
    plain, other = make("one", made_up(50)), make("other", made_up(50), **options)
    files = [
        {path.name: path.read_bytes() for path in (root.folder(root.current()) / "learned").iterdir()}
        for root in (plain, other)
    ]
    assert files[0] == files[1]


def test_a_document_has_the_impacts_it_would_have_alone(make: Make) -> None:
    """Independent of the padding of its batch; its idf is that of its index."""
    long = [{"_id": f"long{number}", "text": "river stone " * 70} for number in range(3)]
    short = made_up(20)
    together, apart = (
        opened(make(name, short + long, shard_documents=size))
        for name, size in (("together", 32), ("apart", 1))
    )
    assert impacts_of(together, WORDS_HERE) == impacts_of(apart, WORDS_HERE)


def test_passages_give_a_document_the_best_of_each_word(make: Make) -> None:
    text = " ".join(f"{word.title()} is here and there among other things." for word in WORDS_HERE * 6)
    documents = [*made_up(20), {"_id": "long", "text": text}]
    index = opened(make("cut", documents, passages=True, learned_budget=10_000))
    assert index.holds(PASSAGES) and len(index[PASSAGES]) > len(documents)
    assert len(impacts_of(index, WORDS_HERE)) == len(documents)
    assert min(impacts_of(index, WORDS_HERE)["long"]) > 0


@pytest.mark.parametrize("passages", [False, True])
def test_a_delta_and_its_compaction_have_the_impacts_of_each_document(
    make: Make, learned_model: Path, passages: bool
) -> None:
    root = make("one", made_up(40), passages=passages)
    before = impacts_of(opened(root), QUERY)
    new = [{**each, "_id": f"new-{each['_id']}"} for each in made_up(6)] + [{**made_up(40)[7], "_id": "d3"}]
    upserted(root, learned_model, new)
    deleted(root, "d5")
    expected = {name: impact for name, impact in before.items() if name != "d5"}
    expected |= {f"new-d{number}": before[f"d{number}"] for number in range(6)} | {"d3": before["d7"]}
    joined = opened(root)
    assert impacts_of(joined, QUERY) == expected
    assert joined.holds(LEARNED_SPARSE)
    hits = joined[LEARNED_SPARSE].search(QUERY, 50)
    compacted(root)
    packed = opened(root)
    assert packed.delta is None and packed.holds(LEARNED_SPARSE)
    assert impacts_of(packed, QUERY) == expected
    names = [
        [document.id for document in index[STORED_FIELDS].rows(rows.tolist())]
        for index, rows in ((joined, hits[1]), (packed, packed[LEARNED_SPARSE].search(QUERY, 50)[1]))
    ]
    assert names[0] == names[1]


def test_a_gate_measures_them_and_refuses_a_version_that_lost_them(make: Make, tmp_path: Path) -> None:
    data = judged(tmp_path / "data", 20)
    make("one", made_up(30))
    write(tmp_path / "one.jsonl", made_up(31))
    root = make("one", made_up(31), gate=str(data), threshold=-1.0)
    checks = root.manifest(root.current()).parameters["gate"]["checks"]
    assert any(check["name"].startswith("nDCG@10 learned") for check in checks)
    write(tmp_path / "one.jsonl", made_up(32))
    with pytest.raises(GateError, match=r"ways to search lost is 1\.0000"):
        make("one", made_up(32), gate=str(data), threshold=-1.0, learned=False)
