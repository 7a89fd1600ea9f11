"""A distilled query tower as one small file, which rebuilds the model together with the full encoder's weights.

Matrices have 7 bits and a scale per output, as in an exported int8 model, so the rebuilt int8 model is identical.
The file lacks the token embedding matrix, which is the encoder's.
"""

import json
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from glow.errors import ConfigError
from glow.nn import Tower, TwoTowers
from glow.options import StrictModel
from glow.training import with_few_layers
from glow_model_export.quantize import quantize_columns

__all__ = ["QueriesAbout", "read_queries_file", "write_queries_file"]

CODES, SCALES, ABOUT = ".codes", ".scales", "about"
MAX_LAYERS = 128


class QueriesAbout(StrictModel):
    """Identifies the encoder of a query tower.

    Attributes:
        encoder: SHA-256 of the full encoder's weights.
        layers: the encoder layers that the tower started from.
        tokens: longest query.
    """

    encoder: str = Field(pattern="^[0-9a-f]{64}$")
    layers: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1, max_length=MAX_LAYERS)
    tokens: int = Field(ge=2)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads it from a file.

        Raises:
            ConfigError: if the file holds no query tower.
        """
        try:
            with safe_open(str(path), framework="np") as opened:
                return cls.model_validate_json((opened.metadata() or {}).get(ABOUT, ""))
        except (OSError, ValueError, SafetensorError) as error:
            raise ConfigError(
                f"{path} holds no query tower; expected a file of `glow distil --keep-queries`"
            ) from error


def write_queries_file(path: Path, tower: Tower, about: QueriesAbout) -> None:
    """Writes a query tower without its token embedding matrix."""
    tensors: dict[str, np.ndarray] = {}
    for name, value in _own(tower).items():
        array = value.detach().float().numpy()
        if name.endswith(".weight") and ".layers." in f".{name}" and array.ndim == 2:
            codes, scales = quantize_columns(np.ascontiguousarray(array.T))
            tensors |= {name + CODES: np.ascontiguousarray(codes.T), name + SCALES: scales}
        else:
            tensors[name] = array
    part = path.with_name(f"{path.name}.part")
    save_file(tensors, str(part), {ABOUT: json.dumps(about.model_dump(mode="json"))})
    part.replace(path)


def read_queries_file(path: Path, whole: TwoTowers, encoder: str) -> TwoTowers:
    """Builds towers from a query tower file and the full encoder.

    Args:
        path: the file.
        whole: the full encoder.
        encoder: SHA-256 of its weights.

    Raises:
        ConfigError: if the file cannot be read, or belongs to another encoder.
    """
    about, depth = QueriesAbout.read(path), whole.config.layers
    if about.encoder != encoder:
        raise ConfigError(
            f"the query tower {path.name} belongs to an encoder of SHA-256 {about.encoder[:12]}…, found {encoder[:12]}…"
        )
    if about.tokens != whole.schema.query_tokens:
        raise ConfigError(
            f"{path.name} reads queries of {about.tokens} tokens; give --query-tokens {about.tokens}"
        )
    if max(about.layers) >= depth:
        raise ConfigError(f"{path.name} requires layer {max(about.layers)}, the encoder has {depth}")
    towers = with_few_layers(whole, about.layers)
    with safe_open(str(path), framework="np") as opened:
        found = {name: torch.from_numpy(opened.get_tensor(name)) for name in opened.keys()}
    for name in [each for each in found if each.endswith(CODES)]:
        plain, codes = name.removesuffix(CODES), found.pop(name)
        scales = found.pop(plain + SCALES, torch.empty(0))
        found[plain] = codes * scales[:, None] if scales.shape == codes.shape[:1] else scales
    wanted = {name: value.shape for name, value in _own(towers.query).items()}
    if {name: value.shape for name, value in found.items()} != wanted:
        raise ConfigError(f"{path.name} does not hold {len(about.layers)} layers of this encoder's shape")
    if not all(value.isfinite().all() for value in found.values()):
        raise ConfigError(f"{path.name} holds NaN or infinity; expected trained weights")
    towers.query.load_state_dict(found, strict=False)
    return towers


def _own(tower: Tower) -> dict[str, torch.nn.Parameter]:
    return {name: value for name, value in tower.named_parameters() if not name.startswith("words.")}
