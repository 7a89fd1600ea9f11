"""Learned impacts in an index: what every word adds to every document, pruned, added to, compacted."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.artifact import LEARNED_HEAD, TERMS_TOWER
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE, LEARNED_WORDS_FOLDER, WordSide
from glow.index.passages import PASSAGES
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.runtime import TERMS, Encoder, LearnedHead, Model
from glow.text import lexical_tokens
from tests.index_builder.conftest import Make, maker, report_of
from tests.index_builder.test_rerank import WORDS, made_up
from tests.made_index import compacted, deleted, opened, upserted

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


def test_documents_of_no_word_one_word_and_many(make: Make) -> None:
    texts = {"none": "the of and", "one": "bees", "many": "bees " * 100_000}
    documents = [{"_id": name, "text": text} for name, text in texts.items()]
    found = impacts_of(opened(make("one", documents)), ["bees"])
    assert found["none"] == [0.0]
    assert found["one"][0] > 0 and found["many"][0] > 0


def test_a_document_has_the_impacts_it_would_have_alone(make: Make) -> None:
    """Independent of the padding of its batch; its idf is that of its index."""
    long = [{"_id": f"long{number}", "text": "river stone " * 70} for number in range(3)]
    short = made_up(20)
    together, apart = (
        opened(make(name, short + long, shard_documents=size))
        for name, size in (("together", 32), ("apart", 1))
    )
    assert impacts_of(together, WORDS) == impacts_of(apart, WORDS)


def test_passages_give_a_document_the_best_of_each_word(make: Make) -> None:
    text = " ".join(f"{word.title()} is here and there among other things." for word in WORDS * 6)
    documents = [*made_up(20), {"_id": "long", "text": text}]
    index = opened(make("cut", documents, passages=True, learned_budget=10_000))
    assert index.holds(PASSAGES) and len(index[PASSAGES]) > len(documents)
    assert len(impacts_of(index, WORDS)) == len(documents)
    assert min(impacts_of(index, WORDS)["long"]) > 0


def test_a_delta_and_its_compaction_have_the_impacts_of_each_document(
    make: Make, learned_model: Path
) -> None:
    root = make("one", made_up(40), passages=True)
    before = impacts_of(opened(root), QUERY)
    new = [{**each, "_id": f"new-{each['_id']}"} for each in made_up(6)] + [{**made_up(40)[7], "_id": "d3"}]
    upserted(root, learned_model, new)
    deleted(root, "d5")
    expected = {name: impact for name, impact in before.items() if name != "d5"}
    expected |= {f"new-d{number}": before[f"d{number}"] for number in range(6)} | {"d3": before["d7"]}
    assert impacts_of(opened(root), QUERY) == expected
    compacted(root)
    assert opened(root).delta is None
    assert impacts_of(opened(root), QUERY) == expected
