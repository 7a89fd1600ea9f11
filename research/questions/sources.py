"""Which packages of Debian 12 the collections are made from, and how each is read."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from research.questions.infos import info_parts
from research.questions.pages import html_parts
from research.questions.part import Part
from research.questions.pods import pod_parts

__all__ = ["FAQS", "HOWTOS", "SOURCES", "Faq", "Howto", "Source", "read_parts"]

_READERS = {".html": html_parts, ".pod": pod_parts, ".pm": pod_parts, ".info.gz": info_parts}
_ALWAYS_OUT = r"(^|/)(genindex\S*|py-modindex|search|changelog|contents|glossary|copyright)$|(^|/)_(modules|sources|static|images)/"


@dataclass(frozen=True)
class Source:
    """One package's documentation.

    Attributes:
        package: name in Debian.
        version: the version that the questions were written for.
        folders: where its pages lie below the unpacked package.
        base: address of the documentation on the web.
        licence: of the texts, as the package's copyright file names it.
        prefix: of its pages, if a collection has several packages.
        leave_out: pattern of pages that are no documents, beside indices and change logs.
    """

    package: str
    version: str
    folders: tuple[str, ...]
    base: str
    licence: str
    prefix: str = ""
    leave_out: str = "$^"


@dataclass(frozen=True)
class Faq:
    """A collection of questions that people wrote.

    Attributes:
        name: of the collection.
        sources: keys of `SOURCES`.
        pages: pattern of the pages that hold the questions.
        own_answers: whether an answer that links to no document is one itself; False for documentation that the default
            model was trained on, heading to section.
        whole_pages: pattern of pages that a link without an anchor may name: a whole manual answers nothing.
    """

    name: str
    sources: tuple[str, ...]
    pages: str
    own_answers: bool = True
    whole_pages: str = ""


@dataclass(frozen=True)
class Howto:
    """A collection of questions that were written for this project, in `howto/<name>.jsonl`."""

    name: str
    sources: tuple[str, ...]


def _sphinx(package: str, version: str, licence: str, base: str, folder: str = "", **options: str) -> Source:
    return Source(package, version, (f"usr/share/doc/{folder or package}/html",), base, licence, **options)


SOURCES = {
    "python": _sphinx(
        "python3.11-doc", "3.11.2-6+deb12u9", "PSF-2.0", "https://docs.python.org/3.11/", "python3.11",
        leave_out=r"^(whatsnew/|about$|bugs$|license$|index$|download$)",
    ),
    "perl": Source(
        "perl-doc", "5.36.0-7+deb12u4", ("usr/share/perl/5.36.0/pod",), "https://perldoc.perl.org/",
        "Artistic or GPL-1+", leave_out=r"^(perltoc|perl5\w*delta|perldelta|perlfaq|perl|perlhist|perlbook|perl\w*policy|perl(cn|jp|ko|tw))$",
    ),
    "perl-modules": Source(
        "perl-modules-5.36", "5.36.0-7+deb12u4", ("usr/share/perl/5.36.0",), "https://perldoc.perl.org/",
        "Artistic or GPL-1+", leave_out=r"FAQ$|^(perl|pod::perl|unicore|Unicode::Collate::|Locale::Maketext::TPJ13)",
    ),
    "perl-binary": Source(
        "libperl5.36", "5.36.0-7+deb12u4", ("usr/lib/x86_64-linux-gnu/perl/5.36.0",), "https://perldoc.perl.org/",
        "Artistic or GPL-1+", leave_out=r"FAQ$|^(Encode::(JP|KR|CN|TW)|perl)",
    ),
    "postgresql": _sphinx(
        "postgresql-doc-15", "15.20-0+deb12u1", "PostgreSQL", "https://www.postgresql.org/docs/15/",
        leave_out=r"^(release|bookindex|index$|biblio|contrib-prog|legalnotice|acronyms|errcodes|features|unsupported)",
    ),
    "git": Source(
        "git-doc", "1:2.39.5-0+deb12u3", ("usr/share/doc/git-doc",), "https://git-scm.com/docs/", "GPL-2",
        leave_out=r"^(RelNotes|index$|technical/|howto-index|git-(archimport|cvs|svn|p4|gui|citool|instaweb))",
    ),
    "debian-faq": Source(
        "debian-faq", "11.1", ("usr/share/doc/debian/FAQ",), "https://www.debian.org/doc/manuals/debian-faq/", "GPL-2+",
        prefix="faq/", leave_out=r"\.(de|fr|it|ja|ko|nl|pt|ru|zh-cn|en)$|index$",
    ),
    "debian-policy": Source(
        "debian-policy", "4.6.2.0", ("usr/share/doc/debian-policy/policy.html",),
        "https://www.debian.org/doc/debian-policy/", "GPL-2+", prefix="policy/", leave_out=r"index$|upgrading",
    ),
    "emacs": Source(
        "emacs-common", "1:28.2+1-15+deb12u4", ("usr/share/info/emacs",), "https://www.gnu.org/software/emacs/manual/html_mono/",
        "efaq.texi's own: free to copy, translate and transform", leave_out="^transient$",
    ),
    "r": Source(
        "r-doc-html", "4.2.2.20221110-2", ("usr/share/R/doc/manual",), "https://cran.r-project.org/doc/manuals/r-release/", "GPL-2",
    ),
    "borg": _sphinx("borgbackup-doc", "1.2.4-1", "BSD-3-clause", "https://borgbackup.readthedocs.io/en/1.2.4/", "borgbackup", leave_out="^(changes|authors|book|man_intro)$"),
    "sqlalchemy": _sphinx("python-sqlalchemy-doc", "1.4.46+ds1-1", "MIT", "https://docs.sqlalchemy.org/en/14/", leave_out="^(changelog/|index$)"),
    "django": _sphinx("python-django-doc", "3:3.2.25-0+deb12u7", "BSD-3-clause", "https://docs.djangoproject.com/en/3.2/", leave_out="^(releases/|internals/|index$)"),
    "celery": _sphinx("python-celery-doc", "5.2.6-5", "CC-BY-SA-4.0", "https://docs.celeryq.dev/en/v5.2.6/", prefix="celery/", leave_out="(^|/)(history|whatsnew\\S*|changelog\\S*|index)$|/internals/"),
    "scrapy": _sphinx("python-scrapy-doc", "2.8.0-2", "BSD-3-clause", "https://docs.scrapy.org/en/2.8/", prefix="scrapy/", leave_out="(^|/)(news|index)$"),
    "mypy": _sphinx("mypy-doc", "1.0.1-1", "MIT", "https://mypy.readthedocs.io/en/v1.0.1/", "mypy", prefix="mypy/", leave_out="(^|/)index$"),
    "sphinx": _sphinx("sphinx-doc", "5.3.0-4", "BSD-2-clause", "https://www.sphinx-doc.org/en/v5.3.0/", prefix="sphinx/", leave_out="(^|/)(changes|index|authors)$"),
}  # fmt: skip

FAQS = (
    Faq("faq-perl", ("perl", "perl-modules", "perl-binary"), r"^perlfaq[1-9]$", own_answers=False, whole_pages="^(?!perl)"),
    Faq("faq-python", ("python",), r"^faq/", own_answers=False),
    Faq("faq-django", ("django",), r"^faq/"),
    Faq("faq-sqlalchemy", ("sqlalchemy",), r"^faq/"),
    Faq("faq-borg", ("borg",), r"^faq$"),
    Faq("faq-tools", ("celery", "scrapy", "mypy", "sphinx"), r"^(celery|scrapy|mypy|sphinx)/faq$"),
    Faq("faq-debian", ("debian-faq", "debian-policy"), r"^faq/"),
    Faq("faq-emacs", ("emacs",), r"^efaq$"),
    Faq("faq-r", ("r",), r"^R-FAQ$"),
    Faq("faq-git", ("git",), r"^gitfaq$", whole_pages="^$"),
)  # fmt: skip

HOWTOS = (
    Howto("howto-python", ("python",)),
    Howto("howto-postgresql", ("postgresql",)),
    Howto("howto-git", ("git",)),
)


def read_parts(source: Source, packages: Path) -> Iterator[Part]:
    """Every part of a package, page by page in the order of names.

    Args:
        source: what to read.
        packages: holds a folder for each package, as `dpkg -x` leaves it.

    Raises:
        SystemExit: a folder is missing; it names the package and how to have it.
    """
    out = re.compile(f"{source.leave_out}|{_ALWAYS_OUT}")
    for folder in (packages / source.package / each for each in source.folders):
        if not folder.is_dir():
            raise SystemExit(
                f"{folder} is not there: apt-get download {source.package}={source.version}; "
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
