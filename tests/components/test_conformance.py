"""Every component of `COMPONENTS`, in every kind of index that holds it, keeps the contract; and what only one must."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from glow.errors import ConfigError, MismatchError
from glow.index import BuildInputs, Explained, RowLayout, Segment, Segments
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.passages import PASSAGES
from glow.index.postings import POSTINGS, PostingsOptions, PostingsRules
from glow.index.spelling import SPELLING
from glow.index.stored_fields import STORED_FIELDS
from glow.index.token_embeddings import TOKEN_EMBEDDINGS
from glow.runtime import Model
from glow.text import is_lexical
from tests.components.answers import Answers
from tests.components.cases import Case, files_of
from tests.components.conftest import World
from tests.components.files import Files
from tests.components.kinds import CASES


@pytest.mark.parametrize("case", CASES, indirect=True)
class TestAnswers(Answers):
    """What they answer and write."""


@pytest.mark.parametrize("file_case", CASES, indirect=True)
class TestFiles(Files):
    """What they make of files."""


def base_of(world: World, kind: str) -> Segment:
    return Case(POSTINGS, *world(kind)).changed().base


@pytest.mark.parametrize("kind", ["whole", "plain"])
def test_spelling_counts_whole_words_of_the_texts(world: World, kind: str) -> None:
    base, documents = base_of(world, kind), Counter[str]()
    pieces = world(kind)[0].model.preprocessor.pieces
    for document in base[STORED_FIELDS].scan():
        texts = [text for values in document.fields.values() for text in values]
        documents.update({word for text in texts for word in pieces.words(text)})
    spelled = [word for word in documents if 4 <= len(word) <= 24 and word.isalpha() and is_lexical(word)]
    expected = {word: documents[word] for word in sorted(spelled, key=str.encode)}
    assert list(base[SPELLING].items()) == list(expected.items())


def test_words_of_other_analyzers_or_units_are_not_joined(world: World) -> None:
    rows = RowLayout([40, 40], np.empty(0, np.int64))

    def join(component: Any, *readers: Any) -> None:
        component.reader(Segments("v", readers, rows, rows, np.arange(80, dtype=np.uint32)))

    whole, plain = base_of(world, "whole"), base_of(world, "plain")
    with pytest.raises(MismatchError, match="of its base by the analyzer plain, of its delta by english"):
        join(POSTINGS, plain[POSTINGS], whole[POSTINGS])
    other = SimpleNamespace(learned=SimpleNamespace(header=SimpleNamespace(unit=0.5)))
    with pytest.raises(
        MismatchError, match=r"of its base in the unit 0\.\d+, of its delta in 0\.5; roll back"
    ):
        join(LEARNED_SPARSE, whole[LEARNED_SPARSE], other)


def test_only_the_head_of_an_index_adds_to_it_and_the_chosen_words_stay(world: World) -> None:
    base, model = base_of(world, "whole"), world("whole")[0].model
    rules = LEARNED_SPARSE.rules_of(base, delta=True)
    assert rules is not None
    LEARNED_SPARSE.check_model(rules, model)
    with pytest.raises(MismatchError, match="other learned impacts than made has: expected the hash none"):
        LEARNED_SPARSE.check_model(replace(rules, hashes={}), model)
    before = files_of(base.folder, LEARNED_SPARSE)
    LEARNED_SPARSE.prepare(SimpleNamespace(made=base), replace(rules, words=None))
    assert files_of(base.folder, LEARNED_SPARSE) == before


def test_words_say_why_a_document_was_found(world: World) -> None:
    base = base_of(world, "whole")
    impacts, learned = base[POSTINGS], base[LEARNED_SPARSE]
    hit = Explained(int(impacts.search(["bees"], 1)[1][0]), {"bees": "owls"})
    (line,) = POSTINGS.explain(impacts, "hybrid", ["bees", "unheard"], hit)["lexical"]
    assert line["word"] == "bees" and line["impact"] > 0
    told = LEARNED_SPARSE.explain(learned, "learned-sparse", ["bees"], hit)["learned"]
    assert told[0]["bm25"] == line["impact"] and told[0]["because"] == "owls"
    assert POSTINGS.explain(impacts, "dense", ["bees"], hit) == {}
    assert LEARNED_SPARSE.explain(learned, "lexical", ["bees"], hit) == {}


def test_what_cannot_be_made_is_refused_by_its_rules(toy_model: Any, learned_model: Any) -> None:
    def asked(model: Any, *made: str) -> BuildInputs:
        return BuildInputs(
            Model.open(model), 32, "cpu", 1, "corpus", {name: PostingsRules() for name in made}
        )

    plain, with_head = asked(toy_model, POSTINGS.name), asked(learned_model)
    assert POSTINGS.rules(PostingsOptions(lexical=False), plain) is SPELLING.rules(None, with_head) is None
    assert PASSAGES.rules(PASSAGES.options(), plain) is None
    with pytest.raises(ConfigError, match="nothing"):
        PASSAGES.rules(PASSAGES.options(passages=True, passage_field="nothing"), plain)
    assert TOKEN_EMBEDDINGS.rules(TOKEN_EMBEDDINGS.options(), plain) is None
    with pytest.raises(MismatchError, match="expected reranker"):
        TOKEN_EMBEDDINGS.rules(TOKEN_EMBEDDINGS.options(rerank=toy_model), plain)
    learned = LEARNED_SPARSE.options.model_validate({"learned": True})
    with pytest.raises(ConfigError, match=r"--learned-sparse: model .* makes no learned impacts"):
        LEARNED_SPARSE.rules(learned, plain)
    with pytest.raises(ConfigError, match="remove --no-lexical"):
        LEARNED_SPARSE.rules(learned, with_head)
