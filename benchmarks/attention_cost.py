"""Measures the cost of GLOW's word weights: a batch's time relative to the same towers as plain BERT, at most 3 % more.

`python -m benchmarks.attention_cost [--repeats 40] [--batch 32] [--json FILE]`

Plain BERT here has no weights, rather than weights of 1, and its 1/√d is part of the projection, so it spends no
product on scaling either. Runs are interleaved in changing order, so that other load on the machine slows all forms
equally. The report has the ratio of medians with a bootstrap interval over rounds.
"""

import copy
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.report import emit_json
from glow.nn import TowerConfig, TwoTowers
from glow.nn.attention import WeightedSelfAttention
from glow.nn.towers import Tower
from glow.runtime.encoder import open_session
from glow.schema import FieldSchema
from glow_model_export.graph import INPUTS, export_graph
from glow_model_export.quantize import Quantization, quantize_matrices
from glow_model_export.word_table import share_word_table

Batch = tuple[Tensor, Tensor, Tensor, Tensor]
"""ids, mask, field ids int64 [B, L]; weights float32 [B, L]."""
Times = NDArray[np.float64]
LIMIT = 1.03
FORMS: dict[str, dict[str, str]] = {
    "key": {"weight_side": "key"},
    "row": {"weight_side": "row"},
    "log": {"weight_form": "log"},
}
PLAIN = "plain"
SCHEMA = FieldSchema.preset("glow-default")
QUERY_TOKENS, DOCUMENT_TOKENS = 12, 128
SHORT_MS = 20.0
"""A sample repeats a call until it takes about this long, so that the timer's noise is relatively small."""
WARM_ROUNDS, RESAMPLES = 2, 2000


class PlainAttention(WeightedSelfAttention):
    """BERT's own self-attention with the same matrices."""

    @classmethod
    def of(cls, found: WeightedSelfAttention) -> "PlainAttention":
        """Copies the matrices; 1/√d goes into the queries' part of the projection."""
        hidden = found.output.in_features
        plain = cls(hidden, found.heads, "key", found.dropout)
        plain.load_state_dict(found.state_dict())
        with torch.no_grad():
            for part in (plain.qkv.weight, plain.qkv.bias):
                part[:hidden] *= found.head_size**-0.5
        return plain

    def _inputs(self, x: Tensor, weights: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self._split(q), self._split(k), self._split(v), bias


def main(
    repeats: Annotated[int, typer.Option(min=2, help="Rounds; every form runs once in each.")] = 40,
    batch: Annotated[int, typer.Option(min=2, help="Queries, and documents, of a training step.")] = 32,
    vocabulary: Annotated[int, typer.Option(min=5, help="Rows of the token embedding matrix.")] = 30_522,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the report as well.")
    ] = None,
) -> None:
    """Prints machine and ratios as JSON."""
    forms = towers(vocabulary)
    queries, documents = (
        texts(batch, QUERY_TOKENS, vocabulary, 1),
        texts(batch, DOCUMENT_TOKENS, vocabulary, 6),
    )
    one_query = texts(1, QUERY_TOKENS, vocabulary, 1)
    rows = []
    for precision in ("fp32", "bf16"):
        runs = {name: training_step(pair, queries, documents, precision) for name, pair in forms.items()}
        rows += compared(f"training step, {precision}", runs, repeats)
    for how in ("none", "int8"):
        for name, inputs in (("query", one_query), ("document", documents)):
            sides = {form: getattr(pair, name) for form, pair in forms.items()}
            rows += onnx_rows(name, sides, inputs, how, repeats)
    emit_json({"repeats": repeats, "batch": batch, "limit": LIMIT, "rows": rows}, json_file)


def towers(vocabulary: int) -> dict[str, TwoTowers]:
    """Towers of glow-mini's shape with the same random matrices: plain, and with each form of weights."""
    torch.manual_seed(0)
    shape = TowerConfig(vocabulary=vocabulary, dropout=0.0)
    first = TwoTowers(shape, SCHEMA)
    with torch.no_grad():
        for parameter in first.parameters():
            if parameter.ndim == 1:  # the exporter would merge equal biases and norms
                parameter.add_(torch.randn_like(parameter) * 0.02)
    plain = copy.deepcopy(first)
    for tower in (plain.query, plain.document):
        for layer in tower.layers:
            layer.attention = PlainAttention.of(layer.attention)  # type: ignore[arg-type]  # not typed by its library
    towers_by_name = {PLAIN: plain}
    for name, changes in FORMS.items():
        towers_by_name[name] = TwoTowers(TowerConfig.model_validate(shape.model_dump() | changes), SCHEMA)
        towers_by_name[name].load_state_dict(first.state_dict(), strict=False)
        for parameter_name, parameter in towers_by_name[name].named_parameters():
            if parameter_name.endswith(".gain"):
                nn.init.normal_(parameter, 0.5, 0.1)
    for pair in towers_by_name.values():
        pair.words.weight.requires_grad_(False)
    check_equal(towers_by_name, vocabulary)
    return towers_by_name


