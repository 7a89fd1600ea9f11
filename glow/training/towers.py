"""The recipe of two towers: judged pairs, and a teacher's vectors if the objective uses them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glow.artifact import QUERY_TOWER, default_model, file_sha256
from glow.errors import ConfigError, MismatchError
from glow.index import DEFAULT_FUSION
from glow.index.postings import ImpactIndex, build_lexical
from glow.nn import TwoTowers, bert_config, init_from_bert, init_words, minilm_folder
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.search import HEAD, uncertainty
from glow.text import Preprocessor, WeightedTokens, Weighting, WordPieces, lexical_words, load_pieces
from glow.training.checkpoint import kind_of, load_checkpoint, read_towers, save_checkpoint
from glow.training.config import Given, Side, TrainConfig
from glow.training.data import (
    Collection,
    PairBatch,
    PairBatches,
    collection_hash,
    count_terms,
    one_at_a_time,
    read_collection,
    topics_of,
)
from glow.training.encode import EncodeOptions, vectors
from glow.training.negatives import match_negatives
from glow.training.objective import Targets, TowerLoss
from glow.training.run import Group, Keep, Moment, Recipe, WatchConfig, linear
from glow.training.synthesis import SynthesisOptions, synthesize
from glow.training.teacher import document_key, query_key, teacher_vectors

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
        return {
            task.name: float(self._ranks(number, task, moment).mean())
            for number, task in enumerate(self.tasks)
        }

    def _ranks(self, number: int, task: WatchedTask, moment: Moment) -> NDArray[np.float64]:
        queries, documents = (self._vectors(number, task, side, moment) for side in SIDES)
        return reciprocal_ranks(queries @ documents.T, task.relevant)

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
    given.refuse("a run of towers", "candidates", "dev_candidates", "corpora", "minutes")
    schema = config.field_schema
    pieces = _pieces(given.init, config.weighting)
    given = _synthesized(config, given, schema, say)
    say("reading data")
    collections = _collections(given, schema)
    say("counting terms")
    preprocessor = Preprocessor(pieces, schema, config.weighting, count_terms(collections, schema, pieces))
    origins = [preprocessor.terms.hash, file_sha256(pieces.vocabulary), *map(collection_hash, collections)]
    targets: list[Targets] = []
    if config.objective.needs_teacher:
        say("encoding with the teacher")
        targets, hashes = _targets(config, collections, given, pieces)
        origins += hashes
    if config.objective.list_lexical:
        say("counting words for the teacher")
        words = given.run_folder / "words"
        for number, each in enumerate(collections):
            with one_at_a_time(words / f"{number}.lock"):
                part = lexical_part(words / str(number), each, schema, pieces, targets[number])
            targets[number] = replace(targets[number], lexical=part.scores)
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
        {"data": _about(collections, batches.pairs, given.split)},
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


def _synthesized(config: TrainConfig, given: Given, schema: FieldSchema, say: Say) -> Given:
    """The inputs, plus a synthetic data directory for every corpus in `synthesize`; keeps finished ones."""
    folders = []
    for number, corpus in enumerate(given.synthesize):
        say(f"making pairs from {corpus.name}")
        folder = given.run_folder / f"synthetic-{number}"
        options = SynthesisOptions(seed=config.seed)
        encode = EncodeOptions(threads=torch.get_num_threads())
        with one_at_a_time(given.run_folder / f"{folder.name}.lock"):
            synthesize(corpus, folder, schema, options, given.synthesis_model or default_model(), encode)
        folders.append(folder)
    return replace(given, data=[*given.data, *folders], synthesize=())


def _collections(given: Given, schema: FieldSchema) -> list[Collection]:
    """All data directories with their mined negatives."""
    if not given.data:
        raise ConfigError("there is nothing to train on; give --data or --synthesize")
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
        labels = [
            topics_of(target.queries[:], topics, config.seed)
            for target in targets
            if target.queries is not None
        ]
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
    config: TrainConfig, collections: Sequence[Collection], given: Given, pieces: WordPieces
) -> tuple[list[Targets], list[str]]:
    """The teacher's vectors of the sides that the objective uses, and their hashes."""
    sides = ("query", "document") if config.objective.list_other == "teacher" else config.sides
    targets, hashes = [], []
    for each in collections:
        queries = each.queries if "query" in sides else ()
        documents = each.documents if "document" in sides else ()
        where = given.teacher or minilm_folder()
        vectors = teacher_vectors(where, pieces, queries, documents, each.documents, given.vectors_folder)
        hashes.append(vectors.teacher)
        targets.append(
            Targets(
                vectors.aims([*map(query_key, queries)], f"queries of {each.name}") if queries else None,
                vectors.aims([*map(document_key, documents)], f"documents of {each.name}")
                if documents
                else None,
            )
        )
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
        targets, _ = _targets(config, watched, given, preprocessor.pieces)
    # With patience they decide the run's end and its final weights.
    deciding = watched if config.watch.patience else []
    watch = Watch(watched, preprocessor, config.watch, config.seed, objective, targets)
    return watch, [*map(collection_hash, deciding)]


