"""The common layer of all commands: options, errors and exit codes, and progress. Packages define the commands.

The options of a command are one frozen model, from which flags and documentation are made. A field `max_rejects`
becomes the flag `--max-rejects`, unless `option` sets another. A model may also be read from environment variables, as
the service's settings are.

Exit codes are those of the error types (`GlowError.exit_code`, docs/reference/errors.md): 0 done; 1 a bug; 2 wrong
options or input; 3 a model or index is missing, damaged or does not fit; 4 the work failed; 5 a device or an optional
package is not there; 6 the gate refused the version; 130 and 143 interrupted.
"""

import inspect
import json as json_text
import os
import re
import signal
import sys
import time
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TextIO, TypeVar, get_args, get_origin

import annotated_types
import typer
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from glow.errors import ConfigError, GateError, GlowError, InputError
from glow.options import StrictModel
from glow.options import option as option  # for those who import it from here

O = TypeVar("O", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option of a command, or one setting of the service."""

    name: str  # field of the model
    flag: str  # a boolean that is on by default also has `--no-…`; "" for an argument
    env: str  # environment variable; "" for none
    default: Any  # typed value; None if the option is required or has no default
    unit: str
    help: str  # one sentence
    annotation: Any  # the value's type
    metavar: str  # placeholder of the value in the help; "" for its type
    is_required: bool
    low: float | None  # bounds of a number
    high: float | None

    @property
    def is_list(self) -> bool:
        return get_origin(self.annotation) is tuple


def rows_of(model: type[BaseModel], env_prefix: str = "") -> tuple[OptionRow, ...]:
    """All options of a model, made by `option`: its own in their order, then those of the models that it extends."""
    names = dict.fromkeys(name for kind in model.__mro__ for name in getattr(kind, "__annotations__", {}))
    fields = model.model_fields
    return tuple(_row(name, fields[name], env_prefix) for name in names if name in fields)


def _row(name: str, field: FieldInfo, env_prefix: str) -> OptionRow:
    more: dict[str, Any] = dict(extra) if isinstance(extra := field.json_schema_extra, dict) else {}
    bounds = {type(item): item for item in field.metadata}
    low, high = bounds.get(annotated_types.Ge), bounds.get(annotated_types.Le)
    flag = "" if more.get("is_argument") else more.get("flag") or "--" + name.replace("_", "-")
    return OptionRow(
        name=name,
        flag=flag,
        env=env_prefix + name.upper() if env_prefix else more.get("env", ""),
        default=None if field.is_required() else field.get_default(call_default_factory=True),
        unit=more.get("unit", ""),
        help=str(field.description),
        annotation=field.annotation,
        metavar=more.get("metavar", ""),
        is_required=field.is_required(),
        low=None if low is None else low.ge,
        high=None if high is None else high.le,
    )


def _parameter(row: OptionRow) -> inspect.Parameter:
    kind, default = _for_shell(row)
    metavar = row.metavar or ("DIR" if row.name.endswith("root") else None)
    more: dict[str, Any] = {"help": _help(row), "metavar": metavar}
    if row.default is None or row.default in ({}, ()):
        more["show_default"] = False
    env = row.env or None
    if env and row.is_list:
        # Typer would split the variable at spaces, which paths may contain; the command's `default_map` keeps it whole.
        more["help"], env = f"{more['help']} [env var: {env}]", None
    if row.flag:
        is_pair = kind == bool | None or (kind is bool and bool(row.default or row.env))
        pair = f"{row.flag}/--no-{row.flag[2:]}" if is_pair else row.flag
        marker = typer.Option(pair, envvar=env, **more)
    else:
        marker = typer.Argument(**more)
    value = inspect.Parameter.empty if row.is_required else default
    return _keyword(row.name, Annotated[kind, marker], value)


def _keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _help(row: OptionRow) -> str:
    """The help text. The model checks bounds and reports all errors; typer would stop at the first."""
    low = "" if row.low is None else f"{row.low:g}<="
    high = "" if row.high is None else f"<={row.high:g}"
    more = "; ".join(filter(None, (row.unit, f"{low}x{high}" if low or high else "")))
    return f"{row.help} [{more}]" if more else row.help


def _for_shell(row: OptionRow) -> tuple[Any, Any]:
    """Type and default in a form that typer supports."""
    kind, default = row.annotation, row.default
    if isinstance(default, SecretStr):
        return str, default.get_secret_value()
    kinds = get_args(kind) if get_origin(kind) in (typing.Union, UnionType) else (kind,)
    if len(kinds) > 1 and all(get_origin(item) is Literal for item in kinds):
        return Literal[tuple(value for item in kinds for value in get_args(item))], default
    inner = [item for item in kinds if item is not type(None)]
    if len(inner) == 1 and (get_origin(inner[0]) or inner[0]) in (Mapping, tuple, list):
        item = str if get_origin(inner[0]) is Mapping else get_args(inner[0])[0]
        values = None if not default else list(default)
        return list[item] if row.is_required else list[item] | None, values  # type: ignore[valid-type]
    return kind, default


def read_options(model: type[O], values: dict[str, Any]) -> O:
    """Makes options from the values of a command line; a refusal lists all invalid values."""
    try:
        return model.model_validate({name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        raise ConfigError(describe_faults(error, rows_of(model))) from error


def describe_faults(error: ValidationError, rows: tuple[OptionRow, ...]) -> str:
    """Describes validation errors for the command line: flag, variable, expected and found value."""
    names = {row.name: row.flag or row.metavar or row.name.upper() for row in rows}
    names |= {row.name: f"{names[row.name]} ({row.env})" for row in rows if row.env}
    messages = []
    for fault in error.errors(include_url=False):
        message = str(fault["msg"]).removeprefix("Value error, ")
        if fault["loc"] and fault["type"] != "missing":
            message += f", found {fault['input']!r:.80}"
        name = names.get(str(fault["loc"][0])) if fault["loc"] else None
        messages.append(f"{name}: {message}" if name else message)
    return "; ".join(messages)


def plain(value: Any) -> str:
    """A value in the form of an environment variable."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def with_parameters(
    function: Callable[..., None], rows: tuple[OptionRow, ...], **more: Any
) -> Callable[..., None]:
    """Gives a function of keyword arguments the signature from which typer makes flags.

    `more` holds name -> annotation of optional parameters without a row.
    """
    parameters = [*(_keyword(name, kind) for name, kind in more.items()), *map(_parameter, rows)]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


