"""The lexical index: an inverted index of impacts, by default those of BM25."""

from glow.index.postings.build import Bm25, ImpactWriter, build_lexical, merge_impacts, pack_codes
from glow.index.postings.component import POSTINGS, PostingsOptions, PostingsRules, document_words
from glow.index.postings.impacts import (
    ImpactIndex,
    ImpactsView,
    SegmentedImpacts,
    SegmentImpacts,
    StoredImpacts,
    count_terms,
    lexical_maxima,
)
from glow.index.postings.lists import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_FILES,
    IMPACTS_FOLDER,
    IMPACTS_HEADER,
    LEARNED_FILES,
    LEARNED_FOLDER,
    STAYING_FILES,
    VALUES_FILE,
    Block,
    ImpactHeader,
    PostingList,
    Vocabulary,
    read_counts,
    read_impacts_header,
)

__all__ = [
    "CAUSES_FILE", "CODES_FILE", "IMPACTS_FILES", "IMPACTS_FOLDER", "IMPACTS_HEADER", "LEARNED_FILES",
    "LEARNED_FOLDER", "POSTINGS", "STAYING_FILES", "VALUES_FILE", "Block", "Bm25", "ImpactHeader",
    "ImpactIndex", "ImpactWriter", "ImpactsView", "PostingList", "PostingsOptions", "PostingsRules",
    "SegmentImpacts", "SegmentedImpacts", "StoredImpacts", "Vocabulary", "build_lexical", "count_terms",
    "document_words", "lexical_maxima", "merge_impacts", "pack_codes", "read_counts", "read_impacts_header",
]  # fmt: skip
