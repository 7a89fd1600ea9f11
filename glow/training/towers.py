"""The recipe of two towers: judged pairs, and a teacher's vectors if the objective uses them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from safetensors.torch import load_file
from torch import Tensor, nn

from glow.artifact import QUERY_TOWER, file_sha256
from glow.errors import ConfigError, MismatchError
from glow.nn import (
    Pooling,
    Tower,
    TwoTowers,
    WeightForm,
    WeightSide,
    bert_config,
    init_from_bert,
    minilm_folder,
)
from glow.options import StrictModel
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.text import Preprocessor, WeightedTokens, Weighting, WordPieces, load_pieces
from glow.training.checkpoint import TEACHER_MAP, kind_of, load_checkpoint, read_towers, save_checkpoint
from glow.training.data import (
    Collection,
    Given,
    PairBatch,
    PairBatches,
    collection_hash,
    count_terms,
    one_at_a_time,
    read_collection,
    topics_of,
)
from glow.training.encode import Encoding, encode, vectors
from glow.training.negatives import match_negatives
from glow.training.run import (
    Group,
    Keep,
    Loss,
    Moment,
    OptimizerOptions,
    Recipe,
    RunConfig,
    WatchConfig,
    linear,
)
from glow.training.teacher import document_key, query_key, teacher_vectors
from glow.training.tower_loss import Objective, ObjectiveConfig, Side, Targets, lexical_part


class TowersConfig(StrictModel):
    """Which towers to train."""

    # layers of the initial encoder that become layers 0, 1, …; their number is the depth
    init_layers: tuple[int, ...] = Field(default=(0, 4, 5), min_length=1)
    document_layers: tuple[int, ...] = ()  # the same for the document tower; empty: as `init_layers`
    # as `glow.nn.TowerConfig`, down to `dropout`
    weight_side: WeightSide = "key"
    weight_form: WeightForm = "multiply"
    gain: float = 0.0
    pooling_gain: float | None = None
    pooling: Pooling = "mean"
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    # whether to train the shared token embeddings; frozen ones keep rare words near their pre-trained place and save a third of a step on a CPU
    train_words: bool = True
    # which towers to train; the other keeps its weights, and costs nothing if the loss is only distillation
    learns: Literal["both", "query", "document"] = "both"

    @property
    def depths(self) -> tuple[int, int]:
        """Numbers of layers of the query tower and of the document tower."""
        return len(self.init_layers), len(self.document_layers or self.init_layers)

    @property
    def changes(self) -> dict[str, Any]:
        """The members of `TowerConfig` that a run may choose for existing towers."""
        chosen = {"weight_side", "weight_form", "gain", "pooling_gain", "pooling", "dropout"}
        return self.model_dump(include=chosen)


class OptimizerConfig(OptimizerOptions):
    """The optimizer."""

    # pairs per step and process; negatives come from the process's own batch
    batch_size: int = Field(default=64, ge=1)
    epochs: int = Field(default=3, ge=1)  # passes over the pairs
    # most steps; 0: no limit. The learning rate schedule ends with it.
    max_steps: int = Field(default=0, ge=0)
    # factor of the learning rate for the learned gains, which start far from their final values; 0 freezes them
    gain_rate: float = Field(default=30.0, ge=0.0)
    # fraction of the steps in which the rate rises linearly; it then falls linearly to 0
    warmup: float = Field(default=0.1, ge=0.0, lt=1.0)


class BatchesConfig(StrictModel):
    """The composition of batches, and typos in their queries."""

    # number of clusters of a directory's queries, by the teacher's vectors. A batch has one cluster or two consecutive ones, so that its documents are hard to tell apart. 0: random pairs.
    topics: int = Field(default=0, ge=0)
    # fraction of the queries that get a typo in one word, drawn again each epoch
    typo_rate: float = Field(default=0.0, ge=0.0, le=1.0)


class TrainConfig(RunConfig):
    """The configuration of a training run of towers."""

    fields: str = "glow-default"  # name of a schema preset
    document_tokens: int = Field(default=0, ge=0)  # token limit of a document; 0: the preset's
    weighting: Weighting = Weighting()
    towers: TowersConfig = TowersConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    batches: BatchesConfig = BatchesConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            _ = self.field_schema
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if self.batches.topics and not (self.objective.needs_teacher and self.objective.compares):
            raise ValueError(
                "topics are clusters of a teacher's vectors, for a loss that compares: they need a kind other than 'none', "
                "and distill_weight or list_weight"
            )
        if self.objective.list_other == "teacher" and self.towers.learns == "both":
            raise ValueError("list_other 'teacher' is for one tower: learns must be 'query' or 'document'")
        if self.towers.learns != "both" and self.towers.train_words:
            raise ValueError("the towers share the token embeddings: train_words needs learns 'both'")
        return self

    @property
    def sides(self) -> tuple[Side, ...]:
        """The towers that a step runs: both, unless one alone is distilled."""
        learns = self.towers.learns
        return ("query", "document") if learns == "both" or self.objective.compares else (learns,)

    @property
    def field_schema(self) -> FieldSchema:
        """The preset with the run's token limit."""
        preset = FieldSchema.preset(self.fields)
        changes = {"document_tokens": self.document_tokens} if self.document_tokens else {}
        return FieldSchema.model_validate(preset.model_dump() | changes)


