"""Learned impacts as a component, and what all that is made of words refuses and says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.errors import ConfigError, MismatchError
from glow.index import DELTA, Explained, Rows, Segment
from glow.index.learned_sparse import (
    LEARNED_SPARSE,
    LearnedOptions,
    LearnedRules,
)
from glow.index.postings import POSTINGS, ImpactIndex, PostingsRules
from glow.runtime import Model
from tests.components.made_words import (
    Made,
    asked,
    corpus_of,
    joined_of,
    learned_segment,
    made_up,
    verified,
)


def rules_for(model: Model, **options: Any) -> LearnedRules:
    """Rules of a build."""
    chosen = LearnedOptions.model_validate({"learned": True, **options})
    rules = LEARNED_SPARSE.rules(chosen, asked(model, "postings"))
    assert rules is not None
    return rules


def test_only_the_head_of_an_index_adds_to_it(tmp_path: Path, learned_model: Path) -> None:
    model = Model.open(learned_model)
    rules = rules_for(model, learned_budget=5, learned_words=20)
    base = learned_segment(
        corpus_of(model, made_up(24, 5), tmp_path / "base"), PostingsRules(), rules, Made()
    )
    assert LEARNED_SPARSE.report(base, rules, {})["learned"]["words"] == 20
    added = LEARNED_SPARSE.rules_of(replace(base, hashes=rules.hashes), delta=True)
    assert added is not None and added.words == tmp_path / "base" / "learned-words"
    LEARNED_SPARSE.check_model(added, model)
    with pytest.raises(MismatchError, match="other learned impacts than made has: expected the hash none"):
        LEARNED_SPARSE.check_model(replace(added, hashes={}), model)


def test_impacts_in_other_units_are_not_joined(tmp_path: Path, learned_model: Path) -> None:
    model = Model.open(learned_model)
    rules = rules_for(model)
    base, delta = (
        learned_segment(corpus_of(model, made_up(5), tmp_path / str(unit)), PostingsRules(), each, Made())
        for unit, each in ((0, rules), (1, replace(rules, unit=0.5)))
    )
    with pytest.raises(
        MismatchError, match=r"of its base in the unit 0\.\d+, of its delta in 0\.5; roll back"
    ):
        joined_of(LEARNED_SPARSE, base[LEARNED_SPARSE], delta[LEARNED_SPARSE], np.array([0]))


@pytest.fixture
def made(tmp_path: Path, learned_model: Path) -> Segment:
    """A version with words and learned impacts, nothing open."""
    model = Model.open(learned_model)
    corpus = corpus_of(model, made_up(8), tmp_path / "base")
    segment = learned_segment(corpus, PostingsRules(analyzer="plain"), rules_for(model), Made())
    return verified(segment)


def test_words_of_other_rows_are_refused(made: Segment) -> None:
    other = replace(made, rows=Rows(9)).with_reader(POSTINGS, ImpactIndex.open(made.folder / "impacts"))
    with pytest.raises(
        MismatchError, match=r"index made: impacts of 8 documents, 9 stored documents; rebuild"
    ):
        POSTINGS.open(other)
    learned = r"learned/ holds impacts \(learned\) of 8 documents, "
    with pytest.raises(MismatchError, match=f"index made: {learned}9 stored documents; rebuild the index"):
        LEARNED_SPARSE.open(other)
    for component, said in (
        (POSTINGS, "delta/ holds impacts of 8 documents, "),
        (LEARNED_SPARSE, f"delta/{learned}"),
    ):
        with pytest.raises(
            MismatchError, match=f"{said}delta/delta.json says 9 documents; roll back to an older"
        ):
            component.open(replace(other, below=DELTA))


def test_they_say_what_they_serve_and_why_a_document_was_found(made: Segment) -> None:
    impacts = POSTINGS.open(made)
    assert impacts is not None
    learned = LEARNED_SPARSE.open(made.with_reader(POSTINGS, impacts))
    assert learned is not None
    assert POSTINGS.serves(impacts) == {"lexical": "", "hybrid": ""} and LEARNED_SPARSE.serves(learned) == {
        "learned-sparse": ""
    }
    assert (
        POSTINGS.serves(None)["hybrid"]
        == "this index holds no words, 'hybrid' needs them; build it with --lexical"
    )
    assert LEARNED_SPARSE.serves(None)["learned-sparse"].endswith("build it with glow build --learned-sparse")
    assert POSTINGS.info(impacts) == {"analyzer": "plain"} and POSTINGS.info(None) == {"analyzer": None}
    row = int(impacts.search(["bees"], 1)[1][0])
    hit = Explained(row, {"bees": "owls"})
    lines = POSTINGS.explain(impacts, "hybrid", ["bees", "unheard"], hit)["lexical"]
    assert [line["word"] for line in lines] == ["bees"] and lines[0]["impact"] > 0
    told = LEARNED_SPARSE.explain(learned, "learned-sparse", ["bees"], hit)["learned"]
    assert told[0]["bm25"] == lines[0]["impact"] and told[0]["because"] == "owls"
    assert (
        POSTINGS.explain(impacts, "dense", ["bees"], hit)
        == LEARNED_SPARSE.explain(learned, "lexical", ["bees"], hit)
        == {}
    )


def test_learned_impacts_need_a_head_and_words(toy_model: Path, learned_model: Path) -> None:
    learned = LEARNED_SPARSE.options.model_validate({"learned": True})
    with pytest.raises(ConfigError, match=r"--learned-sparse: model .* makes no learned impacts"):
        LEARNED_SPARSE.rules(learned, asked(Model.open(toy_model), "postings"))
    with pytest.raises(ConfigError, match="remove --no-lexical"):
        LEARNED_SPARSE.rules(learned, asked(Model.open(learned_model)))
