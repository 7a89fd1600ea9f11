"""Training options: small TOML files in `configs/`, checked as a whole before any work."""

from typing import Any, Literal, Self

from pydantic import AliasChoices, Field, model_validator

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
        init: what is taken from the initial encoder: its `layers`, or its `words` alone, under layers drawn at
            random (so the released code does), or `none` of it: a word table drawn at random as well.
        hidden, heads: size of the towers where nothing of the encoder is taken (`none`), with an inner layer four times as
            wide; 0 is the encoder's own.
        init_layers: layers of the initial encoder that become layers 0, 1, …; their number is the depth.
        document_layers: those of the document tower, where it has others; empty: as `init_layers`.
        weight_side, weight_form, gain, pooling_gain, pooling, dropout: as `glow.nn.TowerConfig`.
        train_words: whether the shared word table learns; a frozen one keeps rare words near their
            pre-trained place and spares a third of a step on a CPU.
        learns: which towers learn; the other keeps its weights, and costs nothing where the loss is distillation alone.
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
        """Layers of the query tower and of the document tower."""
        return len(self.init_layers), len(self.document_layers or self.init_layers)

    @property
    def changes(self) -> dict[str, Any]:
        """What of `TowerConfig` a run may choose for towers that exist already."""
        chosen = {"weight_side", "weight_form", "gain", "pooling_gain", "pooling", "dropout"}
        return self.model_dump(include=chosen)

    @property
    def shape(self) -> dict[str, Any]:
        """What of `TowerConfig` is not the initial encoder's."""
        wide = {"hidden": self.hidden, "intermediate": 4 * self.hidden} if self.hidden else {}
        return {**wide, **({"heads": self.heads} if self.heads else {})}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.shape and self.init != "none":
            raise ValueError(
                f"hidden and heads are the initial encoder's where its {self.init} are taken; leave them out"
            )
        if self.init == "none" and not self.train_words:
            raise ValueError("init 'none' draws the word table at random: it must be trained (train_words)")
        return self


class ObjectiveConfig(StrictModel):
    """What is minimised.

    Attributes:
        kind: `bce` (Eq. 10 with NCE sampling, docs/papers.md 1.6), `softmax` over the batch, `pairwise`
            (RankNet's logistic loss of each pair against each negative) or `none` (distillation alone).
        scale, shift: start of the BCE's a and c; learned unless `learn_scale` is false.
        nce_weight: share of the sampled negatives in the BCE loss.
        inverse_temperature: of NCE sampling; 1000 is close to the hardest negative, 10 to a uniform pick.
        query_mask: queries whose cosine is above it are taken as the same question.
        temperature: of softmax and pairwise loss.
        hard_negatives: mined negatives a pair and step, where `--negatives` gives any.
        distill_weight: weight of 1 - cosine to a teacher's vectors, for queries and documents each; 0 is off.
        margin_weight: weight of the squared difference to the teacher's margins cos(q, d+) - cos(q, d-).
        list_weight: weight of the divergence from the teacher's softmax over the batch's documents.
        list_temperature: of both softmaxes there.
        list_cosines: the cosines of that list: the `teacher`'s, or the towers' `own` of the moment, which only make sense with
            the words beside them.
        list_other: whose vectors that list compares the tower that learns with: the `own` other tower's, or the `teacher`'s, so
            that one tower learns alone.
        list_lexical: times what hybrid search adds to a cosine for words (`glow.training.lexical`), in that list; 1 is hybrid
            search, 0 leaves words out.
    """

    kind: Literal["bce", "softmax", "pairwise", "none"] = "softmax"
    scale: float = Field(default=1.0, gt=0.0)
    shift: float = 0.0
    learn_scale: bool = True
    nce_weight: float = Field(default=0.5, ge=0.0, le=1.0)
    inverse_temperature: float = Field(default=1000.0, gt=0.0)
    query_mask: float = Field(default=0.9, gt=0.0, le=1.0)
    temperature: float = Field(default=0.05, gt=0.0)
    hard_negatives: int = Field(default=0, ge=0)
    distill_weight: float = Field(default=0.0, ge=0.0)
    margin_weight: float = Field(default=0.0, ge=0.0)
    list_weight: float = Field(default=0.0, ge=0.0)
    list_temperature: float = Field(default=0.05, gt=0.0)
    list_cosines: Literal["teacher", "own"] = "teacher"
    list_other: Literal["own", "teacher"] = "own"
    list_lexical: float = Field(default=0.0, ge=0.0)

    @property
    def compares(self) -> bool:
        """Whether any part of the loss compares queries with documents that the towers encode."""
        lists = self.list_weight and self.list_other == "own"
        return self.kind != "none" or bool(self.margin_weight or lists)

    @property
    def needs_teacher(self) -> bool:
        """Whether any part of the loss looks at a teacher."""
        return bool(self.distill_weight or self.margin_weight or self.list_weight)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.list_lexical and not self.list_weight:
            raise ValueError("list_lexical belongs to the teacher's list: it needs a list_weight above 0")
        if self.list_cosines == "own" and not self.list_lexical:
            raise ValueError(
                "list_cosines 'own' without list_lexical teaches the towers what they do already"
            )
        alone = self.kind == "none" and not self.margin_weight and not self.list_lexical
        if self.list_other == "teacher" and not (alone and self.list_weight):
            raise ValueError(
                "list_other 'teacher' is for one tower that learns alone: it needs kind 'none' and a list_weight, "
                "without margin_weight and list_lexical"
            )
        if self.kind == "none" and not self.needs_teacher:
            raise ValueError(
                "kind 'none' leaves nothing to minimise; give distill_weight, margin_weight or list_weight"
            )
        return self