def check_equal(forms: Mapping[str, TwoTowers], vocabulary: int) -> None:
    """Checks that every form equals plain BERT if weights are 1, so that only time differs."""
    ids, mask, field_ids, weights = texts(4, 30, vocabulary, 6)
    with torch.no_grad():
        vectors = [pair.document(ids, mask, field_ids, torch.ones_like(weights)) for pair in forms.values()]
    assert all(torch.allclose(vectors[0], other, atol=1e-5) for other in vectors[1:])


def texts(count: int, length: int, vocabulary: int, fields: int) -> Batch:
    """Synthetic texts, the first of full length and the others of at least half of it."""
    random = np.random.default_rng(length)
    lengths = random.integers(length // 2, length + 1, count)
    lengths[0] = length
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    ids = random.integers(4, vocabulary, (count, length)) * mask
    field_ids = np.sort(random.integers(0, min(fields, len(SCHEMA.fields)), (count, length)), axis=1)
    weights = random.lognormal(0.0, 0.5, (count, length)).astype(np.float32)
    ids_, mask_, fields_, weights_ = (torch.from_numpy(array) for array in (ids, mask, field_ids, weights))
    return ids_, mask_, fields_, weights_


def training_step(pair: TwoTowers, queries: Batch, documents: Batch, precision: str) -> Callable[[], object]:
    """Forward and backward pass of both towers with an in-batch softmax; the token embeddings are frozen."""
    pair.train()

    def step() -> None:
        pair.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            vectors = pair.query(*queries), pair.document(*documents)
        cosines = vectors[0].float() @ vectors[1].float().T
        nn.functional.cross_entropy(cosines / 0.05, torch.arange(len(cosines))).backward()  # type: ignore[no-untyped-call]  # not typed by its library

    return step


def onnx_rows(
    name: str, sides: Mapping[str, Tower], batch: Batch, how: Quantization, repeats: int
) -> Iterator[dict[str, Any]]:
    """Rows of one exported tower, on one thread and on two."""
    inputs = {key: tensor.numpy() for key, tensor in zip(INPUTS, batch, strict=True)}
    with tempfile.TemporaryDirectory() as scratch:
        files = {form: export(tower, how, Path(scratch) / form) for form, tower in sides.items()}
        for threads in (1, 2):
            runs = {}
            for form, file in files.items():
                session = open_session(file, threads=threads)
                used = {value.name for value in session.get_inputs()}
                fed = {key: value for key, value in inputs.items() if key in used}
                runs[form] = lambda session=session, fed=fed: session.run(None, fed)
            precision = "fp32" if how == "none" else how
            size = f"{len(batch[0])} × {batch[0].shape[1]} tokens"
            yield from compared(f"{name} tower, {precision}, {threads} threads, {size}", runs, repeats)


def export(tower: Tower, how: Quantization, folder: Path) -> Path:
    """Writes `tower.onnx` with its token embeddings beside it."""
    folder.mkdir()
    graph = quantize_matrices(export_graph(tower.eval()), how)
    share_word_table({"tower.onnx": graph}, folder, int8=how == "int8")
    onnx.save(graph, folder / "tower.onnx")
    return folder / "tower.onnx"


def compared(part: str, runs: Mapping[str, Callable[[], object]], repeats: int) -> list[dict[str, Any]]:
    """One row for each form, compared with plain BERT."""
    times = interleaved(runs, repeats)
    rows = []
    for form in FORMS:
        ratio, low, high = ratio_of_medians(times[form], times[PLAIN])
        plain_ms, form_ms = (round(1e3 * float(np.median(times[key])), 3) for key in (PLAIN, form))
        row = {"part": part, "form": form, "plain_ms": plain_ms, "ms": form_ms, "ratio": round(ratio, 4)}
        rows.append({**row, "low": round(low, 4), "high": round(high, 4), "within": ratio <= LIMIT})
    return rows


def interleaved(runs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Times]:
    """Seconds per call, float64 [repeats] for each run; every round times all runs."""
    names = list(runs)
    start = time.perf_counter()
    for _ in range(WARM_ROUNDS):
        for run in runs.values():
            run()
    once = (time.perf_counter() - start) / (WARM_ROUNDS * len(names))
    calls = max(1, round(SHORT_MS / 1e3 / once))
    times = {name: np.empty(repeats) for name in names}
    for number in range(repeats):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            times[name][number] = seconds(runs[name], calls)
    return times


def seconds(run: Callable[[], object], calls: int) -> float:
    """Mean time of several calls."""
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def ratio_of_medians(
    times: Sequence[float] | Times, base: Sequence[float] | Times
) -> tuple[float, float, float]:
    """The ratio, and its 2.5 % and 97.5 % quantiles over rounds drawn with replacement."""
    above, below = np.asarray(times), np.asarray(base)
    rounds = np.random.default_rng(0).integers(len(above), size=(RESAMPLES, len(above)))
    drawn = np.median(above[rounds], axis=1) / np.median(below[rounds], axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return float(np.median(above) / np.median(below)), low, high


if __name__ == "__main__":
    typer.run(main)