def _about(
    collections: Sequence[Collection], pairs: Sequence[NDArray[np.int64]], split: str
) -> list[dict[str, object]]:
    return [
        {"name": each.name, "split": split, "documents": len(each.documents), "pairs": len(own)}
        for each, own in zip(collections, pairs, strict=True)
    ]


_LAYER = re.compile(r"^(query|document)\.layers\.(\d+)\.(.*)$")


def initial_towers(config: TrainConfig, schema: FieldSchema, init: Path) -> TwoTowers:
    """The initial towers of a run; the run's seed decides random layers."""
    torch.manual_seed(config.seed)
    wanted = config.towers
    if (init / QUERY_TOWER).is_file():
        found = read_towers(Model.open(init))
        if not found.schema.joined or found.schema == schema:
            return _go_on(found, config, schema)
        depth, document_depth = wanted.depths
        changes = {"layers": depth, "document_layers": document_depth, **wanted.changes, **wanted.shape}
        towers = TwoTowers(found.config.model_copy(update={"pooling_gain": None, **changes}), schema)
        fill_towers(towers, found, wanted.init_layers, wanted.document_layers)
        return towers
    if kind_of(init) == "towers":
        return _go_on(load_checkpoint(init).towers, config, schema)
    depth, document_depth = wanted.depths
    shape = bert_config(init, layers=depth, document_layers=document_depth, **wanted.changes, **wanted.shape)
    towers = TwoTowers(shape, schema)
    if wanted.init == "words":
        init_words(towers, init)
    elif wanted.init == "layers":
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
    missing = [
        name
        for name in towers.state_dict()
        if ".layers." in name and name.endswith("qkv.weight") and name not in filled
    ]
    if missing:
        raise MismatchError(
            f"the imported encoder has {found.config.layers} layers; init_layers requires layer {missing[0]}"
        )
    with torch.no_grad():
        towers.load_state_dict(filled, strict=False)


BLOCK_QUERIES = 1024


@dataclass(frozen=True, slots=True, eq=False)
class LexicalPart:
    """The lexical part of hybrid scores of one collection, which a list-wise teacher adds to cosines.

    A dense model can learn lexical matching in part (SPAR, https://arxiv.org/abs/2110.06918; LED,
    https://arxiv.org/abs/2208.13661). The part is computed as in a search (`glow.search.hybrid`): BM25 on the scale of
    the collection's largest impact, times the uncertainty of the dense ranking.
    """

    index: ImpactIndex  # impacts; rows are the collection's documents
    words: list[list[str]]  # words of each query
    factors: NDArray[np.float32]  # float32 [queries], which convert impacts to units of a cosine

    def scores(self, batch: PairBatch) -> NDArray[np.float32]:
        """The addition of hybrid search to the cosines of a batch, float32 [B, M]."""
        rows = batch.documents.astype(np.int64)
        found = [self.index.score(self.words[query], rows) for query in batch.queries]
        return np.stack(found) * self.factors[batch.queries, None]


def lexical_part(
    folder: Path, collection: Collection, schema: FieldSchema, pieces: WordPieces, targets: Targets
) -> LexicalPart:
    """Indexes a collection's words; the ranking by the teacher's vectors gives each query's uncertainty."""
    table = count_terms([collection], schema, pieces)
    documents = (lexical_words(document, schema, pieces) for document in collection.documents)
    build_lexical(folder, documents, table, table)
    index = ImpactIndex.open(folder)
    weights = DEFAULT_FUSION.weights
    scale = weights.lexical / weights.dense / (index.largest or 1.0)
    words = [list(pieces.words(query)) for query in collection.queries]
    return LexicalPart(index, words, (_openness(targets) * scale).astype(np.float32))


def _openness(targets: Targets) -> NDArray[np.float32]:
    """Each query's `uncertainty` over the teacher's ranking of the whole collection, float32 [queries]."""
    if targets.queries is None or targets.documents is None:
        raise ValueError("a lexical teacher needs the teacher's vectors of queries and documents")
    queries, documents = targets.queries[:], targets.documents[:]
    found = np.empty(len(queries), np.float32)
    head = min(HEAD, len(documents))
    for start in range(0, len(queries), BLOCK_QUERIES):
        cosines = queries[start : start + BLOCK_QUERIES] @ documents.T
        best = -np.sort(-np.partition(cosines, -head, axis=1)[:, -head:], axis=1)
        found[start : start + len(best)] = [uncertainty(row) for row in best]
    return found
