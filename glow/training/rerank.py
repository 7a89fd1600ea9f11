"""The recipe of the re-ranker: PreTTR's cross-encoder over first-stage hits of training queries, in strict TOML with `[cross]`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from glow.artifact import file_sha256
from glow.errors import ConfigError, MismatchError
from glow.evaluation import evaluate
from glow.nn import CrossConfig, CrossEncoder, Side, bert_config, init_cross_encoder
from glow.options import StrictModel
from glow.records import Qrel
from glow.schema import FieldSchema
from glow.text import Preprocessor, Weighting, WordPieces, load_preprocessor, save_preprocessor
from glow.training.candidates import (
    CandidateBatch,
    CandidateBatches,
    Candidates,
    Texts,
    read_candidates,
    read_side,
    score_candidates,
)
from glow.training.checkpoint import (
    kind_of,
    load_weights,
    open_checkpoint,
    write_checkpoint,
)
from glow.training.config import Given
from glow.training.data import collection_hash, count_terms, read_collection
from glow.training.run import Group, Loss, Measures, Moment, OptimizerOptions, Recipe, RunConfig, linear


class CrossOptions(StrictModel):
    """The model.

    Attributes:
        init_layers: layers of the initial encoder that become layers 1, 2, …; their number is n.
        split, compressed, late, weight_form, dropout: as `glow.nn.CrossConfig`.
        train_words: whether to train the token embeddings.
    """

    init_layers: tuple[int, ...] = Field(default=(0, 1, 2, 3, 4, 5), min_length=1)
    split: int = Field(default=0, ge=0)
    compressed: int = Field(default=0, ge=0)
    late: int = Field(default=0, ge=0)
    weight_form: Literal["plain", "log"] = "plain"
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    train_words: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.split >= len(self.init_layers):
            raise ValueError(
                f"split {self.split} of {len(self.init_layers)} layers: at least one must join query and document"
            )
        return self


class RerankObjective(StrictModel):
    """The loss.

    Attributes:
        kind: `list`, cross-entropy of the relevant document among a query's candidates; `pairwise`, the paper's mean of
            1 - softmax of the relevant one against one other; or `attention`, which trains only the compressor (PreTTR
            section 4.2) by the squared change that it causes in the attention of the joined layers.
        negatives: candidates that are not judged relevant, per query and step; 1 for `pairwise`.
        depth: first-stage rank down to which they are drawn.
        mix: factor of the first-stage score, added to the logit in training, so that the model complements that score;
            0: none.
        distill: weight in the loss of the divergence from a teacher's distribution over the candidates (`--teacher`: a
            re-ranker, such as one that joins all layers); 0: no teacher.
    """

    kind: Literal["list", "pairwise", "attention"] = "list"
    negatives: int = Field(default=3, ge=1)
    depth: int = Field(default=50, ge=2)
    mix: float = Field(default=0.0, ge=0.0)
    distill: float = Field(default=0.0, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "pairwise" and self.negatives != 1:
            raise ValueError(f"kind 'pairwise' compares with one negative, found negatives {self.negatives}")
        if self.kind == "attention" and self.distill:
            raise ValueError("kind 'attention' has no scores to compare with a teacher's; leave distill out")
        return self


class RerankOptimizer(OptimizerOptions):
    """The optimizer.

    Attributes:
        batch_size: queries per step.
        epochs, max_steps: passes over the queries, and the most steps (0: no limit).
        head_rate: factor of the learning rate for the scoring head and the compressor, which start at random (50: 1e-3
            instead of 2e-5, as released).
        warmup: fraction of the steps in which rates rise; they then fall to 0.
    """

    batch_size: int = Field(default=16, ge=1)
    epochs: int = Field(default=1, ge=1)
    max_steps: int = Field(default=0, ge=0)
    learning_rate: float = Field(default=5e-5, gt=0.0)
    head_rate: float = Field(default=20.0, gt=0.0)
    warmup: float = Field(default=0.1, ge=0.0, lt=1.0)


class RerankConfig(RunConfig):
    """The configuration of a training run of a re-ranker.

    Attributes:
        fields: name of a schema preset.
        query_tokens, document_tokens: token limits. A document's positions begin after the longest query, so both are
            fixed after training.
    """

    checkpoint_steps: int = Field(default=100, ge=1)
    fields: str = "glow-default"
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
    given.refuse(what, "synthesize", "synthesis_model", "negatives", "corpora", "minutes")
    given.require_candidates("a re-ranker learns")
    teacher = _teacher(config, given.teacher)
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
    measures, deciding = _measures(config, given, preprocessor, model)
    about = [
        {
            "name": each.name,
            "split": given.split,
            "documents": len(each.documents),
            "queries": len(each.queries),
        }
        for each in collections
    ]
    return Recipe(
        config,
        CandidateBatches(
            found,
            options.batch_size,
            config.objective.negatives,
            config.seed,
            options.epochs,
            options.max_steps,
        ),
        model,
        RankLoss(config, model, texts, pieces.pad_id, teacher),
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
        about={"data": about},
    )


class RankLoss(nn.Module):
    """A cross-encoder and its loss over the texts of every collection; the configuration decides the trainable parameters.

    A teacher, for `objective.distill`, reads the same texts.
    """

    def __init__(
        self,
        config: RerankConfig,
        model: CrossEncoder,
        texts: Sequence[Texts],
        pad_id: int,
        teacher: CrossEncoder | None = None,
    ) -> None:
        super().__init__()
        self.model, self.teacher = model, teacher
        self._objective, self._texts, self._pad_id = config.objective, texts, pad_id
        only_compressor = config.objective.kind == "attention"
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("compressor.") or not only_compressor)
        model.words.weight.requires_grad_(config.cross.train_words and not only_compressor)
        if teacher is not None:
            teacher.requires_grad_(False)

    def train(self, mode: bool = True) -> "RankLoss":
        """As in torch; the teacher's mode does not change."""
        super().train(mode)
        if self.teacher is not None:
            self.teacher.eval()
        return self

    def forward(self, batch: CandidateBatch, moment: Moment) -> Loss:
        with moment.autocast():
            value = self._value(batch, moment.device)
        return Loss(value, batch.documents.size)

    def _value(self, batch: CandidateBatch, device: torch.device) -> Tensor:
        query, document = self._sides(self.model, batch, device)
        if self._objective.kind == "attention":
            return attention_loss(self.model, query, document)
        shape = batch.documents.shape
        logits = self.model.score(self.model.through(query), self.model.through(document)).reshape(shape)
        first = self._objective.mix * torch.from_numpy(batch.scores).to(device)
        loss = rerank_loss(logits + first, self._objective.kind)
        if self.teacher is None:
            return loss
        with torch.no_grad():
            query, document = self._sides(self.teacher, batch, device)
            scores = self.teacher.score(self.teacher.through(query), self.teacher.through(document))
        share = self._objective.distill
        wanted = scores.reshape(shape) + first
        return (1.0 - share) * loss + share * distillation_loss(logits + first, wanted)

    def _sides(self, model: CrossEncoder, batch: CandidateBatch, device: torch.device) -> tuple[Side, Side]:
        """Both sides of all pairs before the compressor; encodes each query and each of its documents once."""
        texts, shape = self._texts[batch.collection], batch.documents.shape
        ids, mask, _, weights = read_side(
            [texts.query(number) for number in batch.queries.tolist()], self._pad_id, device
        )
        query = model.query_apart(ids, mask, weights)
        query = Side(*(part.repeat_interleave(shape[1], 0) for part in query))
        documents = [texts.document(row) for row in batch.documents.reshape(-1).tolist()]
        return query, model.document_apart(*read_side(documents, self._pad_id, device))


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
            run = scores.run(config.objective.mix)
            figures[each.collection.name] = evaluate(run, _qrels(each), ["RR@10"]).means["RR@10"]
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