class TowerLoss(nn.Module):
    """Both towers and their objective; `init` may include the map of a teacher's vectors."""

    def __init__(
        self,
        config: TrainConfig,
        towers: TwoTowers,
        batches: PairBatches,
        targets: Sequence[Targets] = (),
        init: Path | None = None,
    ) -> None:
        super().__init__()
        self.config, self._batches, self._targets = config, batches, targets
        known = [
            aims for target in targets for aims in (target.queries, target.documents) if aims is not None
        ]
        torch.manual_seed(config.seed)
        self.towers = towers
        self.objective = Objective(config.objective, towers.config.hidden, known[0].width if known else 0)
        if self.objective.map is not None and init is not None and (init / TEACHER_MAP).is_file():
            known_map = load_file(init / TEACHER_MAP)
            if known_map["weight"].shape == self.objective.map.weight.shape:
                self.objective.map.load_state_dict(known_map)
        learns = config.towers.learns
        for side, tower in (("query", towers.query), ("document", towers.document)):
            tower.requires_grad_(learns in ("both", side))
        towers.words.weight.requires_grad_(config.towers.train_words)

    def forward(self, batch: PairBatch, moment: Moment) -> Loss:
        encoding = Encoding(self._batches.pad_id, moment.device, moment.autocast)
        vectors = [encode(encoding, *self._side(side, batch)) for side in self.config.sides]
        value, figures = self._loss(vectors, batch, moment)
        return Loss(value, len(batch.queries), figures)

    def _side(self, side: Side, batch: PairBatch) -> tuple[Tower, list[WeightedTokens]]:
        """A tower and its texts of a batch."""
        if side == "query":
            return self.towers.query, self._batches.queries_of(batch)
        documents = self._batches.documents[batch.collection]
        return self.towers.document, [documents[row] for row in batch.documents]

    def _loss(
        self, vectors: Sequence[Tensor], batch: PairBatch, moment: Moment
    ) -> tuple[Tensor, dict[str, float]]:
        targets = self._targets[batch.collection] if self._targets else Targets(None, None)
        wanted = [target.to(moment.device) for target in targets.of(batch)]
        if len(vectors) == 1:
            are_queries = self.config.sides == ("query",)
            if len(wanted) == 2 and not are_queries:
                wanted.reverse()
            return self.objective.alone(vectors[0], *wanted, are_queries=are_queries)
        relevant = torch.from_numpy(batch.relevant).to(moment.device)
        lexical = torch.from_numpy(targets.lexical(batch)).to(moment.device) if targets.lexical else None
        found: tuple[Tensor, dict[str, float]] = self.objective(*vectors, relevant, wanted, lexical)
        return found


DEPTH = 10
SIDES: tuple[Side, Side] = ("query", "document")


@dataclass(frozen=True, slots=True, eq=False)
class WatchedTask:
    """Queries and documents of one collection, preprocessed."""

    name: str  # name of the collection
    # queries, documents: weighted tokens
    queries: Sequence[WeightedTokens]
    documents: Sequence[WeightedTokens]
    relevant: Sequence[frozenset[int]]  # query -> positions of its relevant documents here
    # int64, numbers of the queries and of the documents in the collection
    numbers: tuple[NDArray[np.int64], NDArray[np.int64]]


