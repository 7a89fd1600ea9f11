"""Where docs.python.org documents an object."""

from __future__ import annotations

import builtins

from glow_demo.entries import Entry

_BASE = "https://docs.python.org/3/library"

# Submodules that the library reference documents, by the page that does. A submodule that is not here is an
# internal part whose public names are documented under its package (`asyncio.runners.run` is `asyncio.run`).
SUBMODULE_PAGES: dict[str, str] = {
    name: page
    for page, names in {
        "collections.abc": "collections.abc",
        "concurrent.futures": "concurrent.futures",
        "ctypes": "ctypes.util ctypes.wintypes",
        "curses": "curses.textpad",
        "curses.ascii": "curses.ascii",
        "curses.panel": "curses.panel",
        "dbm": "dbm.dumb dbm.gnu dbm.ndbm dbm.sqlite3",
        "dialog": "tkinter.commondialog tkinter.filedialog tkinter.simpledialog",
        "email.charset": "email.charset",
        "email.contentmanager": "email.contentmanager",
        "email.encoders": "email.encoders",
        "email.errors": "email.errors",
        "email.generator": "email.generator",
        "email.header": "email.header",
        "email.headerregistry": "email.headerregistry",
        "email.iterators": "email.iterators",
        "email.message": "email.message",
        "email.mime": "email.mime email.mime.application email.mime.audio email.mime.base email.mime.image"
        " email.mime.message email.mime.multipart email.mime.nonmultipart email.mime.text",
        "email.parser": "email.parser",
        "email.policy": "email.policy",
        "email.utils": "email.utils",
        "html.entities": "html.entities",
        "html.parser": "html.parser",
        "http.client": "http.client",
        "http.cookiejar": "http.cookiejar",
        "http.cookies": "http.cookies",
        "http.server": "http.server",
        "importlib": "importlib.abc importlib.machinery importlib.util",
        "importlib.metadata": "importlib.metadata",
        "importlib.resources": "importlib.resources",
        "importlib.resources.abc": "importlib.resources.abc",
        "json": "json.tool",
        "logging.config": "logging.config",
        "logging.handlers": "logging.handlers",
        "multiprocessing": "multiprocessing.connection multiprocessing.dummy multiprocessing.managers"
        " multiprocessing.pool multiprocessing.sharedctypes",
        "multiprocessing.shared_memory": "multiprocessing.shared_memory",
        "os.path": "os.path",
        "pyexpat": "xml.parsers xml.parsers.expat",
        "tkinter": "tkinter.constants",
        "tkinter.colorchooser": "tkinter.colorchooser",
        "tkinter.dnd": "tkinter.dnd",
        "tkinter.font": "tkinter.font",
        "tkinter.messagebox": "tkinter.messagebox",
        "tkinter.scrolledtext": "tkinter.scrolledtext",
        "tkinter.ttk": "tkinter.ttk",
        "unittest.mock": "unittest.mock",
        "urllib.error": "urllib.error",
        "urllib.parse": "urllib.parse",
        "urllib.request": "urllib.request urllib.response",
        "urllib.robotparser": "urllib.robotparser",
        "wsgiref": "wsgiref.handlers wsgiref.headers wsgiref.simple_server wsgiref.types wsgiref.util"
        " wsgiref.validate",
        "xml.dom": "xml.dom",
        "xml.dom.minidom": "xml.dom.minidom",
        "xml.dom.pulldom": "xml.dom.pulldom",
        "xml.etree.elementtree": "xml.etree xml.etree.ElementInclude xml.etree.ElementTree",
        "xml.sax": "xml.sax",
        "xml.sax.handler": "xml.sax.handler",
        "xml.sax.reader": "xml.sax.xmlreader",
        "xml.sax.utils": "xml.sax.saxutils",
        "xmlrpc.client": "xmlrpc.client",
        "xmlrpc.server": "xmlrpc.server",
    }.items()
    for name in names.split()
}

_MODULE_PAGES = {"cProfile": "profile", "pstats": "profile"}

# asyncio's reference is divided by topic, and so is its source.
_ASYNCIO_PAGES = {
    "exceptions": "asyncio-exceptions",
    "futures": "asyncio-future",
    "locks": "asyncio-sync",
    "protocols": "asyncio-protocol",
    "queues": "asyncio-queue",
    "runners": "asyncio-runner",
    "streams": "asyncio-stream",
    "subprocess": "asyncio-subprocess",
    "taskgroups": "asyncio-task",
    "tasks": "asyncio-task",
    "threads": "asyncio-task",
    "timeouts": "asyncio-task",
    "transports": "asyncio-protocol",
}

_TYPE_PAGE_ROOTS = frozenset(
    "bool bytearray bytes complex dict float frozenset int list memoryview range set str tuple".split()
)
_TYPES_ON_FUNCTION_PAGE = frozenset("bool complex float int".split())


def address_of(entry: Entry) -> str:
    """The page and anchor that document an object.

    Args:
        entry: The object.

    Returns:
        An https address. The page exists for every documented module; a few undocumented names have no
        anchor on it, and the browser then shows the page's top.
    """
    anchor = f"module-{entry.title}" if entry.kind == "module" else entry.title
    return f"{_BASE}/{_page_of(entry)}.html#{anchor}"


def _page_of(entry: Entry) -> str:
    if entry.kind == "module":
        return SUBMODULE_PAGES.get(entry.title) or _MODULE_PAGES.get(entry.title, entry.title)
    if entry.module == "builtins":
        return _builtin_page(entry)
    if entry.module == "asyncio":
        return _asyncio_page(entry)
    return SUBMODULE_PAGES.get(entry.module) or _MODULE_PAGES.get(entry.module, entry.module)


def _builtin_page(entry: Entry) -> str:
    root = entry.title.partition(".")[0]
    cls = getattr(builtins, root, None)
    if isinstance(cls, type) and issubclass(cls, BaseException):
        return "exceptions"
    if root in _TYPE_PAGE_ROOTS and entry.title not in _TYPES_ON_FUNCTION_PAGE:
        return "stdtypes"
    return "functions"


def _asyncio_page(entry: Entry) -> str:
    part = entry.origin.split(".")[1]
    if entry.origin.startswith("_asyncio."):  # the C twins of futures and tasks
        part = {"Future": "futures", "Task": "tasks"}.get(part, "events")
    return _ASYNCIO_PAGES.get(part, "asyncio-eventloop")
