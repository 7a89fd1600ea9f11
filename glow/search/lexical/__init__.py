"""Words: the inverted index of impacts, and BM25 that fills it."""

from glow.search.lexical.bm25 import Bm25, build_lexical
from glow.search.lexical.build import ImpactWriter, pack_codes
from glow.search.lexical.format import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_FILES,
    IMPACTS_FOLDER,
    IMPACTS_HEADER,
    LEARNED_FILES,
    LEARNED_FOLDER,
    MAXIMA_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    ImpactHeader,
    Layout,
    read_impacts_header,
)
from glow.search.lexical.impacts import ImpactIndex
from glow.search.lexical.lists import Block
from glow.search.lexical.packed import PACKED_FROM, pack_lists
from glow.search.lexical.posting_list import PostingList
from glow.search.lexical.postings import Sums, look_up
from glow.search.lexical.vocabulary import Vocabulary

__all__ = [
    "CAUSES_FILE",
    "CODES_FILE",
    "IMPACTS_FILES",
    "IMPACTS_FOLDER",
    "IMPACTS_HEADER",
    "LEARNED_FILES",
    "LEARNED_FOLDER",
    "MAXIMA_FILE",
    "PACKED_FROM",
    "ROWS_FILE",
    "STARTS_FILE",
    "VALUES_FILE",
    "Block",
    "Bm25",
    "ImpactHeader",
    "ImpactIndex",
    "ImpactWriter",
    "Layout",
    "PostingList",
    "Sums",
    "Vocabulary",
    "build_lexical",
    "look_up",
    "pack_codes",
    "pack_lists",
    "read_impacts_header",
]  # fmt: skip
