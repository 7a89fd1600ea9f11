"""What passages and term representations refuse to be made of."""

from pathlib import Path

import pytest

from glow.errors import ConfigError, MismatchError
from glow.index import Asked
from glow.index.passages import PASSAGES
from glow.index.token_embeddings import TOKEN_EMBEDDINGS
from glow.runtime import Model


def test_what_cannot_be_made_is_refused_by_its_rules(toy_model: Path) -> None:
    model = Model.open(toy_model)
    asked = Asked(model, 48, "cpu", 1, "corpus", {})
    assert PASSAGES.rules(PASSAGES.options(), asked) is None
    assert TOKEN_EMBEDDINGS.rules(TOKEN_EMBEDDINGS.options(), asked) is None
    with pytest.raises(ConfigError, match="nothing"):
        PASSAGES.rules(PASSAGES.options(passages=True, passage_field="nothing"), asked)
    with pytest.raises(MismatchError, match="expected reranker"):
        TOKEN_EMBEDDINGS.rules(TOKEN_EMBEDDINGS.options(rerank=toy_model), asked)
