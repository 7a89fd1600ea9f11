"""Arms of the study: re-rankers that differ in one thing, trained alike and scored over the same candidates."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glow.evaluation import evaluate
from glow.index.token_embeddings import StateBits
from glow.nn import CrossEncoder, minilm_folder
from glow.records import Qrel
from glow.training import Given, Place, run
from glow.training.data import read_collection
from glow.training.rerank import (
    Candidates,
    RerankConfig,
    RerankScores,
    Texts,
    load_reranker,
    read_candidates,
    reranker_recipe,
    score_candidates,
)

__all__ = ["ARMS", "Arm", "Study", "judged"]

DEPTH = 50
LENGTHS = {"query_tokens": 20, "document_tokens": 64}
OPTIMIZER = {"batch_size": 8, "learning_rate": 3e-4, "head_rate": 3.0}


class Arm(NamedTuple):
    """One form of the re-ranker.

    Attributes:
        split: layers apart, l.
        late: whether late interaction over layer l's states is in the score.
        joined: whether the joined layers' [CLS] is.
        compressed: stored numbers per token, e; 0: uncompressed.
        source: what the compressor learns Eq. 2 from: `pairs` (unlabelled) or `judged` candidates; empty: nothing.
        bits: precisions of stored numbers that are measured too.
        longer: factor of the steps.
    """

    split: int
    late: bool = False
    joined: bool = True
    compressed: int = 0
    source: str = ""
    bits: tuple[StateBits, ...] = ()
    longer: int = 1


ARMS = {
    **{f"l{split}": Arm(split) for split in range(3)},
    **{f"late{split}": Arm(split, late=True, joined=False) for split in range(3)},
    **{f"both{split}": Arm(split, late=True) for split in range(3)},
    **{f"l{split}:longer": Arm(split, longer=2) for split in range(3)},
    **{f"e{size}": Arm(1, compressed=size, source="pairs") for size in (32, 128)},
    "e64": Arm(1, compressed=64, source="pairs", bits=(16, 8, 4)),
    "e32:judged": Arm(1, compressed=32, source="judged"),
    "e32:chance": Arm(1, compressed=32),
}


def judged(data: Path, run_file: Path, split: str, count: int) -> tuple[Candidates, list[Qrel]]:
    """Draws `count` queries, always the same: candidates of those with a relevant one, and judgments of all."""
    schema = _config("rank", Arm(0), 0, 1, (0,)).field_schema
    found = read_candidates(run_file, read_collection(data, split, schema), DEPTH)
    every = found.collection
    drawn = np.random.default_rng(0).permutation(len(every.queries))[:count].tolist()
    qrels = [
        Qrel(every.query_ids[each], every.documents[row].id, 1)
        for each in drawn
        for row in sorted(every.relevant[each])
    ]
    kept = [each for each in drawn if every.relevant[each] & set(found.rows[each].tolist())]
    texts, ids, relevant = (
        [each[at] for at in kept] for each in (every.queries, every.query_ids, every.relevant)
    )
    part = replace(every, queries=texts, query_ids=ids, relevant=relevant)
    rows, scores = ([each[query] for query in kept] for each in (found.rows, found.scores))
    return Candidates(part, rows, scores), qrels


@dataclass(frozen=True)
class Study:
    """Trains and measures arms.

    Attributes:
        sources: data directories, and TREC runs of their training splits: `judged`, and `pairs` for compressors.
        candidates, qrels: what arms are measured on, of `judged`.
        layers: layers of MiniLM to start from.
        steps, compressor_steps: of every run.
    """

    sources: Mapping[str, tuple[Path, Path]]
    candidates: Candidates
    qrels: Sequence[Qrel]
    layers: tuple[int, ...] = (0, 4, 5)
    steps: int = 1
    compressor_steps: int = 1

    def measure(self, name: str, seed: int) -> Iterator[dict[str, Any]]:
        """Trains one arm; yields a result for full precision, and one for each of its bits."""
        arm, losses = ARMS[name], list[float]()
        with tempfile.TemporaryDirectory() as scratch:
            init, out = minilm_folder(), Path(scratch) / "model"
            if arm.source:
                self._train("compressor", arm, seed, init, out.with_name("compressor"), lambda loss: None)
                init = out.with_name("compressor")
            self._train("rank", arm, seed, init, out, losses.append)
            trained = load_reranker(out)
        texts = Texts(self.candidates.collection, trained.preprocessor)
        pad_id, model = trained.preprocessor.pieces.pad_id, _scored_by(trained.model, arm)
        tenths = [round(float(np.mean(part)), 4) for part in np.array_split(losses, 10) if len(part)]
        for bits in (None, *arm.bits):
            scores = score_candidates(model, texts, self.candidates, pad_id, "bf16", bits)
            about = {"arm": f"{name}:{bits}" if bits else name, "seed": seed, "steps": len(losses)}
            yield about | {"losses": tenths} | self._figures(scores)

    def first(self) -> dict[str, Any]:
        """The result of the first search alone."""
        return {"arm": "first", "seed": 0} | self._figures(
            RerankScores(self.candidates, self.candidates.scores)
        )

    def _train(
        self, name: str, arm: Arm, seed: int, init: Path, out: Path, tell: Callable[[float], None]
    ) -> None:
        steps = self.compressor_steps if name == "compressor" else self.steps * arm.longer
        folder, hits = self.sources[arm.source if name == "compressor" else "judged"]
        given = Given(data=[folder], candidates=[hits], out=out, init=init, device="cpu")
        recipe = reranker_recipe(_config(name, arm, seed, steps, self.layers), given, lambda line: None)
        _scored_by(recipe.model, arm)
        run(recipe, Place(given.run_folder, out, "cpu"), lambda progress: tell(progress.last))

    def _figures(self, scores: RerankScores) -> dict[str, Any]:
        """Means, and each query's nDCG@10 in ten-thousandths."""
        found = evaluate(scores.run(0.0), self.qrels, ["nDCG@10", "RR@10"])
        means = {name: round(mean, 4) for name, mean in found.means.items()}
        return {"means": means, "ndcg": np.rint(found.values["nDCG@10"] * 1e4).astype(int).tolist()}


def _scored_by(model: Any, arm: Arm) -> CrossEncoder:
    """The model, with late interaction as its whole score if the arm has no joined layers."""
    if not arm.joined:
        model.score = model.late_score
    return model  # type: ignore[no-any-return]


def _config(name: str, arm: Arm, seed: int, steps: int, layers: tuple[int, ...]) -> RerankConfig:
    """The configuration of a run: `compressor` learns Eq. 2 from two documents a query, `rank` all else."""
    kind = {"kind": "attention", "negatives": 1} if name == "compressor" else {"kind": "list", "negatives": 3}
    shape = {"init_layers": layers, "split": arm.split, "late": 128 if arm.late else 0, "dropout": 0.0}
    parts = {
        "cross": shape | {"compressed": arm.compressed},
        "objective": kind | {"depth": DEPTH},
        "optimizer": OPTIMIZER | {"max_steps": steps},
    }
    about = {"name": name, "seed": seed, "checkpoint_steps": steps}
    return RerankConfig.model_validate(LENGTHS | about | parts)
