"""Which words a tower attends to: the case study of GLOW section 4.5 (Table 4).

A word's score is the sum over its subword tokens and its occurrences in the text. A token's score is one of

    cls     attention from [CLS] in the last layer, averaged over heads, which decides a [CLS] vector
    all     attention from all tokens there, including [CLS] and [SEP], which decides a mean of all tokens
    states  mean inner product of its last hidden state with every other token's, the paper's measure

    L   tokens of one text
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from numpy import float32
from numpy.typing import NDArray

from glow.nn import Tower
from glow.records import Document
from glow.text import Preprocessor, WeightedTokens, Weighting, field_words, is_punctuation, pad
from research.attention.studied import CorpusTerms, StudiedModel

__all__ = ["TOP", "Attended", "Rows", "Score", "StudiedText", "study", "token_scores", "word_scores"]

Rows = Literal["cls", "all", "states"]


TOP = 5
"""Number of top words per document."""


@dataclass(frozen=True, slots=True)
class Score:
    """A word and its fraction of the attention in [0, 1]; for `states` and weights, any number."""

    word: str
    value: float


@dataclass(frozen=True, slots=True)
class Attended:
    """One model's result for one text: its best words, best first, and the score of excluded tokens."""

    words: tuple[Score, ...]
    left_out: float


@dataclass(frozen=True, slots=True)
class StudiedText:
    """One text.

    Attributes:
        id, title: id and title of the document.
        heaviest: its words of highest BM25F weight by Eq. 6-8, independent of a model's own weighting.
        models: model name -> its result.
    """

    id: str
    title: str
    heaviest: tuple[Score, ...]
    models: Mapping[str, Attended]


def study(
    models: Sequence[StudiedModel], corpus: Sequence[Document], texts: Iterable[Document], rows: Rows
) -> list[StudiedText]:
    """Measures every text with every model.

    Args:
        models: at least one; the BM25F column uses the first one's fields and vocabulary.
        corpus: source of idf, as in an index of it.
        texts: documents.
        rows: the kind of scores.
    """
    terms = CorpusTerms(corpus)
    own = [terms.on(model.preprocessor, model.preprocessor.weighting) for model in models]
    plain = terms.on(models[0].preprocessor, Weighting())
    found = []
    for text in texts:
        attended = {
            model.name: _attended(model.towers.document, preprocessor, text, rows)
            for model, preprocessor in zip(models, own, strict=True)
        }
        heaviest = _top(_weights(plain, text))
        found.append(StudiedText(text.id, _title(text), heaviest, attended))
    return found


def token_scores(tower: Tower, tokens: WeightedTokens, pad_id: int, rows: Rows) -> NDArray[float32]:
    """The score of each token, float32 [L]; for `cls` and `all` they sum to 1.

    Args:
        tower: in evaluation mode.
        tokens: preprocessed for that tower.
        pad_id: id of [PAD].
        rows: the kind of scores.
    """
    batch = pad([tokens], pad_id)
    inputs = [torch.from_numpy(part) for part in (batch.ids, batch.mask, batch.field_ids, batch.weights)]
    with torch.inference_mode():
        if rows == "states":
            states = tower.states(*inputs)[0].float()  # [L, H]
            products = states @ states.T
            scores = (products.sum(1) - products.diagonal()) / (len(tokens) - 1)
        else:
            attention = tower.attention(*inputs)[0].mean(0)  # [L, L]
            scores = attention[0] if rows == "cls" else attention.mean(0)
    found: NDArray[float32] = scores.numpy()
    return found


def word_scores(scores: NDArray[float32], tokens: WeightedTokens) -> tuple[dict[str, float], float]:
    """Sums tokens' scores [L] by word, and those of [CLS], [SEP] and punctuation."""
    words = _whole(tokens.words)
    sums: dict[str, float] = {}
    left_out = 0.0
    for score, number in zip(scores.tolist(), tokens.word_ids.tolist(), strict=True):
        if number >= 0 and not is_punctuation(words[number]):
            sums[words[number]] = sums.get(words[number], 0.0) + score
        else:
            left_out += score
    return sums, left_out


def _whole(words: Sequence[str]) -> list[str]:
    """The whole word of each word: the same, unless subword tokens count as words (the ablation `tw`)."""
    groups: list[tuple[str, int]] = []
    for word in words:
        # Text cannot contain this, because BERT's splitting makes each # a word.
        if len(word) > 2 and word.startswith("##") and groups:
            start, count = groups.pop()
            groups.append((start + word[2:], count + 1))
        else:
            groups.append((word, 1))
    return [word for word, count in groups for _ in range(count)]


def _attended(tower: Tower, preprocessor: Preprocessor, text: Document, rows: Rows) -> Attended:
    tokens = preprocessor.document(text)
    words, left_out = word_scores(token_scores(tower, tokens, preprocessor.pieces.pad_id, rows), tokens)
    return Attended(_top(words), left_out)


def _top(scores: Mapping[str, float]) -> tuple[Score, ...]:
    best = sorted(scores, key=lambda word: (-scores[word], word))[:TOP]
    return tuple(Score(word, scores[word]) for word in best)


def _weights(plain: Preprocessor, text: Document) -> dict[str, float]:
    """BM25F weights of the words that reach a tower, by the formula."""
    kept = [word for word in plain.document(text).words if not is_punctuation(word)]
    return dict(plain.weigher.document(field_words(text, plain.schema, plain.pieces), kept).words)


def _title(text: Document) -> str:
    values = [*text.fields.get("title", ()), *(value for found in text.fields.values() for value in found)]
    return next((value for value in values if value.strip()), "")