class OptimizerConfig(OptimizerOptions):
    """How it is minimised.

    Attributes:
        batch_size: pairs a step and process; negatives come from the process's own batch.
        chunk_size: gradient caching: texts encoded at once, so that a large batch fits into small memory at
            the price of encoding twice; 0 encodes the batch as a whole.
        epochs: passes over the pairs.
        max_steps: stops earlier; 0 is no bound. The learning rate's course ends with it.
        gain_rate: times the learning rate, for the learned gains, which start far from where they end, and for the MLP of the form
            `mlp`; 0 keeps them where they start.
        warmup: share of the steps in which the rate rises linearly; it then falls linearly to 0.
        strength_warmup: share of the steps in which weights rise from 1 to what preprocessing says.
    """

    batch_size: int = Field(default=64, ge=1)
    chunk_size: int = Field(default=0, ge=0)
    epochs: int = Field(default=3, ge=1)
    max_steps: int = Field(default=0, ge=0)
    gain_rate: float = Field(default=30.0, ge=0.0)
    warmup: float = Field(default=0.1, ge=0.0, lt=1.0)
    strength_warmup: float = Field(default=0.0, ge=0.0, lt=1.0)


class BatchesConfig(StrictModel):
    """Which pairs come together, and how their queries are written.

    Attributes:
        topics: clusters of a folder's queries, by the teacher's vectors; a batch is of one cluster or of two that follow each
            other, so that its documents are hard to tell apart. 0: a batch is of pairs drawn at random.
        typo_rate: fraction of the queries that get a typo in one word, drawn anew each epoch (`slips` until 0.3).
    """

    topics: int = Field(default=0, ge=0)
    typo_rate: float = Field(default=0.0, ge=0.0, le=1.0, validation_alias=AliasChoices("typo_rate", "slips"))


class TrainConfig(RunConfig):
    """A run of both towers.

    Attributes:
        fields: a schema preset's name.
        document_tokens: most tokens of a document; 0 keeps the preset's bound.
        one_field_id: the paper's ablation `us`: every field has the same field embedding.
    """

    fields: str = "glow-default"
    document_tokens: int = Field(default=0, ge=0)
    one_field_id: bool = False
    weighting: Weighting = Weighting()
    towers: TowersConfig = TowersConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = Field(
        default=OptimizerConfig(),
        # Files and results of before have the other spelling, and hashes of them are kept.
        validation_alias=AliasChoices("optimizer", "optimiser"),
        serialization_alias="optimiser",
    )
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
                "and distill_weight, margin_weight or list_weight"
            )
        if self.objective.list_other == "teacher" and self.towers.learns == "both":
            raise ValueError("list_other 'teacher' is for one tower: learns must be 'query' or 'document'")
        if self.towers.learns != "both" and self.towers.train_words:
            raise ValueError("the word table belongs to both towers: train_words needs learns 'both'")
        return self

    @property
    def sides(self) -> tuple[Side, ...]:
        """The towers that a step has to run: all, but where one alone is drawn towards its teacher."""
        learns = self.towers.learns
        return ("query", "document") if learns == "both" or self.objective.compares else (learns,)

    @property
    def field_schema(self) -> FieldSchema:
        """The preset, with the run's own bound and field ids."""
        preset = FieldSchema.preset(self.fields)
        changes: dict[str, Any] = {"one_field_id": self.one_field_id}
        if self.document_tokens:
            changes["document_tokens"] = self.document_tokens
        return FieldSchema.model_validate(preset.model_dump() | changes)
