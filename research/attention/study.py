"""Which words a tower looks at: the case study of GLOW section 4.5 (Table 4).

A word's score is the sum over its pieces and over its places in the text, so that it is one figure however the word is
split and wherever it stands. What a token scores is one of

    cls     attention that it gets from [CLS] in the last layer, mean over heads: what a vector made of [CLS] collects
    all     attention that it gets from all tokens there, [CLS] and [SEP] among them: what a mean of all tokens collects
    states  mean inner product of its last hidden state with every other token's: the paper's own words

    L   tokens of one text
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from numpy import float32
from numpy.typing import NDArray

from glow.nn import Tower, TwoTowers
from glow.records import Document, Query
from glow.text import Preprocessor, WeightedTokens, Weighting, field_words, is_punctuation, pad
from research.attention.studied import CorpusTerms, StudiedModel

__all__ = ["Attended", "Rows", "Score", "StudiedText", "StudyOptions", "study", "token_scores", "word_scores"]

Rows = Literal["cls", "all", "states"]


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """What is measured.

    Attributes:
        rows: what a token scores.
        top: words of a text, >= 1.
        specials: whether [CLS], [SEP] and punctuation count as words; else they are left out.
    """

    rows: Rows = "cls"
    top: int = 5
    specials: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """A word and its share of the attention in [0, 1]; of `states`, and of weights, any number."""

    word: str
    value: float


@dataclass(frozen=True, slots=True)
class Attended:
    """What one model looks at in one text: its best words, best first, and what tokens left out got."""

    words: tuple[Score, ...]
    left_out: float


@dataclass(frozen=True, slots=True)
class StudiedText:
    """One text.

    Attributes:
        id, title: of the document or query; a query's title is its text.
        heaviest: its words of highest BM25F (query: BM25) weight by Eq. 6-8, whatever a model's own weighting.
        models: model name -> what it looks at.
    """

    id: str
    title: str
    heaviest: tuple[Score, ...]
    models: Mapping[str, Attended]


def study(
    models: Sequence[StudiedModel],
    corpus: Sequence[Document],
    texts: Iterable[Document | Query],
    options: StudyOptions,
) -> list[StudiedText]:
    """Measures every text with every model.

    Args:
        models: at least one; the first one's fields and vocabulary serve for the BM25F column.
        corpus: what idf comes from, as in an index of it.
        texts: documents, or queries.
        options: what is measured.
    """
    terms = CorpusTerms(corpus)
    own = [terms.on(model.preprocessor, model.preprocessor.weighting) for model in models]
    plain = terms.on(models[0].preprocessor, Weighting())
    found = []
    for text in texts:
        attended = {
            model.name: _attended(model.towers, preprocessor, text, options)
            for model, preprocessor in zip(models, own, strict=True)
        }
        heaviest = _top(_weights(plain, text, options.specials), options.top)
        found.append(StudiedText(text.id, _title(text), heaviest, attended))
    return found


def token_scores(tower: Tower, tokens: WeightedTokens, pad_id: int, rows: Rows) -> NDArray[float32]:
    """What each token scores, float32 [L]; of `cls` and `all` they sum to 1.

    Args:
        tower: in evaluation mode.
        tokens: preprocessed for that tower.
        pad_id: id of [PAD].
        rows: what a token scores.
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


def word_scores(
    scores: NDArray[float32], tokens: WeightedTokens, specials: bool
) -> tuple[dict[str, float], float]:
    """Sums tokens' scores [L] to words', over pieces and places, and those of the tokens left out."""
    words = _whole(tokens.words)
    sums: dict[str, float] = {}
    left_out = 0.0
    for position, (score, number) in enumerate(zip(scores.tolist(), tokens.word_ids.tolist(), strict=True)):
        word = words[number] if number >= 0 else "[SEP]" if position else "[CLS]"
        if specials or (number >= 0 and not is_punctuation(word)):
            sums[word] = sums.get(word, 0.0) + score
        else:
            left_out += score
    return sums, left_out


def _whole(words: Sequence[str]) -> list[str]:
    """The whole word of each word: the same, but where pieces count as words (the ablation `tw`)."""
    groups: list[tuple[str, int]] = []
    for word in words:
        # Text cannot look like this: BERT's splitting makes each # a word.
        if len(word) > 2 and word.startswith("##") and groups:
            start, count = groups.pop()
            groups.append((start + word[2:], count + 1))
        else:
            groups.append((word, 1))
    return [word for word, count in groups for _ in range(count)]


def _attended(
    towers: TwoTowers, preprocessor: Preprocessor, text: Document | Query, options: StudyOptions
) -> Attended:
    tower = towers.query if isinstance(text, Query) else towers.document
    tokens = _tokens(preprocessor, text)
    scores = token_scores(tower, tokens, preprocessor.pieces.pad_id, options.rows)
    words, left_out = word_scores(scores, tokens, options.specials)
    return Attended(_top(words, options.top), left_out)


def _tokens(preprocessor: Preprocessor, text: Document | Query) -> WeightedTokens:
    return preprocessor.query(text.text) if isinstance(text, Query) else preprocessor.document(text)


def _top(scores: Mapping[str, float], count: int) -> tuple[Score, ...]:
    best = sorted(scores, key=lambda word: (-scores[word], word))[:count]
    return tuple(Score(word, scores[word]) for word in best)


def _weights(plain: Preprocessor, text: Document | Query, specials: bool) -> dict[str, float]:
    """BM25F (BM25) weights of the words that reach a tower, as the formula gives them."""
    kept = [word for word in _tokens(plain, text).words if specials or not is_punctuation(word)]
    if isinstance(text, Query):
        return dict(plain.weigher.query(plain.pieces.words(text.text), kept).words)
    return dict(plain.weigher.document(field_words(text, plain.schema, plain.pieces), kept).words)


def _title(text: Document | Query) -> str:
    if isinstance(text, Query):
        return text.text
    values = [*text.fields.get("title", ()), *(value for found in text.fields.values() for value in found)]
    return next((value for value in values if value.strip()), "")
