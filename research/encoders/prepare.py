"""What the towers of glow-mini learn from: vectors of two encoders, candidates, and a first query tower.

Q   queries        D   documents        n   texts        V   columns: tokens, padding, and up to a multiple of 8
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from glow.nn import TwoTowers
from glow.text import Preprocessor, WordPieces
from research.encoders.descent import imitate
from research.encoders.flat import Flat
from research.encoders.pack import Tensors, flat

__all__ = ["LEXICAL", "Bm25", "bm25_of", "flat_texts", "prepare", "same_tokens"]

CANDIDATES, CLUSTERS, LEXICAL = 24, 1024, 0.5
K1, B = 0.9, 0.4
BATCH, RATE, WARMUP = 2048, 1e-3, 0.05


class Bm25:
    """Impacts of documents' distinct tokens; tokens among `specials` and those of one field do not count."""

    def __init__(self, documents: Flat, vocabulary: int, specials: list[int], left_out: int) -> None:
        device, count = documents.ids.device, len(documents.lengths)
        self._padding, self._columns = vocabulary, -(-(vocabulary + 1) // 8) * 8
        self._specials = torch.tensor(specials, device=device)
        kept = ~torch.isin(documents.ids, self._specials)
        if documents.fields is not None:
            kept &= documents.fields != left_out
        owners = torch.repeat_interleave(torch.arange(count, device=device), documents.lengths)[kept]
        lengths = torch.bincount(owners, minlength=count).float()
        keys, times = torch.unique(owners * vocabulary + documents.ids[kept], return_counts=True)
        owners, self._ids = keys // vocabulary, keys % vocabulary
        frequency = torch.bincount(self._ids, minlength=self._columns).float()
        self._highest = torch.log(1.0 + (count - frequency + 0.5) / (frequency + 0.5)) * (K1 + 1.0)
        norms = K1 * (1.0 - B + B * lengths / lengths.mean())
        self._impacts = self._highest[self._ids] * times / (times + norms[owners])
        self._lengths = torch.bincount(owners, minlength=count)
        self._starts = self._lengths.cumsum(0) - self._lengths
        self._kind = torch.float16 if device.type == "cuda" else torch.float32

    def documents(self, rows: Tensor) -> Tensor:
        """Impacts of these documents, [n, V]."""
        places = torch.arange(int(self._lengths[rows].max()), device=rows.device)
        at = (self._starts[rows][:, None] + places).clamp(max=len(self._ids) - 1)
        mask = places < self._lengths[rows][:, None]
        return self._spread(torch.where(mask, self._ids[at], self._padding), self._impacts[at])

    def shares(self, ids: Tensor, mask: Tensor, documents: Tensor) -> Tensor:
        """Scores of queries [n, L] for documents [D, V] as fractions of the query's highest, float32 [n, D]."""
        counts = (mask > 0) & ~torch.isin(ids, self._specials)
        ones = torch.ones(ids.shape, device=ids.device)
        query = self._spread(torch.where(counts, ids, self._padding), ones)
        highest = (query.float() @ self._highest).clamp(min=1e-6)
        return (query @ documents.T).float() / highest[:, None]

    def _spread(self, ids: Tensor, values: Tensor) -> Tensor:
        found = torch.zeros(len(ids), self._columns, dtype=self._kind, device=ids.device)
        found.scatter_(1, ids, values.to(self._kind))
        found[:, self._padding] = 0.0
        return found


def flat_texts(texts: Sequence[str], preprocessor: Preprocessor, device: torch.device) -> Flat:
    """Tokens of texts as queries without weights."""
    rows = [preprocessor.query(text).ids for text in texts]
    arrays = np.concatenate(rows).astype(np.int32), np.array([len(row) for row in rows])
    return Flat(preprocessor.pieces.pad_id, *(torch.from_numpy(each).to(device) for each in arrays))


def bm25_of(pack: Tensors, preprocessor: Preprocessor) -> Bm25:
    """BM25 of a pack's documents, without their urls."""
    pieces = preprocessor.pieces
    specials = [pieces.cls_id, pieces.sep_id, *pieces.pieces("\ue000")]  # the last is [UNK]
    return Bm25(flat(pack, "documents", pieces.pad_id), pieces.size, specials, _url(preprocessor))


def same_tokens(pieces: WordPieces, other: WordPieces) -> Tensor:
    """Id of each token in another vocabulary, int32."""
    own, others = (each.vocabulary.read_text(encoding="utf-8").split("\n") for each in (pieces, other))
    ids = {name: number for number, name in enumerate(others)}
    table = torch.tensor([ids[name] for name in own], dtype=torch.int32)
    table[pieces.cls_id], table[pieces.sep_id] = other.cls_id, other.sep_id
    return table


def prepare(
    pack: Tensors,
    preprocessor: Preprocessor,
    towers: TwoTowers,
    teacher: TwoTowers,
    table: Tensor,
    pad_id: int,
    more: Flat,
    steps: int,
) -> Tensors:
    """Encodes a pack, chooses candidates, and trains the first query tower.

    Args:
        pack, preprocessor: training texts, and the preprocessor that they were packed with.
        towers: the document tower is the encoder that both start from.
        teacher, table, pad_id: the encoder whose scores they learn, with `same_tokens` and its padding.
        more, steps: more texts for the query tower, and its steps.
    """
    pieces, found = preprocessor.pieces, {}
    plain = {name: _plain(pack, name, preprocessor) for name in ("queries", "documents")}
    for (name, read), tower in zip(plain.items(), (teacher.query, teacher.document), strict=True):
        found[f"start.{name}"] = read.encode(towers.document)
        found[f"teacher.{name}"] = Flat(pad_id, table[read.ids], read.lengths).encode(tower)
    asked, own = found["teacher.queries"], plain["queries"]
    found["candidates"] = _candidates(pack, bm25_of(pack, preprocessor), asked, found["teacher.documents"])
    centres = asked[torch.randperm(len(asked), device=asked.device)[:CLUSTERS]]
    found["clusters"] = torch.cat([(part @ centres.T).argmax(1) for part in torch.split(asked, 1 << 16)])
    both = Flat(pieces.pad_id, torch.cat([own.ids, more.ids]), torch.cat([own.lengths, more.lengths]))
    aims = torch.cat([found["start.queries"], more.encode(towers.document)])
    imitate(towers.query, both, aims, steps, BATCH, RATE, WARMUP, spread=False)
    state = towers.query.state_dict()
    return found | {f"query.{name}": state[name] for name in state if not name.startswith("words.")}


def _url(preprocessor: Preprocessor) -> int:
    return preprocessor.schema.names.index("url")


def _plain(pack: Tensors, name: str, preprocessor: Preprocessor) -> Flat:
    """Texts as an encoder of plain texts reads them: without urls, inner [SEP], fields and weights."""
    pieces = preprocessor.pieces
    ids, lengths, fields = (pack[f"{name}.{part}"] for part in ("ids", "lengths", "fields"))
    kept = (fields != _url(preprocessor)) & (ids != pieces.cls_id) & (ids != pieces.sep_id)
    after = lengths.cumsum(0)
    kept[after - 1] = kept[after - lengths] = True
    owners = torch.repeat_interleave(torch.arange(len(lengths), device=ids.device), lengths)
    return Flat(pieces.pad_id, ids[kept], torch.bincount(owners[kept], minlength=len(lengths)))


def _candidates(pack: Tensors, bm25: Bm25, queries: Tensor, documents: Tensor) -> Tensor:
    """Documents of the same directory with the highest scores, without the query's own, int64 [Q, 24]."""
    own, source, tokens = pack["own"], pack["source"], flat(pack, "queries", 0)
    places = torch.arange(CANDIDATES, device=own.device)
    candidates = torch.empty(len(own), CANDIDATES, dtype=torch.int64, device=own.device)
    for number in torch.unique(source):
        rows = torch.nonzero(source == number)[:, 0]
        counted = torch.cat([bm25.documents(part) for part in torch.split(rows, 8192)])
        for asked in torch.split(torch.nonzero(source[own] == number)[:, 0], 1024):
            ids, mask, *_ = tokens.batch(asked, int(tokens.lengths.max()))
            scores = LEXICAL * bm25.shares(ids, mask, counted) + (queries[asked] @ documents[rows].T).float()
            scores[rows == own[asked][:, None]] = -torch.inf
            best = scores.topk(min(CANDIDATES, len(rows)), 1).indices
            candidates[asked] = rows[best[:, places.clamp(max=len(rows) - 1)]]
    return candidates
