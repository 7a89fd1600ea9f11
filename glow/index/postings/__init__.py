"""Words: the inverted index of impacts, and BM25 that fills it."""

from glow.index.postings.bm25 import Bm25, build_lexical
from glow.index.postings.build import ImpactWriter, pack_codes
from glow.index.postings.format import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_FILES,
    IMPACTS_FOLDER,
    IMPACTS_HEADER,
    LEARNED_FILES,
    LEARNED_FOLDER,
    MAXIMA_FILE,
    PACKED_FILE,
    PLACES_FILE,
    ROWS_FILE,
    STARTS_FILE,
    VALUES_FILE,
    WIDTHS_FILE,
    ImpactHeader,
    Layout,
    read_impacts_header,
)
from glow.index.postings.impacts import ImpactIndex
from glow.index.postings.lists import Block, PlainLists
from glow.index.postings.packed import PACKED_FROM, pack_lists
from glow.index.postings.packing import PackedPostings, pack_postings, packed_sizes, width_of
from glow.index.postings.posting_list import PackedList, PostingList
from glow.index.postings.sums import Sums, look_up
from glow.index.postings.vocabulary import Vocabulary

__all__ = [
    "CAUSES_FILE",
    "CODES_FILE",
    "IMPACTS_FILES",
    "IMPACTS_FOLDER",
    "IMPACTS_HEADER",
    "LEARNED_FILES",
    "LEARNED_FOLDER",
    "MAXIMA_FILE",
    "PACKED_FILE",
    "PACKED_FROM",
    "PLACES_FILE",
    "ROWS_FILE",
    "STARTS_FILE",
    "VALUES_FILE",
    "WIDTHS_FILE",
    "Block",
    "Bm25",
    "ImpactHeader",
    "ImpactIndex",
    "ImpactWriter",
    "Layout",
    "PackedList",
    "PackedPostings",
    "PlainLists",
    "PostingList",
    "Sums",
    "Vocabulary",
    "build_lexical",
    "look_up",
    "pack_codes",
    "pack_lists",
    "pack_postings",
    "packed_sizes",
    "read_impacts_header",
    "width_of",
]
