"""The recipe of the re-ranker: PreTTR's cross-encoder over first-stage hits of training queries.

c   candidates of a query       B   queries of a batch      N   negatives per query
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from glow.artifact import file_sha256
from glow.errors import ConfigError, MismatchError
from glow.evaluation import Run, evaluate, read_run
from glow.nn import CrossConfig, CrossEncoder, Side, bert_config, init_cross_encoder
from glow.options import StrictModel
from glow.records import Hit, Qrel
from glow.schema import FieldSchema
from glow.text import (
    Preprocessor,
    WeightedTokens,
    Weighting,
    WordPieces,
    batches_by_length,
    load_preprocessor,
    pad,
    save_preprocessor,
)
from glow.training.checkpoint import (
    kind_of,
    load_weights,
    open_checkpoint,
    write_checkpoint,
)
from glow.training.data import Collection, Epochs, Given, Rows, collection_hash, count_terms, read_collection
from glow.training.run import Group, Loss, Measures, Moment, OptimizerOptions, Recipe, RunConfig, linear

BATCH_TOKENS = 4096
Scores = Sequence[NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """One collection with the first-stage ranking of each query."""

    collection: Collection
    rows: Sequence[NDArray[np.int64]]  # query number -> [c], documents, best first
    scores: Sequence[NDArray[np.float32]]  # query number -> [c], first-stage scores


def read_candidates(run: Path, collection: Collection, depth: int) -> Candidates:
    """Reads the first `depth` hits of each query of a collection from a TREC run that was made from it."""
    numbers = {document.id: number for number, document in enumerate(collection.documents)}
    ranked = read_run(run)
    if not any(identifier in ranked for identifier in collection.query_ids):
        raise MismatchError(
            f"{run.name} holds no query of {collection.name}; make it from that directory and split"
        )
    rows, scores = [], []
    for identifier in collection.query_ids:
        hits = ranked.get(identifier, [])[:depth]
        missing = next((hit.document_id for hit in hits if hit.document_id not in numbers), None)
        if missing is not None:
            raise MismatchError(
                f"{run.name} ranks document {missing!r}, which {collection.name} does not have"
            )
        rows.append(np.array([numbers[hit.document_id] for hit in hits], np.int64))
        scores.append(np.array([hit.score for hit in hits], np.float32))
    return Candidates(collection, rows, scores)


class Texts:
    """A collection's texts for the cross-encoder, each preprocessed once."""

    def __init__(self, collection: Collection, preprocessor: Preprocessor) -> None:
        self._collection, self._preprocessor = collection, preprocessor
        self._queries: dict[int, WeightedTokens] = {}
        self._documents: dict[int, WeightedTokens] = {}

    def query(self, number: int) -> WeightedTokens:
        if number not in self._queries:
            self._queries[number] = self._preprocessor.query(self._collection.queries[number])
        return self._queries[number]

    def document(self, number: int) -> WeightedTokens:
        """A document's tokens without [CLS], which belongs to the query."""
        if number not in self._documents:
            self._documents[number] = self._preprocessor.document(
                self._collection.documents[number]
            ).without_first()
        return self._documents[number]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateBatch:
    """B queries of one collection, each with its relevant document and then N others."""

    collection: int  # its number
    queries: NDArray[np.int64]  # [B]
    documents: NDArray[np.int64]  # [B, 1 + N]
    scores: NDArray[np.float32]  # [B, 1 + N], of the first stage


