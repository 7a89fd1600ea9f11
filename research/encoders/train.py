"""Runs over tensors on one device: a tower that learns given vectors, what both towers learn from, both towers, and averages.

N   texts        n   queries of a step        D   documents of a step        H   dimensions        Q   queries
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.commands import say
from glow.errors import MismatchError
from glow.nn import Tower, TwoTowers
from glow.text import Preprocessor, WordPieces
from glow.training import load_checkpoint, save_checkpoint
from glow.training.run import Adam, Group, Moment, OptimizerOptions, Progress, TrainingDevice, linear
from research.encoders.pack import Flat, Tensors, flat
from research.steps import Draws, take_steps

TEMPERATURE = 0.05
PULL, BLOCKS, SHOWN_STEPS = 10.0, 32, 200


def descend(
    model: nn.Module,
    draws: Draws[Tensor],
    loss: Callable[[Tensor, Moment], Tensor],
    rate: float,
    warmup: float,
    groups: Sequence[Group] = (),
) -> None:
    """Trains a model in place on its device, as the encoders were: `take_steps` with a highest rate and a fraction of warm-up."""
    device: TrainingDevice = "cuda" if next(model.parameters()).is_cuda else "cpu"
    take_steps(
        model,
        draws,
        loss,
        OptimizerOptions(learning_rate=rate),
        tell=_tell,
        rate=linear(warmup),
        groups=groups,
        adam=Adam(betas=(0.9, 0.98)),
        device=device,
    )


def _tell(progress: Progress) -> None:
    if progress.step % SHOWN_STEPS == 0 or progress.step in (20, progress.steps):
        say(f"step {progress.step:,}: loss {progress.loss:.4f}")


def imitate(
    tower: Tower, texts: Flat, aims: Tensor, steps: int, batch: int, rate: float, warmup: float, seed: int = 1
) -> None:
    """Trains a tower in place, except for its token embeddings and distances; `aims` are the texts' vectors, float16 [N, H]."""
    for name, value in tower.named_parameters():
        value.requires_grad_(not name.startswith(("words.", "distances.")))
    batches = _of_like_length(texts.lengths, min(batch, len(aims)))

    def loss(rows: Tensor, moment: Moment) -> Tensor:
        with moment.autocast():
            found = tower(*texts.batch(rows, tower.positions.num_embeddings, 8)).float()
        away: Tensor = 1.0 - (found * aims[rows].float()).sum(1)
        return PULL * away.mean()

    descend(tower, Draws(seed, steps, lambda _: next(batches)), loss, rate, warmup)


def _of_like_length(lengths: Tensor, size: int) -> Iterator[Tensor]:
    while True:
        for chunk in torch.split(torch.randperm(len(lengths), device=lengths.device), size * BLOCKS):
            parts = torch.split(chunk[torch.argsort(lengths[chunk])], size)
            yield from (parts[at] for at in torch.randperm(len(parts)).tolist() if len(parts[at]) == size)


CANDIDATES, CLUSTERS, LEXICAL, K1, B = 24, 1024, 0.5, 0.9, 0.4
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
    """Encodes a pack, chooses candidates, and trains the first query tower."""
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
    imitate(towers.query, both, aims, steps, BATCH, RATE, WARMUP)
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


STEP_BLOCKS, BLOCK, DOCUMENTS = 4, 32, 8
QUERY_RATE, DOCUMENT_RATE, GAIN_FACTOR, TOWER_WARMUP = 2e-4, 5e-5, 20, 0.05
GROUPS = (
    Group(r"query.*gain$", GAIN_FACTOR, decay=False),
    Group(r"document.*gain$", GAIN_FACTOR * DOCUMENT_RATE / QUERY_RATE, decay=False),
    Group(r"document\.", DOCUMENT_RATE / QUERY_RATE),
)
OWN, START_PULL, BONUS, MARGIN = 0.5, 3.0, 0.3, 0.02


