"""The JSON files of a Hugging Face or sentence-transformers directory: the members that GLOW reads, validated."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from glow.errors import ConfigError
from glow.options import ForeignModel, load_foreign

__all__ = [
    "ForeignPooling",
    "LengthFile",
    "Module",
    "PoolingFile",
    "PromptsFile",
    "TokenizerFile",
    "read_modules",
]

ForeignPooling = Literal["cls", "mean"]
_POOLINGS: dict[str, ForeignPooling] = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
MAX_MODULES, MAX_PATH, MAX_NAME, MAX_PROMPT = 16, 60, 200, 2_000
Name = Annotated[str, Field(max_length=MAX_NAME)]
Prompt = Annotated[str, Field(max_length=MAX_PROMPT)] | None


class Module(ForeignModel):
    """A step of `modules.json`.

    Attributes:
        type: a class of sentence-transformers; only the last part of its name counts, and nothing is imported.
        path: its directory.
    """

    type: Name = ""
    path: str = Field(default="", max_length=MAX_PATH, pattern=r"^[^\x00]*$")

    @property
    def kind(self) -> str:
        """The name of its class."""
        return self.type.rsplit(".", 1)[-1]


_MODULES = TypeAdapter(Annotated[tuple[Module, ...], Field(max_length=MAX_MODULES)])


def read_modules(path: Path) -> tuple[Module, ...]:
    """Reads `modules.json`.

    Raises:
        ConfigError: if it cannot be read, or is not a short list of modules.
    """
    return load_foreign(path, _MODULES.validate_json)


class PoolingFile(ForeignModel):
    """`config.json` of a pooling; old versions have a `pooling_mode_…` for every kind, new ones name the kind."""

    model_config = ConfigDict(extra="allow")

    pooling_mode: Name | Annotated[tuple[Name, ...], Field(max_length=8)] | None = None
    include_prompt: bool | None = None

    def mode(self) -> ForeignPooling:
        """The pooling.

        Raises:
            ConfigError: if towers do not support it.
        """
        asked = [
            name
            for name, value in (self.model_extra or {}).items()
            if name.startswith("pooling_mode_") and value is True
        ]
        named: dict[str, ForeignPooling] = {"cls": "cls", "mean": "mean"}
        found = _POOLINGS.get(asked[0]) if len(asked) == 1 else named.get(str(self.pooling_mode))
        if found is None:
            said = ", ".join(asked)[:MAX_NAME] or self.pooling_mode
            raise ConfigError(f"pooling by {said}: expected the [CLS] token or the mean; --pooling names one")
        if self.include_prompt is False:
            raise ConfigError(
                "towers do not support a pooling without the prompt; give --query-prefix '' --document-prefix ''"
            )
        return found


class LengthFile(ForeignModel):
    """`sentence_bert_config.json`: the longest input in tokens; None or 0: the tokenizer's."""

    max_seq_length: int | None = Field(default=None, ge=0)


class _Piece(ForeignModel):
    content: Name = ""


class TokenizerFile(ForeignModel):
    """`tokenizer_config.json`.

    Attributes:
        model_max_length: in tokens; huge if there is no limit.
        pad_token: the padding token.
        do_lower_case: whether text is lower-cased.
    """

    model_max_length: (
        Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None
    ) = None
    pad_token: Name | _Piece | None = None
    do_lower_case: bool | None = True

    @property
    def pad(self) -> str:
        """The padding token; empty if none is named."""
        return self.pad_token.content if isinstance(self.pad_token, _Piece) else self.pad_token or ""


class _Prompts(ForeignModel):
    query: Prompt = None
    search_query: Prompt = None
    document: Prompt = None
    passage: Prompt = None
    search_document: Prompt = None


class PromptsFile(ForeignModel):
    """`config_sentence_transformers.json`: prefixes of texts that the encoder was trained with."""

    prompts: _Prompts | None = None

    @property
    def query_prefix(self) -> str:
        """Prefix of a query."""
        found = self.prompts or _Prompts()
        return found.query or found.search_query or ""

    @property
    def document_prefix(self) -> str:
        """Prefix of a document."""
        found = self.prompts or _Prompts()
        return found.document or found.passage or found.search_document or ""
