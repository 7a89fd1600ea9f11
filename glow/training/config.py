"""Training options: small TOML files in `configs/`, validated as a whole before any work; and the other inputs of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from glow.artifact import read_manifest
from glow.errors import ConfigError, GlowError
from glow.nn import Pooling, WeightForm, WeightSide
from glow.options import StrictModel
from glow.schema import FieldSchema
from glow.text import Weighting
from glow.training.run import OptimizerOptions, RunConfig, TrainingDevice

Side = Literal["query", "document"]


class TowersConfig(StrictModel):
    """Which towers to train."""

    # what to take from the initial encoder: its `layers`; only its token embeddings (`words`), with random layers as in the released code; or `none`, with random token embeddings as well
    init: Literal["layers", "words", "none"] = "layers"
    # size of the towers with init `none`, with an inner layer four times as wide; 0: as in the initial encoder
    hidden: int = Field(default=0, ge=0)
    heads: int = Field(default=0, ge=0)
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

    @property
    def shape(self) -> dict[str, Any]:
        """The members of `TowerConfig` that the initial encoder does not decide."""
        wide = {"hidden": self.hidden, "intermediate": 4 * self.hidden} if self.hidden else {}
        return {**wide, **({"heads": self.heads} if self.heads else {})}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.shape and self.init != "none":
            raise ValueError(
                f"hidden and heads are the initial encoder's if init is {self.init!r}; leave them out"
            )
        if self.init == "none" and not self.train_words:
            raise ValueError("init 'none' draws random token embeddings, which must be trained (train_words)")
        return self


class ObjectiveConfig(StrictModel):
    """The loss."""

    # `bce` (Eq. 10 with NCE sampling, docs/papers.md 1.6), `softmax` over the batch, or `none` (distillation alone).
    kind: Literal["bce", "softmax", "none"] = "softmax"
    # initial a and c of the BCE; learned unless `learn_scale` is false
    scale: float = Field(default=1.0, gt=0.0)
    shift: float = 0.0
    learn_scale: bool = True
    nce_weight: float = Field(default=0.5, ge=0.0, le=1.0)  # weight of the sampled negatives in the BCE loss
    # of NCE sampling; 1000 almost picks the hardest negative, 10 is almost uniform
    inverse_temperature: float = Field(default=1000.0, gt=0.0)
    # queries with a higher cosine count as the same question
    query_mask: float = Field(default=0.9, gt=0.0, le=1.0)
    temperature: float = Field(default=0.05, gt=0.0)  # of the softmax
    # mined negatives per pair and step, if `--negatives` is given
    hard_negatives: int = Field(default=0, ge=0)
    # weight of 1 - cosine to a teacher's vectors, for queries and documents each; 0 is off
    distill_weight: float = Field(default=0.0, ge=0.0)
    # weight of the divergence from the teacher's softmax over the batch's documents
    list_weight: float = Field(default=0.0, ge=0.0)
    list_temperature: float = Field(default=0.05, gt=0.0)  # of both softmaxes there
    # the cosines of that list: the `teacher`'s, or the towers' current `own`, which make sense only with `list_lexical`
    list_cosines: Literal["teacher", "own"] = "teacher"
    # the vectors that the trained tower is compared with in that list: the `own` other tower's, or the `teacher`'s, which trains one tower alone
    list_other: Literal["own", "teacher"] = "own"
    # factor of the lexical part that hybrid search adds to a cosine (`glow.training.towers`), in that list; 1: as in hybrid search, 0: none.
    list_lexical: float = Field(default=0.0, ge=0.0)

    @property
    def compares(self) -> bool:
        """Whether any part of the loss compares the towers' vectors of queries and documents."""
        return self.kind != "none" or bool(self.list_weight and self.list_other == "own")

    @property
    def needs_teacher(self) -> bool:
        """Whether any part of the loss needs a teacher."""
        return bool(self.distill_weight or self.list_weight)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.list_lexical and not self.list_weight:
            raise ValueError("list_lexical belongs to the teacher's list: it needs a list_weight above 0")
        if self.list_cosines == "own" and not self.list_lexical:
            raise ValueError(
                "list_cosines 'own' without list_lexical teaches the towers what they do already"
            )
        alone = self.kind == "none" and not self.list_lexical
        if self.list_other == "teacher" and not (alone and self.list_weight):
            raise ValueError(
                "list_other 'teacher' is for one tower that learns alone: it needs kind 'none' and a list_weight, "
                "without list_lexical"
            )
        if self.kind == "none" and not self.needs_teacher:
            raise ValueError("kind 'none' leaves nothing to minimize; give distill_weight or list_weight")
        return self


