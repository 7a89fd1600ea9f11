"""The Debian 12 packages of the datasets, and how to read each."""

import gzip
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glow.errors import InputError
from research.questions.infos import info_parts
from research.questions.pages import html_parts
from research.questions.part import Part
from research.questions.pods import pod_parts

__all__ = ["COLLECTIONS", "SOURCES", "Collection", "Source", "read_parts"]

_READERS = {".html": html_parts, ".pod": pod_parts, ".pm": pod_parts, ".info.gz": info_parts}
_ALWAYS_OUT = r"(^|/)(genindex\S*|py-modindex|search|changelog|contents|glossary|copyright)$|(^|/)_(modules|sources|static|images)/"


@dataclass(frozen=True)
class Source:
    """One package's documentation.

    Attributes:
        package: name in Debian.
        version: the version that the questions were written for.
        folder: directory of its pages in the unpacked package.
        base: web address of the documentation.
        licence: license of the texts, from the package's copyright file.
        prefix: prefix of its pages, if a dataset has several packages.
        leave_out: pattern of pages to skip, in addition to indices and change logs.
    """

    package: str
    version: str
    folder: str
    base: str
    licence: str
    prefix: str = ""
    leave_out: str = "$^"


@dataclass(frozen=True)
class Collection:
    """A dataset of questions.

    Attributes:
        name: name of the dataset.
        sources: keys of `SOURCES`.
        pages: pattern of the pages with the questions of a FAQ; "": the questions are in `howto/`.
        own_answers: whether an answer without links is a document itself; False for documentation whose headings and
            sections the default model was trained on.
        whole_pages: pattern of pages that a link without an anchor may mean; a whole manual is never relevant.
    """

    name: str
    sources: list[str]
    pages: str = ""
    own_answers: bool = True
    whole_pages: str = ""


_TABLES = tomllib.loads((Path(__file__).parent / "sources.toml").read_text(encoding="utf-8"))
SOURCES = {name: Source(**values) for name, values in _TABLES["source"].items()}
COLLECTIONS = [Collection(**values) for values in _TABLES["collection"]]


def read_parts(source: Source, packages: Path) -> Iterator[Part]:
    """Every part of a package, page by page in name order.

    Args:
        source: the source to read.
        packages: directory of the packages, unpacked with `dpkg -x`.

    Raises:
        InputError: if a directory is missing; the message names the package and how to get it.
    """
    out = re.compile(f"{source.leave_out}|{_ALWAYS_OUT}")
    folder = packages / source.package / source.folder
    if not folder.is_dir():
        raise InputError(
            f"{folder} is missing: apt-get download {source.package}={source.version}; "
            f"dpkg -x {source.package}_*.deb {packages / source.package}"
        )
    for path in sorted(path for path in folder.rglob("*") if path.name.endswith(tuple(_READERS))):
        suffix = next(each for each in _READERS if path.name.endswith(each))
        name = path.relative_to(folder).as_posix().removesuffix(suffix)
        page = name.replace("/", "::") if suffix in (".pod", ".pm") else source.prefix + name
        if out.search(page) or not path.is_file():
            continue
        data = gzip.decompress(path.read_bytes()) if suffix.endswith(".gz") else path.read_bytes()
        for part in _READERS[suffix](data.decode("utf-8", errors="replace"), page):
            part.address = source.base + (f"{name}.html" if suffix == ".html" else page)
            yield part
