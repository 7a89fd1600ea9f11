"""Training options: small TOML files in `configs/`, validated as a whole before any work."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from glow.errors import ConfigError
from glow.nn import Pooling, WeightForm, WeightSide
from glow.options import StrictModel
from glow.schema import FieldSchema
from glow.text import Weighting
from glow.training.run import OptimizerOptions, RunConfig

__all__ = [
    "BatchesConfig",
    "ObjectiveConfig",
    "OptimizerConfig",
    "Side",
    "TowersConfig",
    "TrainConfig",
]

Side = Literal["query", "document"]


class TowersConfig(StrictModel):
    """Which towers to train.

    Attributes:
        init: what to take from the initial encoder: its `layers`; only its token embeddings (`words`), with random
            layers as in the released code; or `none`, with random token embeddings as well.
        hidden, heads: size of the towers with init `none`, with an inner layer four times as wide; 0: as in the initial
            encoder.
        init_layers: layers of the initial encoder that become layers 0, 1, …; their number is the depth.
        document_layers: the same for the document tower; empty: as `init_layers`.
        weight_side, weight_form, gain, pooling_gain, pooling, dropout: as `glow.nn.TowerConfig`.
        train_words: whether to train the shared token embeddings; frozen ones keep rare words near their
            pre-trained place and save a third of a step on a CPU.
        learns: which towers to train; the other keeps its weights, and costs nothing if the loss is only distillation.
    """

    init: Literal["layers", "words", "none"] = "layers"
    hidden: int = Field(default=0, ge=0)
    heads: int = Field(default=0, ge=0)
    init_layers: tuple[int, ...] = Field(default=(0, 4, 5), min_length=1)
    document_layers: tuple[int, ...] = ()
    weight_side: WeightSide = "key"
    weight_form: WeightForm = "multiply"
    gain: float = 0.0
    pooling_gain: float | None = None
    pooling: Pooling = "mean"
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    train_words: bool = True
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
    """The loss.

    Attributes:
        kind: `bce` (Eq. 10 with NCE sampling, docs/papers.md 1.6), `softmax` over the batch, or `none` (distillation alone).
        scale, shift: initial a and c of the BCE; learned unless `learn_scale` is false.
        nce_weight: weight of the sampled negatives in the BCE loss.
        inverse_temperature: of NCE sampling; 1000 almost picks the hardest negative, 10 is almost uniform.
        query_mask: queries with a higher cosine count as the same question.
        temperature: of the softmax.
        hard_negatives: mined negatives per pair and step, if `--negatives` is given.
        distill_weight: weight of 1 - cosine to a teacher's vectors, for queries and documents each; 0 is off.
        list_weight: weight of the divergence from the teacher's softmax over the batch's documents.
        list_temperature: of both softmaxes there.
        list_cosines: the cosines of that list: the `teacher`'s, or the towers' current `own`, which make sense only with
            `list_lexical`.
        list_other: the vectors that the trained tower is compared with in that list: the `own` other tower's, or the
            `teacher`'s, which trains one tower alone.
        list_lexical: factor of the lexical part that hybrid search adds to a cosine (`glow.training.lexical`), in that
            list; 1: as in hybrid search, 0: none.
    """

    kind: Literal["bce", "softmax", "none"] = "softmax"
    scale: float = Field(default=1.0, gt=0.0)
    shift: float = 0.0
    learn_scale: bool = True
    nce_weight: float = Field(default=0.5, ge=0.0, le=1.0)
    inverse_temperature: float = Field(default=1000.0, gt=0.0)
    query_mask: float = Field(default=0.9, gt=0.0, le=1.0)
    temperature: float = Field(default=0.05, gt=0.0)
    hard_negatives: int = Field(default=0, ge=0)
    distill_weight: float = Field(default=0.0, ge=0.0)
    list_weight: float = Field(default=0.0, ge=0.0)
    list_temperature: float = Field(default=0.05, gt=0.0)
    list_cosines: Literal["teacher", "own"] = "teacher"
    list_other: Literal["own", "teacher"] = "own"
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
    """The optimizer.

    Attributes:
        batch_size: pairs per step and process; negatives come from the process's own batch.
        chunk_size: gradient caching: texts encoded at once. A large batch then fits into small memory, but is encoded
            twice; 0 encodes the batch as a whole.
        epochs: passes over the pairs.
        max_steps: most steps; 0: no limit. The learning rate schedule ends with it.
        gain_rate: factor of the learning rate for the learned gains, which start far from their final values; 0 freezes them.
        warmup: fraction of the steps in which the rate rises linearly; it then falls linearly to 0.
    """

    batch_size: int = Field(default=64, ge=1)
    chunk_size: int = Field(default=0, ge=0)
    epochs: int = Field(default=3, ge=1)
    max_steps: int = Field(default=0, ge=0)
    gain_rate: float = Field(default=30.0, ge=0.0)
    warmup: float = Field(default=0.1, ge=0.0, lt=1.0)


class BatchesConfig(StrictModel):
    """The composition of batches, and typos in their queries.

    Attributes:
        topics: number of clusters of a directory's queries, by the teacher's vectors. A batch has one cluster or two
            consecutive ones, so that its documents are hard to tell apart. 0: random pairs.
        typo_rate: fraction of the queries that get a typo in one word, drawn again each epoch.
    """

    topics: int = Field(default=0, ge=0)
    typo_rate: float = Field(default=0.0, ge=0.0, le=1.0)


class TrainConfig(RunConfig):
    """The configuration of a training run of towers.

    Attributes:
        fields: name of a schema preset.
        document_tokens: token limit of a document; 0: the preset's.
        one_field_id: the paper's ablation `us`: every field has the same field embedding.
    """

    fields: str = "glow-default"
    document_tokens: int = Field(default=0, ge=0)
    one_field_id: bool = False
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