class OptimizerConfig(OptimizerOptions):
    """The optimizer."""

    # pairs per step and process; negatives come from the process's own batch
    batch_size: int = Field(default=64, ge=1)
    # gradient caching: texts encoded at once. A large batch then fits into small memory, but is encoded twice; 0 encodes the batch as a whole.
    chunk_size: int = Field(default=0, ge=0)
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
    one_field_id: bool = False  # the paper's ablation `us`: every field has the same field embedding
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
        """The preset with the run's token limit and field ids."""
        preset = FieldSchema.preset(self.fields)
        changes: dict[str, Any] = {"one_field_id": self.one_field_id}
        if self.document_tokens:
            changes["document_tokens"] = self.document_tokens
        return FieldSchema.model_validate(preset.model_dump() | changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Files and directories; each kind of run reads some of them and refuses the others."""

    out: Path  # the checkpoint directory to write; state and metrics go to `OUT.run/` beside it.
    init: Path  # initial weights and vocabulary: a BERT directory, a checkpoint, or a model; for learned impacts, the model to extend
    data: Sequence[Path] = ()  # data directories
    split: str = "train"  # split of their relevance judgments
    # text for pre-training: JSON Lines of documents (`.jsonl`, `.ndjson`), or plain text.
    corpora: Sequence[Path] = ()
    # TREC runs of first-stage retrieval, one for each data directory, in the same order
    candidates: Sequence[Path] = ()
    # the teacher: a BERT or sentence-transformers directory, a model or a checkpoint
    teacher: Path | None = None
    # files of mined hard negatives; each names the directory it was mined from
    negatives: Sequence[Path] = ()
    # development data: data directories with a split `dev`, or corpora for pre-training
    dev: Sequence[Path] = ()
    dev_candidates: Sequence[Path] = ()  # TREC runs over them, in the same order
    # JSON Lines of documents for synthetic training pairs, which go to the run directory
    synthesize: Sequence[Path] = ()
    synthesis_model: Path | None = None  # model whose search filters those pairs; None: the default model
    cache: Path | None = None  # directory of teachers' vectors; None: `teacher.vectors` beside `out`.
    minutes: float = 0.0  # training time; 0: the configured number of steps
    device: TrainingDevice = "auto"  # `auto`, `cpu` or `cuda`

    @property
    def run_folder(self) -> Path:
        """Directory of the run's state."""
        return self.out.with_name(self.out.name + ".run")

    @property
    def vectors_folder(self) -> Path:
        """Directory of teachers' vectors, shared by neighboring runs."""
        return self.cache or self.out.parent / "teacher.vectors"

    def check_folders(self) -> None:
        """Raises ConfigError if `init` is not a directory, or `out` exists and is not a checkpoint."""
        if not self.init.is_dir():
            raise ConfigError(
                f"--init {self.init} is not a directory; give a BERT directory, a checkpoint or a model"
            )
        if not self.out.exists() or (self.out.is_dir() and not any(self.out.iterdir())):
            return
        try:
            read_manifest(self.out, "checkpoint")
        except GlowError as error:
            raise ConfigError(
                f"--out {self.out} exists and is not a checkpoint; choose another directory"
            ) from error

    def refuse(self, what: str, *names: str) -> None:
        """Raises ConfigError for given inputs that a kind does not read."""
        if found := [name for name in names if getattr(self, name)]:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in found)
            raise ConfigError(f"{what} does not read {flags}; leave it out")

    def require_candidates(self, what: str) -> None:
        """Raises ConfigError unless there is one run of candidates for each directory."""
        pairs = (("data", "candidates"), ("dev", "dev_candidates"))
        for folders, runs in pairs:
            found, expected = len(getattr(self, runs)), len(getattr(self, folders))
            if found != expected or (folders == "data" and not expected):
                flags = f"--{folders} and {found} --{runs.replace('_', '-')}"
                raise ConfigError(
                    f"{what} from first-stage hits: found {expected} {flags}, "
                    "expected one TREC run for each directory (glow evaluate --run)"
                )
