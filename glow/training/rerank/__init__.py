"""Trains the re-ranker: PreTTR's cross-encoder on first-stage hits."""

from glow.training.rerank.candidates import CandidateBatches, Candidates, Texts, read_candidates
from glow.training.rerank.checkpoint import TrainedReranker, load_reranker, save_reranker
from glow.training.rerank.config import RerankConfig
from glow.training.rerank.measure import RerankScores, measure_reranking, read_side, score_candidates
from glow.training.rerank.recipe import reranker_recipe

__all__ = [
    "CandidateBatches", "Candidates", "RerankConfig", "RerankScores", "Texts", "TrainedReranker", "load_reranker", "measure_reranking",
    "read_candidates", "read_side", "reranker_recipe", "save_reranker", "score_candidates",
]  # fmt: skip
