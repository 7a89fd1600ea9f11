"""Ranks a collection by a pre-trained encoder without labels: by attention (Eq. 7) and by cosines of its states.

Q   queries     D   documents       N   special tokens      H   hidden size
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from glow.evaluation import evaluate
from glow.index.ranking import SearchParams
from glow.index.vectors.build import build_dense
from glow.nn import Pretrainer
from glow.records import Document, Hit, Qrel
from glow.text import WordPieces, batches_by_length
from glow.training import Collection
from research.pretraining.crossed import attention_shares

__all__ = ["SentenceTexts", "measures", "rank_without_labels"]

LONGEST = 126
DEPTH = 100
MEASURES = ("RR@10", "nDCG@10", "R@1", "R@100")
Rankings = NDArray[np.int64]


class SentenceTexts:
    """Queries and documents of a collection as sequences of tokens.

    Args:
        collection: documents are read as in pre-training: title, anchors, text.
        pieces: the vocabulary.
    """

    def __init__(self, collection: Collection, pieces: WordPieces) -> None:
        self.collection = collection
        self.queries = [_ids(text, pieces) for text in collection.queries]
        self.documents = [_ids(_text(document), pieces) for document in collection.documents]


def _text(document: Document) -> str:
    parts = [text for name in ("title", "anchor", "text") for text in document.fields.get(name, ())]
    return ". ".join(parts)


def _ids(text: str, pieces: WordPieces) -> list[int]:
    ids = [number for word in pieces.words(text) for number in pieces.pieces(word)]
    return ids[:LONGEST] or [pieces.sep_id]


def padded(sequences: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids int64 and mask bool [S, L] of sequences, padded to the longest one."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(each) for each in sequences], batch_first=True)
    lengths = torch.tensor([len(each) for each in sequences])
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def states(model: Pretrainer, sequences: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Special states float32 [S, N, H], and the mean of all states float32 [S, H]."""
    count, hidden = model.config.specials, model.config.hidden
    specials, means = torch.empty(len(sequences), count, hidden), torch.empty(len(sequences), hidden)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for rows in batches_by_length([len(each) for each in sequences], 8192):
            ids, mask = padded([sequences[row] for row in rows])
            found = model.encoder(ids, mask).float()
            share = functional.pad(mask, (count, 0), value=True)[..., None].float()
            specials[rows], means[rows] = found[:, :count], (found * share).sum(1) / share.sum(1)
    return specials, means


def rank_without_labels(model: Pretrainer, texts: SentenceTexts) -> dict[str, Rankings]:
    """Rows of the best documents of every query, int64 [Q, 100], by every method that the model supports.

    `mean`: cosine of the mean states; `cls`: of the first special state; `specials`: of all N concatenated; `logits`:
    mean attention logits, an inner product for a dense index; `shares`: mean attention (Eq. 10) among all documents.
    """
    (asked, asked_mean), (ranked, ranked_mean) = states(model, texts.queries), states(model, texts.documents)
    found = {
        "mean": _nearest(functional.normalize(asked_mean, dim=-1), functional.normalize(ranked_mean, dim=-1)),
        "cls": _nearest(
            functional.normalize(asked[:, 0], dim=-1), functional.normalize(ranked[:, 0], dim=-1)
        ),
    }
    if model.crossed is not None:
        flat = [functional.normalize(each, dim=-1).flatten(1) for each in (asked, ranked)]
        found["specials"] = _nearest(*flat)
        with torch.inference_mode():
            vectors = [
                model.crossed.ranking_vectors(each, side)
                for each, side in ((asked, "query"), (ranked, "document"))
            ]
            found["logits"] = _nearest(*vectors)
            found["shares"] = np.concatenate(
                [
                    attention_shares(model.crossed.logits(block, ranked))
                    .topk(min(DEPTH, len(ranked)))
                    .indices.numpy()
                    for block in torch.split(asked, 64)
                ]
            )
    return found


def _nearest(queries: Tensor, documents: Tensor) -> Rankings:
    index = build_dense(documents.numpy(), "flat")
    return index.search(queries.numpy(), min(DEPTH, len(documents)), SearchParams())[1]


def measures(collection: Collection, ranked: Rankings) -> dict[str, float]:
    """Mean measures over the queries."""
    run = {
        identifier: [Hit(str(row), -float(place)) for place, row in enumerate(rows)]
        for identifier, rows in zip(collection.query_ids, ranked.tolist(), strict=True)
    }
    qrels = [
        Qrel(identifier, str(row), 1)
        for identifier, relevant in zip(collection.query_ids, collection.relevant, strict=True)
        for row in sorted(relevant)
    ]
    return {name: round(mean, 5) for name, mean in evaluate(run, qrels, MEASURES, 1).means.items()}
