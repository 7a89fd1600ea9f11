"""The recipe of a re-ranker: a cross-encoder over first-stage hits of training queries."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from glow.artifact import file_sha256
from glow.errors import ConfigError, MismatchError
from glow.evaluation import evaluate
from glow.nn import CrossEncoder, Side
from glow.records import Qrel
from glow.text import Preprocessor, WordPieces
from glow.training.data import count_terms, read_collection
from glow.training.fingerprint import collection_hash
from glow.training.given import Given
from glow.training.rerank.candidates import (
    CandidateBatch,
    CandidateBatches,
    Candidates,
    Texts,
    read_candidates,
)
from glow.training.rerank.checkpoint import load_reranker, save_reranker
from glow.training.rerank.config import RerankConfig
from glow.training.rerank.initial import initial_cross_encoder
from glow.training.rerank.losses import attention_loss, distillation_loss, rerank_loss
from glow.training.rerank.measure import read_side, score_candidates
from glow.training.run import Group, Loss, Measures, Moment, Recipe, linear

__all__ = ["RankLoss", "reranker_recipe"]


def reranker_recipe(config: RerankConfig, given: Given, say: Callable[[str], None]) -> Recipe[CandidateBatch]:
    """Reads the inputs of a re-ranker's run.

    Raises:
        ConfigError: if the numbers of runs and data directories differ, or only one of teacher and `distill` is set.
        GlowError: if data, configuration or initial weights are not usable.
    """
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
    """A cross-encoder and its loss.

    Args:
        config: the run's configuration, which decides the trainable parameters.
        model: the model to train.
        texts: texts of every collection.
        pad_id: id of [PAD].
        teacher: teacher for `objective.distill`, which reads the same texts; None without one.
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
        """The loss of a batch."""
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