class JsonOptions(StrictModel):
    """Options of commands that can write a JSON report."""

    json_file: Path | None = option(
        None, "Write the report to this file; - is standard output.", flag="--json", metavar="FILE"
    )


class IndexRootOptions(StrictModel):
    """Options of commands on the versions of one index."""

    index_root: Path = option(
        ..., "Directory of all versions of an index.", metavar="DIR", env="GLOW_INDEX_ROOT"
    )


def command(model: type[O]) -> Callable[[Callable[[O], None]], Callable[..., None]]:
    """Makes a typer command of a function of options: the model gives the flags, `reporting` handles errors."""

    def decorate(work: Callable[[O], None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            with reporting(values.get("json_file")):
                work(read_options(model, values))

        run.__name__, run.__doc__, run.__module__ = work.__name__, work.__doc__, work.__module__
        return with_parameters(run, rows_of(model))

    return decorate


def package_app(commands: dict[str, Callable[..., None]], text: str) -> typer.Typer:
    """A command line of its own, of name -> command; `text` is the first line of its help."""
    application = typer.Typer(
        help=text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        # Plain tracebacks: rich ones would print local variables, which may hold whole corpora.
        pretty_exceptions_enable=False,
    )
    for name, function in commands.items():
        application.command(name)(function)
    return application


STDOUT = Path("-")
SIGNALLED = 128
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tabs and line feeds, marks of text direction, and lone surrogates."""
_IS_REPORT_ALONE = ContextVar("is_report_alone", default=False)
"""Whether standard output takes a JSON report, so that results for people go to stderr."""


@contextmanager
def reporting(json: Path | None = None) -> Iterator[None]:
    """Ends a failed command with one line on stderr and its exit code; `json` also receives the report of a failure."""
    token = _IS_REPORT_ALONE.set(json == STDOUT)
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    before = _handle(signal.SIGTERM, stop)
    try:
        if json and json != STDOUT and not json.parent.is_dir():
            raise ConfigError(f"cannot write --json {json}: there is no folder {json.parent}")
        yield
    except KeyboardInterrupt:
        fail("interrupted; nothing unfinished was left behind", SIGNALLED + (received or [signal.SIGINT])[0])
    except GlowError as error:
        figures = error.figures if isinstance(error, GateError) else {}
        with suppress(GlowError, OSError):  # the line below is still printed
            write_report(json, {"status": "failed", "code": error.code, "error": str(error), **figures})
        fail(f"error ({error.code}): {error}", error.exit_code)
    finally:
        _handle(signal.SIGTERM, before)
        _IS_REPORT_ALONE.reset(token)


def _handle(number: int, handler: Any) -> Any:
    """Sets a signal's handler if this is the main thread; tests run commands in other threads."""
    try:
        return signal.signal(number, handler)
    except ValueError:
        return None


def fail(message: str, code: int) -> NoReturn:
    """Prints an error on one line of stderr, and exits."""
    sys.stderr.write(f"glow: {shown(' '.join(message.split()))}\n")
    raise typer.Exit(code)


def say(message: str) -> None:
    """Prints a result on stdout, or on stderr if a JSON report has stdout."""
    out = sys.stderr if _IS_REPORT_ALONE.get() else sys.stdout
    out.write(shown(message) + "\n")


def counted(count: int, noun: str) -> str:
    """A number of things: "1 document", "2,000 documents"."""
    return f"{count:,} {noun if count == 1 else noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"


def shown(text: str) -> str:
    """Escapes control characters, which file names or keys may contain and a terminal would obey.

    The escapes are JSON's, so that a JSON report stays valid.
    """
    return _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def write_report(path: Path | None, values: Mapping[str, Any]) -> None:
    """Writes a report as indented JSON, if one was requested; `-` is standard output."""
    if path is not None:
        write_text(path, json_text.dumps(values, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text to a file; `-` is standard output."""
    if path == STDOUT:
        sys.stdout.write(shown(text))
        return
    try:
        # File names that are not UTF-8 cause lone surrogates; the escapes are valid JSON.
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def all_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if TYPE_CHECKING:
    from rich.progress import Progress

PLAIN_INTERVAL_S = 10.0
Advance = Callable[[int], None]
"""Called with the amount done since the last call."""
Show = Callable[[int, int], None]
"""Called with the amount done so far, and the total."""


@contextmanager
def progress(out: TextIO, name: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
    """Shows the progress of a task, as a bar on a terminal or as lines in a log.

    Yields a function to call with the amount done since the last call.
    """
    if out.isatty():
        with _bars(out, "{task.description:<8}", "{task.fields[rate]}", is_transient=False) as bars:
            task = bars.add_task(name, total=total, rate="")
            yield lambda amount: bars.update(task, advance=amount, rate=f"{bars.tasks[0].speed or 0:,.0f}/s")
            completed = max(bars.tasks[0].completed, 1)
            bars.update(task, total=completed, completed=completed)
        return
    start = last_line = time.monotonic()
    done = 0

    def advance(amount: int) -> None:
        nonlocal done, last_line
        done += amount
        if (now := time.monotonic()) - last_line >= PLAIN_INTERVAL_S:
            last_line, took = now, max(now - start, 1e-3)
            left = f", {took * (total / done - 1):,.0f} s left" if total and done else ""
            of = f"{total:,}" if total else "?"
            write_line(out, f"{name}: {done:,} of {of} {unit}, {done / took:,.0f}/s{left}")

    yield advance
    took = max(time.monotonic() - start, 1e-3)
    write_line(out, f"{name}: {f'{done:,} {unit} at {done / took:,.0f}/s in ' if done else ''}{took:.1f} s")


@contextmanager
def shown_progress(out: TextIO) -> Iterator[Callable[[str], Show]]:
    """Yields a function that adds a named task, for tasks that learn their total while they run."""
    with _bars(out, "{task.description}", is_transient=True) as bars:

        def show(name: str) -> Show:
            task = bars.add_task(name, total=None)
            last_line = time.monotonic()

            def tell(done: int, total: int) -> None:
                nonlocal last_line
                bars.update(task, completed=done, total=total)
                if not out.isatty() and time.monotonic() - last_line >= PLAIN_INTERVAL_S:
                    last_line = time.monotonic()
                    write_line(out, f"{name}: {done:,} of {total:,}")

            return tell

        yield show


def _bars(out: TextIO, name: str, *more: str, is_transient: bool) -> "Progress":
    # rich takes 50 ms to import, which commands without bars save.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(name), BarColumn(), TaskProgressColumn(), *map(TextColumn, more), TimeRemainingColumn(),
    )  # fmt: skip
    return Progress(*columns, console=Console(file=out), transient=is_transient, disable=not out.isatty())


def write_line(out: TextIO, line: str) -> None:
    """Writes a line and flushes it."""
    out.write(line + "\n")
    out.flush()
