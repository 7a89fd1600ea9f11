"""All text processing: words, subword tokens, term statistics, BM25 and BM25F, preprocessing."""

from glow.text.analyzer import (
    DEFAULT_ANALYZER,
    STOP_WORDS,
    Analyzer,
    AnalyzerName,
    CorpusCounter,
    check_analyzer,
    is_indexed,
    is_lexical,
    lexical_words,
    misspell,
    misspell_in,
    searched_words,
)
from glow.text.highlight import Fragment, Highlighter, Highlighting, markup
from glow.text.lexical_fields import WEAK_FREQUENCY, LexicalFields
from glow.text.passages import LongDocuments, PassageCutter, PassageOptions, body_text, passage_document
from glow.text.preprocessor import (
    PREPROCESSOR_VERSION,
    Preprocessor,
    WeightedTokens,
    batches_by_length,
    field_words,
    lexical_tokens,
    load_pieces,
    load_preprocessor,
    pad,
    save_preprocessor,
)
from glow.text.spans import WordSpans
from glow.text.terms import QUERY, TermCounter, TermStats, TermTable, select_terms
from glow.text.tokenizer import TOKENIZER_FILE, TokenizerPieces
from glow.text.weighting import Weighting, WordWeigher, bm25_weight, idf_lucene, idf_of_words
from glow.text.words import VOCABULARY_FILE, WordPieces, is_punctuation

__all__ = [
    "DEFAULT_ANALYZER", "PREPROCESSOR_VERSION", "QUERY", "STOP_WORDS", "TOKENIZER_FILE", "VOCABULARY_FILE", "WEAK_FREQUENCY", "Analyzer",
    "AnalyzerName", "CorpusCounter", "Fragment", "Highlighter", "Highlighting", "LexicalFields", "LongDocuments", "PassageCutter",
    "PassageOptions", "Preprocessor", "TermCounter", "TermStats", "TermTable", "TokenizerPieces", "WeightedTokens",
    "Weighting", "WordPieces", "WordSpans", "WordWeigher", "batches_by_length", "bm25_weight",
    "body_text", "check_analyzer", "field_words", "idf_lucene", "idf_of_words", "is_indexed", "is_lexical", "is_punctuation",
    "lexical_tokens", "lexical_words", "load_pieces", "load_preprocessor", "markup", "misspell", "misspell_in", "pad",
    "passage_document", "save_preprocessor", "searched_words", "select_terms",
]  # fmt: skip
