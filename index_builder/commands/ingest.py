"""`glow ingest`: applies writes that services accepted."""

import signal
import sys
import threading

import typer

from glow.commands import command, say
from glow_index_builder.ingest import Ingester, IngestOptions, is_claimed
from glow_index_builder.progress import Stages

__all__ = ["ingest_command"]


@command(IngestOptions)
def ingest_command(options: IngestOptions) -> None:
    """Applies writes that services accepted (POST /documents) to the index, until stopped."""
    if options.check:
        if not is_claimed(options.folder):
            say(f"no process applies the log in {options.folder}")
            raise typer.Exit(1)
        return
    ingester = Ingester(options, Stages(sys.stderr), say)
    with ingester.claim():
        if options.once:
            say(f"{ingester.apply_waiting()} operations applied")
            return
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        ingester.run(ended)
