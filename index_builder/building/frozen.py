"""Statistics that an index takes over instead of counting its own: those of all shards of a set, so that their scores compare."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from glow.errors import FormatError
from glow.search import STEMS_FOLDER, TERMS_FOLDER
from glow.text import TermTable

__all__ = ["FrozenStatistics"]

LENGTH_FILE = "length.json"


@dataclass(frozen=True, slots=True)
class FrozenStatistics:
    """What idf and lengths of documents are measured by.

    Attributes:
        terms: the index' term table.
        stems: where the idf of stems comes from; `terms` where words are indexed as they are.
        average_length: words of a document that a lexical index counts, > 0.
    """

    terms: TermTable
    stems: TermTable
    average_length: float

    @property
    def hash(self) -> str:
        """Tells different statistics apart."""
        text = f"{self.terms.hash} {self.stems.hash} {self.average_length!r}"
        return hashlib.sha256(text.encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Writes them into a folder."""
        self.terms.save(folder / TERMS_FOLDER)
        if self.stems is not self.terms:
            self.stems.save(folder / STEMS_FOLDER)
        (folder / LENGTH_FILE).write_text(json.dumps(self.average_length), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "FrozenStatistics":
        """Reads what `save` wrote.

        Raises:
            FormatError: if it is missing or damaged.
        """
        terms = TermTable.load(folder / TERMS_FOLDER)
        stems = TermTable.load(folder / STEMS_FOLDER) if (folder / STEMS_FOLDER).is_dir() else terms
        try:
            length = float(json.loads((folder / LENGTH_FILE).read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise FormatError(f"cannot read {LENGTH_FILE} of {folder.name}: {error}; build again") from error
        return cls(terms, stems, length)
