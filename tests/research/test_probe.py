"""The planted text of Cross-Thought's probe: twins share key and value, and its measure tells choosing from not."""

import numpy as np
import torch

from glow.nn import CrossThought, SentenceConfig, minilm_folder
from glow.text import WordPieces
from research.pretraining.probe import KEY_TIMES, LENGTH, SEQUENCES, VALUE_AT, chosen, planted

PIECES = WordPieces(minilm_folder() / "vocab.txt")


def test_each_key_comes_twice_with_one_value_which_no_other_sequence_has() -> None:
    words = PIECES.vocabulary.read_text(encoding="utf-8").splitlines()
    values = {}
    for rows, twins in planted(PIECES, 50, 0):
        assert rows.shape == (SEQUENCES, LENGTH - 1)
        assert (twins[twins] == np.arange(SEQUENCES)).all() and (twins != np.arange(SEQUENCES)).all()
        assert (rows[twins][:, : VALUE_AT + 1] == rows[:, : VALUE_AT + 1]).all()
        assert len(np.unique(rows[:, 0])) == SEQUENCES // 2
        assert (rows[:, :KEY_TIMES] == rows[:, :1]).all()
        for key, value in zip(rows[:, 0].tolist(), rows[:, VALUE_AT].tolist(), strict=True):
            values.setdefault(key, set()).add(value)
        text = " ".join(words[token] for token in rows[0])
        assert [piece for word in PIECES.words(text) for piece in PIECES.pieces(word)] == rows[0].tolist()
    assert max(map(len, values.values())) > 1  # a key alone does not tell its value


def test_an_untrained_model_chooses_nothing_and_one_that_compares_keys_the_twin() -> None:
    torch.manual_seed(0)
    shape = SentenceConfig(
        vocabulary=PIECES.size,
        hidden=32,
        layers=1,
        heads=2,
        intermediate=32,
        specials=1,
        positions=32,
        dropout=0.0,
    )
    model = CrossThought(shape).eval()
    assert abs(chosen(model, PIECES, 0)["first"] - 1 / (SEQUENCES - 1)) < 0.1

    class Keys(CrossThought):
        def embed(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return ids[:, :1, None].float()

        def logits(self, queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
            return 20.0 * (queries[:, 0] == documents[:, 0].T).float()[None]

    found = chosen(Keys(shape), PIECES, 0)
    assert found["first"] == 1.0 and abs(found["twin"] - 0.5) < 0.01