class Watch:
    """Measures RR@10 on a fixed sample of collections.

    A teacher's vectors (`targets`) replace the other tower's if one is trained alone.
    """

    def __init__(
        self,
        collections: Sequence[Collection],
        preprocessor: Preprocessor,
        config: WatchConfig,
        seed: int,
        loss: TowerLoss,
        targets: Sequence[Targets] = (),
    ) -> None:
        self.tasks = [_task(collection, preprocessor, config, seed) for collection in collections]
        self._pad_id, self._loss, self._targets = preprocessor.pieces.pad_id, loss, targets

    def measure(self, moment: Moment) -> dict[str, float]:
        """Mean RR@10 of each collection, by name."""
        means = {}
        for number, task in enumerate(self.tasks):
            queries, documents = (self._vectors(number, task, side, moment) for side in SIDES)
            means[task.name] = float(reciprocal_ranks(queries @ documents.T, task.relevant).mean())
        return means

    def _vectors(self, number: int, task: WatchedTask, side: Side, moment: Moment) -> NDArray[np.float32]:
        place = SIDES.index(side)
        if self._targets and side not in self._loss.config.sides:
            aims = (self._targets[number].queries, self._targets[number].documents)[place]
            assert aims is not None  # noqa: S101 - `list_other = "teacher"` reads both sides
            wanted = torch.from_numpy(aims[task.numbers[place]]).to(moment.device)
            with torch.inference_mode():
                return self._loss.objective.mapped(wanted).cpu().numpy()
        tower = (self._loss.towers.query, self._loss.towers.document)[place]
        texts = (task.queries, task.documents)[place]
        return vectors(tower, texts, self._pad_id, moment.precision, str(moment.device))


def reciprocal_ranks(
    scores: NDArray[np.float32], relevant: Sequence[frozenset[int]], depth: int = DEPTH
) -> NDArray[np.float64]:
    """Reciprocal rank of each query's first relevant document; 0 beyond `depth`.

    `scores` is float32 [queries, documents].
    Returns float64 [queries].
    """
    depth = min(depth, scores.shape[1])
    nearest = np.argpartition(-scores, depth - 1, axis=1)[:, :depth]
    order = np.take_along_axis(nearest, np.argsort(-np.take_along_axis(scores, nearest, 1), 1), 1)
    ranks = np.zeros(len(scores))
    for row, columns in enumerate(order.tolist()):
        rank = next((rank for rank, column in enumerate(columns, 1) if column in relevant[row]), 0)
        ranks[row] = 1.0 / rank if rank else 0.0
    return ranks


def _task(collection: Collection, preprocessor: Preprocessor, config: WatchConfig, seed: int) -> WatchedTask:
    random = np.random.default_rng(seed)
    queries = list(range(len(collection.queries)))
    if 0 < config.queries < len(queries):
        queries = sorted(random.choice(len(queries), config.queries, replace=False).tolist())
    needed = {number for query in queries for number in collection.relevant[query]}
    others = np.setdiff1d(np.arange(len(collection.documents)), np.array(sorted(needed)))
    if 0 < config.documents < len(others):
        others = random.choice(others, config.documents, replace=False)
    kept = sorted(needed | set(others.tolist()))
    position = {number: row for row, number in enumerate(kept)}
    return WatchedTask(
        collection.name,
        [preprocessor.query(collection.queries[query]) for query in queries],
        [preprocessor.document(collection.documents[number]) for number in kept],
        [frozenset(position[number] for number in collection.relevant[query]) for query in queries],
        (np.array(queries, np.int64), np.array(kept, np.int64)),
    )


Say = Callable[[str], None]