def _qrels(found: Candidates) -> list[Qrel]:
    collection = found.collection
    return [
        Qrel(collection.query_ids[query], collection.documents[row].id, 1)
        for query in range(len(found.rows))
        for row in sorted(collection.relevant[query])
    ]


def _teacher(config: RerankConfig, folder: Path | None) -> CrossEncoder | None:
    if (folder is None) != (config.objective.distill == 0.0):
        raise ConfigError("--teacher and [objective] distill above 0 go together; give both or neither")
    if folder is None:
        return None
    teacher = load_reranker(folder).model
    lengths = (config.query_tokens, config.document_tokens)
    if (teacher.config.query_tokens, teacher.config.document_tokens) != lengths:
        raise MismatchError(
            f"the teacher reads queries and documents of {teacher.config.query_tokens} and {teacher.config.document_tokens} tokens, "
            f"the configuration {lengths[0]} and {lengths[1]}; give the same"
        )
    return teacher


def rerank_loss(logits: Tensor, kind: str) -> Tensor:
    """The loss of queries whose relevant document is first, a scalar of logits float [B, 1 + N]; `kind` as in `RerankObjective`."""
    shares = functional.log_softmax(logits.float(), -1)[:, 0]
    return -shares.mean() if kind == "list" else (1.0 - shares.exp()).mean()


def distillation_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """Kullback-Leibler divergence from a teacher's distribution over a query's candidates, float [B, 1 + N] each, averaged over queries."""
    wanted = functional.log_softmax(teacher.float(), -1)
    found = functional.log_softmax(logits.float(), -1)
    return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)


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
