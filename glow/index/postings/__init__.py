"""The lexical index: an inverted index of impacts, by default those of BM25."""

from glow.index.postings.bm25 import Bm25, build_lexical
from glow.index.postings.build import ImpactWriter, pack_codes
from glow.index.postings.component import (
    POSTINGS,
    PostingsOptions,
    PostingsRules,
    document_words,
)
from glow.index.postings.format import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_FILES,
    IMPACTS_FOLDER,
    IMPACTS_HEADER,
    LEARNED_FILES,
    LEARNED_FOLDER,
    STAYING_FILES,
    VALUES_FILE,
    ImpactHeader,
    read_impacts_header,
)
from glow.index.postings.impacts import ImpactIndex, count_terms
from glow.index.postings.joined import JoinedImpacts
from glow.index.postings.lists import Block
from glow.index.postings.merge import merge_impacts
from glow.index.postings.opening import read_counts
from glow.index.postings.posting_list import PostingList
from glow.index.postings.sums import ScoreAccumulator, look_up, look_up_each
from glow.index.postings.view import ImpactsView, SegmentImpacts, StoredImpacts
from glow.index.postings.vocabulary import Vocabulary

__all__ = [
    "CAUSES_FILE",
    "CODES_FILE",
    "IMPACTS_FILES",
    "IMPACTS_FOLDER",
    "IMPACTS_HEADER",
    "LEARNED_FILES",
    "LEARNED_FOLDER",
    "POSTINGS",
    "STAYING_FILES",
    "VALUES_FILE",
    "Block",
    "Bm25",
    "ImpactHeader",
    "ImpactIndex",
    "ImpactWriter",
    "ImpactsView",
    "JoinedImpacts",
    "PostingList",
    "PostingsOptions",
    "PostingsRules",
    "ScoreAccumulator",
    "SegmentImpacts",
    "StoredImpacts",
    "Vocabulary",
    "build_lexical",
    "count_terms",
    "document_words",
    "look_up",
    "look_up_each",
    "merge_impacts",
    "pack_codes",
    "read_counts",
    "read_impacts_header",
]  # fmt: skip