def towers_recipe(config: TrainConfig, given: Given, say: Say) -> Recipe[PairBatch]:
    """Reads the inputs of a towers run."""
    given.refuse("a run of towers", "candidates", "dev_candidates", "corpora")
    schema = config.field_schema
    pieces = _pieces(given.init, config.weighting)
    say("reading data")
    collections = _collections(given, schema)
    say("counting terms")
    preprocessor = Preprocessor(pieces, schema, config.weighting, count_terms(collections, schema, pieces))
    origins = [preprocessor.terms.hash, file_sha256(pieces.vocabulary), *map(collection_hash, collections)]
    targets: list[Targets] = []
    if config.objective.needs_teacher:
        say("encoding with the teacher")
        targets, hashes = _targets(config, collections, given)
        origins += hashes
    if config.objective.list_lexical:
        say("counting words for the teacher")
        words = given.run_folder / "words"
        for number, each in enumerate(collections):
            with one_at_a_time(words / f"{number}.lock"):
                lexical = lexical_part(words / str(number), each, schema, pieces, targets[number])
            targets[number] = replace(targets[number], lexical=lexical)
    batches = pair_batches(config, collections, preprocessor, targets)
    towers = initial_towers(config, schema, given.init)
    objective = TowerLoss(config, towers, batches, targets, given.init)
    watch, watched = _watch(config, given, preprocessor, objective)
    return assemble(
        config,
        batches,
        objective,
        [*origins, *watched],
        lambda out, report: save_checkpoint(out, towers, preprocessor, report, objective.objective.map),
        watch,
        {
            "data": [
                each.about(given.split) | {"pairs": len(own)}
                for each, own in zip(collections, batches.pairs, strict=True)
            ]
        },
    )


def assemble(
    config: TrainConfig,
    batches: PairBatches,
    objective: TowerLoss,
    origins: Sequence[str],
    keep: Keep = lambda folder, report: None,
    watch: Watch | None = None,
    about: Mapping[str, Any] | None = None,
) -> Recipe[PairBatch]:
    """The recipe from towers and data in memory; arguments as in `Recipe`."""
    return Recipe(
        config,
        batches,
        objective.towers,
        objective,
        keep,
        origins,
        [Group(r"\.gain$", config.optimizer.gain_rate, decay=False)],
        rate=linear(config.optimizer.warmup),
        measures=watch.measure if watch else None,
        about=about or {},
    )


def _pieces(init: Path, weighting: Weighting) -> WordPieces:
    """The run's vocabulary; ignores a `tokenizer.json` in a BERT directory, which has another format."""
    if (init / QUERY_TOWER).is_file() or kind_of(init) is not None:
        return load_pieces(init, weighting.unit)
    return WordPieces(init / "vocab.txt", weighting.unit)


def _collections(given: Given, schema: FieldSchema) -> list[Collection]:
    """All data directories with their mined negatives."""
    if not given.data:
        raise ConfigError("there is nothing to train on; give --data")
    collections = [read_collection(folder, given.split, schema) for folder in given.data]
    mined = match_negatives(given.negatives, collections) if given.negatives else [None] * len(collections)
    return [
        each if negatives is None else replace(each, negatives=negatives)
        for each, negatives in zip(collections, mined, strict=True)
    ]


def pair_batches(
    config: TrainConfig,
    collections: Sequence[Collection],
    preprocessor: Preprocessor,
    targets: Sequence[Targets] = (),
) -> PairBatches:
    """The batches of a run over collections; a teacher's vectors decide their topics."""
    options, topics = config.optimizer, config.batches.topics
    labels: list[NDArray[np.int64]] | None = None
    if topics:
        known = (target.queries for target in targets if target.queries is not None)
        labels = [topics_of(queries[:], topics, config.seed) for queries in known]
    return PairBatches(
        collections,
        preprocessor,
        options.batch_size,
        config.seed,
        config.objective.hard_negatives,
        config.objective.compares,
        config.batches.typo_rate,
        labels,
        options.epochs,
        options.max_steps,
    )


def _targets(
    config: TrainConfig, collections: Sequence[Collection], given: Given
) -> tuple[list[Targets], list[str]]:
    """The teacher's vectors of the sides that the objective uses, and their hashes."""
    sides = ("query", "document") if config.objective.list_other == "teacher" else config.sides
    targets, hashes = [], []
    for each in collections:
        queries = each.queries if "query" in sides else ()
        documents = each.documents if "document" in sides else ()
        where = given.teacher or minilm_folder()
        vectors = teacher_vectors(where, queries, documents, each.documents, given.vectors_folder)
        hashes.append(vectors.teacher)
        keys = ([*map(query_key, queries)], [*map(document_key, documents)])
        aims = (vectors.aims(some, f"texts of {each.name}") if some else None for some in keys)
        targets.append(Targets(next(aims), next(aims)))
    return targets, hashes