class CandidateBatches:
    """Batches of B = `batch_size` training queries whose candidates include a relevant document and N = `negatives` others.

    Their order depends only on seed and epoch, so that a run can resume. `max_steps` 0: no limit.
    """

    def __init__(
        self,
        candidates: Sequence[Candidates],
        batch_size: int,
        negatives: int,
        seed: int,
        epochs: int = 1,
        max_steps: int = 0,
    ) -> None:
        self.candidates, self.batch_size, self.negatives = candidates, batch_size, negatives
        self._usable = [self._usable_of(found) for found in candidates]
        if not any(len(usable) for usable in self._usable):
            raise MismatchError(
                f"no query has a relevant document and {negatives} others among its candidates; give runs of the "
                "training split, or search deeper"
            )
        # An incomplete last batch of a collection is left out.
        count = sum(len(usable) // batch_size for usable in self._usable)
        self._epochs = Epochs(count, epochs, max_steps, seed, self._plan)
        self.steps = self._epochs.steps

    def _usable_of(self, found: Candidates) -> NDArray[np.int64]:
        usable = []
        for number, relevant in enumerate(found.collection.relevant):
            held = np.isin(found.rows[number], list(relevant))
            if held.any() and (~held).sum() >= self.negatives:
                usable.append(number)
        return np.array(usable, np.int64)

    def batch(self, step: int, process: int, processes: int) -> CandidateBatch:
        """A batch of one collection, in random order; as `glow.training.run.Data`."""
        place, queries, drawn = self._epochs.turn(step, process, processes)
        picked = [self._pick(self.candidates[place], query, drawn) for query in queries.tolist()]
        rows, scores = (np.stack(each) for each in zip(*picked, strict=True))
        return CandidateBatch(place, queries, rows, scores)

    def _plan(self, random: np.random.Generator) -> list[Rows]:
        batches = []
        for place, usable in enumerate(self._usable):
            order = random.permutation(usable)
            for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
                batches.append((place, order[start : start + self.batch_size]))
        return batches

    def _pick(
        self, found: Candidates, query: int, random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """A relevant candidate and N others, drawn uniformly."""
        rows, scores = found.rows[query], found.scores[query]
        held = np.isin(rows, list(found.collection.relevant[query]))
        places = [
            random.choice(np.flatnonzero(held)),
            *random.choice(np.flatnonzero(~held), self.negatives, False),
        ]
        return rows[places], scores[places]


@dataclass(frozen=True, slots=True, eq=False)
class RerankScores:
    """Candidates and their cross-encoder scores, float32 [c] per query."""

    candidates: Candidates
    scores: Scores

    def run(self, mix: float) -> Run:
        """Candidates by score + mix · first-stage score."""
        hits: dict[str, list[Hit]] = {}
        collection = self.candidates.collection
        parts = zip(
            collection.query_ids, self.candidates.rows, self.candidates.scores, self.scores, strict=True
        )
        for identifier, rows, first, own in parts:
            scores = own + np.float32(mix) * first
            order = np.argsort(-scores, kind="stable")
            ids = [collection.documents[row].id for row in rows[order].tolist()]
            hits[identifier] = [Hit(id_, float(score)) for id_, score in zip(ids, scores[order], strict=True)]
        return hits


def read_side(sequences: Sequence[WeightedTokens], pad_id: int, device: torch.device) -> list[torch.Tensor]:
    """Arguments of `CrossEncoder.read_document` for texts; a query's are these without the third."""
    batch = pad(sequences, pad_id)
    arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
    return [torch.from_numpy(array).to(device) for array in arrays]


def score_candidates(
    model: CrossEncoder,
    texts: Texts,
    candidates: Candidates,
    pad_id: int,
    precision: str = "fp32",
) -> RerankScores:
    """Scores every candidate of every query by a model, set to evaluation mode; encodes each document once for all queries.

    `precision` is `bf16` (autocast) or `fp32`.
    """
    device = model.head.weight.device
    model.eval()
    wanted = sorted({row for rows in candidates.rows for row in rows.tolist()})
    kept: dict[int, torch.Tensor] = {}
    scores: list[NDArray[np.float32]] = []
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=precision != "fp32"):
        tokens = [texts.document(row) for row in wanted]
        for places in batches_by_length([len(one) for one in tokens], BATCH_TOKENS):
            ids, mask, fields, _ = read_side([tokens[place] for place in places], pad_id, device)
            coded = model.stored(ids, mask, fields)
            kept |= {
                wanted[place]: row[: len(tokens[place])] for place, row in zip(places, coded, strict=True)
            }
        for number, rows in enumerate(candidates.rows):
            ids, mask, _, weights = read_side([texts.query(number)], pad_id, device)
            scores.append(
                _score(model, model.read_query(ids, mask, weights), rows.tolist(), kept, texts, pad_id)
            )
    return RerankScores(candidates, scores)


def _score(
    model: CrossEncoder,
    query: Side,
    rows: Sequence[int],
    kept: dict[int, torch.Tensor],
    texts: Texts,
    pad_id: int,
) -> NDArray[np.float32]:
    """Scores one query's candidates in batches of similar length."""
    found = np.empty(len(rows), np.float32)
    for places in batches_by_length([len(kept[row]) for row in rows], BATCH_TOKENS):
        documents = [rows[place] for place in places]
        _, mask, _, weights = read_side(
            [texts.document(row) for row in documents], pad_id, query.states.device
        )
        states = torch.nn.utils.rnn.pad_sequence([kept[row] for row in documents], batch_first=True)
        found[places] = model.score(query, model.restore(states, mask, weights)).float().cpu().numpy()
    return found


class CrossOptions(StrictModel):
    """The model; `split`, `compressed`, `late`, `weight_form` and `dropout` as in `glow.nn.CrossConfig`."""

    # layers of the initial encoder that become layers 1, 2, …; their number is n
    init_layers: tuple[int, ...] = Field(default=(0, 1, 2, 3, 4, 5), min_length=1)
    split: int = Field(default=0, ge=0)
    compressed: int = Field(default=0, ge=0)
    late: int = Field(default=0, ge=0)
    weight_form: Literal["plain", "log"] = "plain"
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    train_words: bool = False  # whether to train the token embeddings

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.split >= len(self.init_layers):
            raise ValueError(
                f"split {self.split} of {len(self.init_layers)} layers: at least one must join query and document"
            )
        return self


class RerankObjective(StrictModel):
    """The loss."""

    # `list`, cross-entropy of the relevant document among a query's candidates; `pairwise`, the paper's mean of 1 - softmax of the
    # relevant one against one other; or `attention`, which trains only the compressor (PreTTR section 4.2)
    kind: Literal["list", "pairwise", "attention"] = "list"
    # candidates that are not judged relevant, per query and step; 1 for `pairwise`
    negatives: int = Field(default=3, ge=1)
    depth: int = Field(default=50, ge=2)  # first-stage rank down to which they are drawn
    # factor of the first-stage score, added to the logit in training, so that the model complements that score
    mix: float = Field(default=0.0, ge=0.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "pairwise" and self.negatives != 1:
            raise ValueError(f"kind 'pairwise' compares with one negative, found negatives {self.negatives}")
        return self


class RerankOptimizer(OptimizerOptions):
    """The optimizer."""

    batch_size: int = Field(default=16, ge=1)  # queries per step
    epochs: int = Field(default=1, ge=1)  # passes over the queries
    max_steps: int = Field(default=0, ge=0)  # 0: no limit
    learning_rate: float = Field(default=5e-5, gt=0.0)
    # factor of the rate of the scoring head and the compressor, which start at random (50: 1e-3 instead of 2e-5, as released)
    head_rate: float = Field(default=20.0, gt=0.0)
    # fraction of the steps in which rates rise; they then fall to 0
    warmup: float = Field(default=0.1, ge=0.0, lt=1.0)


class RerankConfig(RunConfig):
    """The configuration of a training run of a re-ranker."""

    checkpoint_steps: int = Field(default=100, ge=1)
    fields: str = "glow-default"  # name of a schema preset
    # token limits, fixed after training, because a document's positions begin after the longest query
    query_tokens: int = Field(default=32, ge=3)
    document_tokens: int = Field(default=128, ge=8)
    weighting: Weighting = Weighting()
    cross: CrossOptions
    objective: RerankObjective = RerankObjective()
    optimizer: RerankOptimizer = RerankOptimizer()

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            _ = self.field_schema
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if self.objective.kind == "attention" and not self.cross.compressed:
            raise ValueError(
                "objective kind 'attention' trains a compressor: it needs [cross] compressed above 0"
            )
        return self

    @property
    def field_schema(self) -> FieldSchema:
        """The preset with this run's token limits."""
        changes = {"query_tokens": self.query_tokens, "document_tokens": self.document_tokens}
        return FieldSchema.model_validate(FieldSchema.preset(self.fields).model_dump() | changes)


def reranker_recipe(config: RerankConfig, given: Given, say: Callable[[str], None]) -> Recipe[CandidateBatch]:
    """Reads the inputs of a re-ranker's run."""
    what = "a re-ranker (a config with [cross])"
    given.refuse(what, "negatives", "teacher", "corpora")
    given.require_candidates("a re-ranker learns")
    schema = config.field_schema
    pieces = WordPieces(given.init / "vocab.txt", config.weighting.unit)
    say("reading data")
    found = [
        read_candidates(run, read_collection(folder, given.split, schema), config.objective.depth)
        for folder, run in zip(given.data, given.candidates, strict=True)
    ]
    collections = [each.collection for each in found]
    say("counting terms")
    preprocessor = Preprocessor(pieces, schema, config.weighting, count_terms(collections, schema, pieces))
    model = initial_cross_encoder(config, given.init)
    texts = [Texts(collection, preprocessor) for collection in collections]
    options = config.optimizer
    lengths = (options.epochs, options.max_steps)
    measures, deciding = _measures(config, given, preprocessor, model)
    return Recipe(
        config,
        CandidateBatches(found, options.batch_size, config.objective.negatives, config.seed, *lengths),
        model,
        RankLoss(config, model, texts, pieces.pad_id),
        lambda out, report: save_reranker(out, model, preprocessor, report),
        [
            preprocessor.terms.hash,
            *map(file_sha256, given.candidates),
            *map(collection_hash, collections),
            *deciding,
        ],
        [Group(r"^model\.(head|compressor|late)\.", options.head_rate)],
        rate=linear(options.warmup),
        measures=measures,
        about={"data": [each.about(given.split) for each in collections]},
    )


class RankLoss(nn.Module):
    """A cross-encoder and its loss over the texts of every collection; the configuration decides the trainable parameters."""

    def __init__(
        self, config: RerankConfig, model: CrossEncoder, texts: Sequence[Texts], pad_id: int
    ) -> None:
        super().__init__()
        self.model = model
        self._objective, self._texts, self._pad_id = config.objective, texts, pad_id
        only_compressor = config.objective.kind == "attention"
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("compressor.") or not only_compressor)
        model.words.weight.requires_grad_(config.cross.train_words and not only_compressor)

    def forward(self, batch: CandidateBatch, moment: Moment) -> Loss:
        with moment.autocast():
            return Loss(self._value(batch, moment.device), batch.documents.size)

    def _value(self, batch: CandidateBatch, device: torch.device) -> Tensor:
        query, document = self._sides(batch, device)
        if self._objective.kind == "attention":
            return attention_loss(self.model, query, document)
        shape = batch.documents.shape
        logits = self.model.score(self.model.through(query), self.model.through(document)).reshape(shape)
        first = self._objective.mix * torch.from_numpy(batch.scores).to(device)
        return rerank_loss(logits + first, self._objective.kind)

    def _sides(self, batch: CandidateBatch, device: torch.device) -> tuple[Side, Side]:
        """Both sides of all pairs before the compressor; encodes each query and each of its documents once."""
        texts, shape = self._texts[batch.collection], batch.documents.shape
        ids, mask, _, weights = read_side(
            [texts.query(number) for number in batch.queries.tolist()], self._pad_id, device
        )
        query = self.model.query_apart(ids, mask, weights)
        query = Side(*(part.repeat_interleave(shape[1], 0) for part in query))
        documents = [texts.document(row) for row in batch.documents.reshape(-1).tolist()]
        return query, self.model.document_apart(*read_side(documents, self._pad_id, device))


def _measures(
    config: RerankConfig, given: Given, preprocessor: Preprocessor, model: CrossEncoder
) -> tuple[Measures | None, list[str]]:
    """RR@10 of the development sets' candidates by the summed scores; also their hashes if they decide the end."""
    if not (given.dev and config.watch.steps):
        return None, []
    watched = [read_collection(folder, "dev", preprocessor.schema) for folder in given.dev]
    found = [
        _part(read_candidates(run, collection, config.objective.depth), config)
        for collection, run in zip(watched, given.dev_candidates, strict=True)
    ]
    hashes = [*map(file_sha256, given.dev_candidates), *map(collection_hash, watched)]

    def measure(moment: Moment) -> dict[str, float]:
        figures = {}
        for each in found:
            texts, was_training = Texts(each.collection, preprocessor), model.training
            scores = score_candidates(model, texts, each, preprocessor.pieces.pad_id, moment.precision)
            model.train(was_training)
            run, of = scores.run(config.objective.mix), each.collection
            pairs = zip(of.query_ids, of.relevant, strict=True)
            qrels = [Qrel(query, of.documents[row].id, 1) for query, rows in pairs for row in sorted(rows)]
            figures[each.collection.name] = evaluate(run, qrels, ["RR@10"]).means["RR@10"]
        return figures

    return measure, hashes if config.watch.patience else []


def _part(found: Candidates, config: RerankConfig) -> Candidates:
    """A sample of the configured number of development queries, by the run's seed."""
    every = found.collection
    count = min(config.watch.queries or len(every.queries), len(every.queries))
    chosen = np.sort(
        np.random.default_rng(config.seed).choice(len(every.queries), count, replace=False)
    ).tolist()
    collection = replace(
        every,
        queries=[every.queries[query] for query in chosen],
        query_ids=[every.query_ids[query] for query in chosen],
        relevant=[every.relevant[query] for query in chosen],
    )
    rows, scores = ([each[query] for query in chosen] for each in (found.rows, found.scores))
    return Candidates(collection, rows, scores)


def rerank_loss(logits: Tensor, kind: str) -> Tensor:
    """The loss of queries whose relevant document is first, a scalar of logits float [B, 1 + N]; `kind` as in `RerankObjective`."""
    shares = functional.log_softmax(logits.float(), -1)[:, 0]
    return -shares.mean() if kind == "list" else (1.0 - shares.exp()).mean()


def attention_loss(model: CrossEncoder, query: Side, document: Side) -> Tensor:
    """Mean squared change of the joined layers' attention by the compressor, averaged over layers (Table 1), a scalar.

    Both sides are from before the compressor. Padding rows and columns do not count (row 30). Gradients reach only the
    compressor if all else is frozen.
    """
    with torch.no_grad():
        wanted = model.attentions(query, document)
    found = model.attentions(model.through(query), model.through(document))
    mask = torch.cat([query.mask, document.mask], 1)
    real = (mask[:, :, None] & mask[:, None, :])[:, None].expand_as(found[0])  # [B, heads, L, L]
    differences = [(ours.float() - theirs.float())[real] for ours, theirs in zip(found, wanted, strict=True)]
    return torch.stack([(difference**2).mean() for difference in differences]).mean()


def initial_cross_encoder(config: RerankConfig, init: Path) -> CrossEncoder:
    """The initial model of a run; the run's seed decides missing weights.

    A checkpoint may have another split, and lack the compressor or late interaction, but no other layers, fields or lengths.
    """
    torch.manual_seed(config.seed)
    schema, cross = config.field_schema, config.cross
    trained = load_reranker(init).model if kind_of(init) == "reranker" else None
    shape = trained.config if trained is not None else bert_config(init)
    model = CrossEncoder(
        CrossConfig(
            vocabulary=shape.vocabulary,
            hidden=shape.hidden,
            heads=shape.heads,
            intermediate=shape.intermediate,
            layer_norm_eps=shape.layer_norm_eps,
            layers=len(cross.init_layers),
            split=cross.split,
            compressed=cross.compressed,
            late=cross.late,
            query_tokens=schema.query_tokens,
            document_tokens=schema.document_tokens,
            fields=len(schema.fields),
            weight_form=cross.weight_form,
            dropout=cross.dropout,
        )
    )
    if trained is None:
        init_cross_encoder(model, init, cross.init_layers)
    else:
        _copy_common(model, trained)
    return model


def _copy_common(model: CrossEncoder, trained: CrossEncoder) -> None:
    sizes = ("layers", "fields", "query_tokens", "document_tokens")
    wanted, found = ({name: getattr(one.config, name) for name in sizes} for one in (model, trained))
    if wanted != found:
        raise MismatchError(f"the checkpoint has {found}, the configuration requires {wanted}; give the same")
    known = {
        name: value
        for name, value in trained.state_dict().items()
        if name in model.state_dict() and model.state_dict()[name].shape == value.shape
    }
    model.load_state_dict(known, strict=False)


@dataclass(frozen=True, slots=True)
class TrainedReranker:
    """An open re-ranker: model in evaluation mode, its preprocessor and training report."""

    model: CrossEncoder
    preprocessor: Preprocessor
    report: Mapping[str, Any]


def save_reranker(
    out: Path, model: CrossEncoder, preprocessor: Preprocessor, report: Mapping[str, Any]
) -> None:
    """Writes a checkpoint atomically; replaces an existing one."""
    write_checkpoint(
        out,
        "reranker",
        model.config.model_dump(mode="json"),
        model.state_dict(),
        report,
        lambda folder: save_preprocessor(folder, preprocessor),
        {"terms": preprocessor.terms.hash},
    )


def load_reranker(folder: Path) -> TrainedReranker:
    """Verifies and opens a checkpoint of a re-ranker."""
    opened = open_checkpoint(folder, "reranker")
    model = CrossEncoder(CrossConfig.model_validate(opened.shape))
    load_weights(model, opened)
    return TrainedReranker(model.eval(), load_preprocessor(folder), opened.report)
