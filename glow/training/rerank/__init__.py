"""Training of the re-ranker: PreTTR's cross-encoder on what a first search finds."""

from glow.training.rerank.candidates import CandidateBatches, Candidates, read_candidates
from glow.training.rerank.checkpoint import CROSS_FILE, TrainedReranker, load_reranker, save_reranker
from glow.training.rerank.config import RerankConfig
from glow.training.rerank.job import RerankInputs, train_reranker
from glow.training.rerank.measure import RerankScores, measure_reranking, score_candidates

__all__ = [
    "CROSS_FILE", "CandidateBatches", "Candidates", "RerankConfig", "RerankInputs", "RerankScores", "TrainedReranker", "load_reranker",
    "measure_reranking", "read_candidates", "save_reranker", "score_candidates", "train_reranker",
]  # fmt: skip