def _watch(
    config: TrainConfig, given: Given, preprocessor: Preprocessor, objective: TowerLoss
) -> tuple[Watch | None, list[str]]:
    """The measurement of development sets, and their hashes if they decide the run."""
    if not (given.dev and config.watch.steps):
        return None, []
    watched = [read_collection(folder, "dev", preprocessor.schema) for folder in given.dev]
    targets: list[Targets] = []
    if config.objective.list_other == "teacher":
        targets, _ = _targets(config, watched, given)
    # With patience they decide the run's end and its final weights.
    deciding = watched if config.watch.patience else []
    watch = Watch(watched, preprocessor, config.watch, config.seed, objective, targets)
    return watch, [*map(collection_hash, deciding)]


_LAYER = re.compile(r"^(query|document)\.layers\.(\d+)\.(.*)$")


def initial_towers(config: TrainConfig, schema: FieldSchema, init: Path) -> TwoTowers:
    """The initial towers of a run; the run's seed decides random layers."""
    torch.manual_seed(config.seed)
    wanted = config.towers
    depth, document_depth = wanted.depths
    shape = {"layers": depth, "document_layers": document_depth, **wanted.changes}
    if (init / QUERY_TOWER).is_file():
        found = read_towers(Model.open(init))
        if not found.schema.joined or found.schema == schema:
            return _go_on(found, config, schema)
        towers = TwoTowers(found.config.model_copy(update=shape), schema)
        fill_towers(towers, found, wanted.init_layers, wanted.document_layers)
        return towers
    if kind_of(init) == "towers":
        return _go_on(load_checkpoint(init).towers, config, schema)
    towers = TwoTowers(bert_config(init, **shape), schema)
    init_from_bert(towers, init, wanted.init_layers, wanted.document_layers)
    return towers


def _go_on(found: TwoTowers, config: TrainConfig, schema: FieldSchema) -> TwoTowers:
    """Loads trained towers with the run's weight side, pooling and dropout."""
    depths = (found.config.layers, found.config.document.layers)
    if found.schema != schema or depths != config.towers.depths:
        raise MismatchError(
            "the initial towers have {} and {} layers (queries, documents) and schema {}, "
            "the configuration requires {}, {} and {}".format(
                *depths, found.schema.name, *config.towers.depths, schema.name
            )
        )
    towers = TwoTowers(found.config.model_copy(update=config.towers.changes), schema)
    towers.load_state_dict(found.state_dict(), strict=False)
    return towers


def with_few_layers(whole: TwoTowers, layers: Sequence[int]) -> TwoTowers:
    """Towers that use all layers of an imported encoder for documents, and some for queries."""
    depth = whole.config.layers
    shape = whole.config.model_copy(update={"layers": len(layers), "document_layers": depth})
    towers = TwoTowers(shape, whole.schema)
    fill_towers(towers, whole, layers, range(depth))
    return towers


def fill_towers(
    towers: TwoTowers, found: TwoTowers, layers: Sequence[int], document_layers: Sequence[int] = ()
) -> None:
    """Fills towers from an imported encoder. It has a single field embedding, from which all fields start."""
    source, filled = found.state_dict(), {}
    chosen = {"query": list(layers), "document": list(document_layers or layers)}
    if (most := max(*layers, *document_layers)) >= found.config.layers:
        raise MismatchError(
            f"the imported encoder has {found.config.layers} layers; init_layers requires layer {most}"
        )
    for name, wanted in towers.state_dict().items():
        part = _LAYER.match(name)
        place = name
        if part is not None:
            place = f"{part[1]}.layers.{chosen[part[1]][int(part[2])]}.{part[3]}"
        tensor = source.get(place)
        if tensor is None:
            continue  # a gain, or a merge of weights, which it lacks
        if name.endswith("positions.weight"):
            tensor = tensor[: len(wanted)]
        elif name.endswith("distances.weight"):
            spare = (len(tensor) - len(wanted)) // 2
            tensor = tensor[spare : spare + len(wanted)]
        elif name.endswith("fields.weight"):
            tensor = tensor[:1].expand(len(wanted), -1)
        if tensor.shape != wanted.shape:
            raise MismatchError(
                f"{name} of the imported encoder has shape {tuple(tensor.shape)}, the run needs {tuple(wanted.shape)}"
            )
        filled[name] = tensor
    with torch.no_grad():
        towers.load_state_dict(filled, strict=False)
