"""The planted text of Cross-Thought's probe: twins share key and value, and its measure tells choosing from not."""

import numpy as np
import pytest
import torch

from glow.nn import CrossThought, SentenceConfig
from glow.text import WordPieces
from research.pretraining.chosen import attended, common
from research.pretraining.probe import LENGTH, SEQUENCES, VALUE_AT, chosen, planted, vocabulary


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> WordPieces:
    return vocabulary(tmp_path_factory.mktemp("words"))


def test_each_key_comes_twice_with_one_value_which_no_other_sequence_has(pieces: WordPieces) -> None:
    words = pieces.vocabulary.read_text(encoding="utf-8").splitlines()
    values = {}
    for rows, twins in planted(pieces, 50, 0):
        assert rows.shape == (SEQUENCES, LENGTH - 1)
        assert (twins[twins] == np.arange(SEQUENCES)).all() and (twins != np.arange(SEQUENCES)).all()
        assert (rows[twins] == rows).all()
        assert len(np.unique(rows[:, 0])) == SEQUENCES // 2
        assert (np.delete(rows, VALUE_AT, 1) == rows[:, :1]).all()
        for key, value in zip(rows[:, 0].tolist(), rows[:, VALUE_AT].tolist(), strict=True):
            values.setdefault(key, set()).add(value)
        text = " ".join(words[token] for token in rows[0])
        assert [piece for word in pieces.words(text) for piece in pieces.pieces(word)] == rows[0].tolist()
    assert max(map(len, values.values())) > 1  # a key alone does not tell its value


def test_an_untrained_model_chooses_nothing_and_one_that_compares_keys_the_twin(pieces: WordPieces) -> None:
    torch.manual_seed(0)
    shape = SentenceConfig(
        vocabulary=pieces.size,
        hidden=32,
        layers=1,
        heads=2,
        intermediate=32,
        specials=1,
        positions=32,
        dropout=0.0,
    )
    model = CrossThought(shape).eval()
    found = chosen(model, pieces, 0)
    assert found["first"] < 0.5 and found["entropy"] > 0.99  # equal keys are alike even in a random model

    class Keys(CrossThought):
        def embed(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return ids[:, :1, None].float()

        def logits(self, queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
            return 20.0 * (queries[:, 0] == documents[:, 0].T).float()[None]

    found = chosen(Keys(shape), pieces, 0)
    assert found["first"] == 1.0 and abs(found["twin"] - 0.5) < 0.01


def test_common_words_by_hand_and_attention_of_a_model_that_compares_them(pieces: WordPieces) -> None:
    ids = np.array([[5, 6, 6], [5, 7, 7], [8, 8, 8]])
    idf = np.zeros(pieces.size, np.float32)
    idf[5:9] = 1.0, 3.0, 1.0, 2.0
    assert np.allclose(common(ids, idf), [[1.0, 0.25, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]])
    torch.manual_seed(0)
    shape = SentenceConfig(
        vocabulary=pieces.size, hidden=32, layers=1, heads=2, intermediate=32, specials=2, positions=32
    )
    rows = attended(CrossThought(shape).eval(), ids, pieces, np.random.default_rng(0))
    assert rows.shape == (3, 3) and np.allclose(rows.sum(1), 1.0, atol=1e-6)