def train_towers(
    towers: TwoTowers, pack: Tensors, made: Tensors, preprocessor: Preprocessor, steps: int, seed: int = 1
) -> None:
    """Trains towers in place, except for their token embedding matrix."""
    state = {name.removeprefix("query."): value for name, value in made.items() if name.startswith("query.")}
    towers.query.load_state_dict(state, strict=False)
    towers.words.weight.requires_grad_(False)
    bm25, pad_id = bm25_of(pack, preprocessor), preprocessor.pieces.pad_id
    queries, documents = (flat(pack, name, pad_id) for name in ("queries", "documents"))
    batches = _batches(pack["copies"], made["clusters"])

    def loss(rows: Tensor, moment: Moment) -> Tensor:
        listed = made["candidates"][rows]
        drawn = torch.rand(listed.shape, device=rows.device).argsort(1)[:, : DOCUMENTS - 1]
        listed = torch.unique(torch.cat([pack["own"][rows], listed.gather(1, drawn).flatten()]))
        asked = queries.batch(rows, towers.query.positions.num_embeddings, 8)
        read = documents.batch(listed, towers.document.positions.num_embeddings)
        with moment.autocast():
            found = towers.query(*asked).float(), towers.document(*read).float()
        scores = made["teacher.queries"][rows].float() @ made["teacher.documents"][listed].float().T
        scores += LEXICAL * bm25.shares(asked[0], asked[1], bm25.documents(listed))
        starts = made["start.queries"][rows].float(), made["start.documents"][listed].float()
        own = torch.searchsorted(listed, pack["own"][rows])
        return _loss(found, starts, scores, own, pack["judged"][rows])

    draws = Draws(seed, steps, lambda _: next(batches))
    descend(towers, draws, loss, QUERY_RATE, TOWER_WARMUP, GROUPS)


def _loss(
    found: tuple[Tensor, Tensor], starts: tuple[Tensor, Tensor], wanted: Tensor, own: Tensor, judged: Tensor
) -> Tensor:
    """The loss of a step.

    Vectors of queries [n, H] and documents [D, H] are the towers' (`found`) and the start's. `wanted` has the teacher's and BM25's
    scores [n, D], `own` the column of each query's document [n], `judged` whether people judged it.
    """
    scores, at = found[0] @ found[1].T, own[:, None]
    raised = wanted.scatter_add(1, at, BONUS * judged[:, None].float())
    softmax, aim = (functional.log_softmax(each / TEMPERATURE, 1) for each in (scores, raised))
    lists = functional.kl_div(softmax, aim, log_target=True, reduction="batchmean")
    # Documents that score like the own one are probably relevant too.
    hidden = (wanted > wanted.gather(1, at) - MARGIN).scatter(1, at, False)
    pairs = functional.cross_entropy((scores / TEMPERATURE).masked_fill(hidden, -1e4), own)
    moved = [(1.0 - (new * old).sum(1)).mean() for new, old in zip(found, starts, strict=True)]
    return lists + OWN * pairs + START_PULL * (moved[0] + moved[1])


def _batches(copies: Tensor, clusters: Tensor) -> Iterator[Tensor]:
    """Endless rows of queries, in blocks of one cluster each."""
    pool = torch.repeat_interleave(torch.arange(len(copies), device=copies.device), copies)
    while True:
        order = pool[torch.randperm(len(pool), device=pool.device)]
        blocks = torch.split(order[torch.argsort(clusters[order], stable=True)], BLOCK)
        mixed_up = [blocks[at] for at in torch.randperm(len(blocks)).tolist() if len(blocks[at]) == BLOCK]
        for at in range(0, len(mixed_up) - STEP_BLOCKS + 1, STEP_BLOCKS):
            yield torch.cat(mixed_up[at : at + STEP_BLOCKS])


def average(first: Path, second: Path, query: float, document: float, out: Path) -> dict[str, Any]:
    """Writes a checkpoint of averaged towers; `query` and `document` are the second's weights, in [0, 1].

    The shared token embeddings use the mean of both weights. Everything but the towers is the second's.
    """
    parts = [load_checkpoint(folder) for folder in (first, second)]
    one, other = (
        {
            "shape": part.towers.config,
            "schema": part.preprocessor.schema,
            "weighting": part.preprocessor.weighting,
            "vocabulary": part.preprocessor.pieces.vocabulary.read_bytes(),
        }
        for part in parts
    )
    if differences := [name for name in one if one[name] != other[name]]:
        raise MismatchError(f"{first} and {second} differ in {', '.join(differences)}")
    weights = {"query": query, "document": document, "words": 0.5 * (query + document)}
    towers = TwoTowers.unset(parts[1].towers.config, parts[1].preprocessor.schema)
    before, after = (part.towers.state_dict() for part in parts)
    for name, tensor in before.items():
        before[name] = tensor.lerp(
            after[name], weights["words" if name.endswith("words.weight") else name.partition(".")[0]]
        )
    towers.load_state_dict(before)
    shares = zip(parts, (1 - query, query), (1 - document, document), strict=True)
    report = {
        "averaged": [{"checkpoint": part.manifest.name, "query": q, "document": d} for part, q, d in shares],
        "training": [dict(part.report) for part in parts],
    }
    save_checkpoint(out, towers, parts[1].preprocessor, report)
    return report
