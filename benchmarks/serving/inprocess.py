"""Upper limit without HTTP: preprocesses, encodes and searches in a loop on two cores."""

import multiprocessing
import os
import threading
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Queue

from glow.artifact import IndexRoot
from glow.index import Index
from glow.index.vectors import VECTORS, SearchParams, set_threads

__all__ = ["Loop", "best_loop"]

WARM_UP = 50


@dataclass(frozen=True, slots=True)
class Loop:
    """One form of the loop: processes x threads, queries per second, and CPU milliseconds per query."""

    processes: int
    threads: int
    per_second: float
    cpu_ms: float


def best_loop(
    root: Path, texts: list[str], cores: list[int], seconds: float, candidates: int
) -> tuple[Loop, list[Loop]]:
    """Compares one process with a thread per core and one process per core.

    Args:
        root: index root; its live version is opened.
        texts: queries; each worker repeats its own part.
        cores: cores of all workers together.
        seconds: duration of each form.
        candidates: candidates of each search.

    Returns:
        The faster form, and all forms.
    """
    forms = {(1, len(cores)), (len(cores), 1)}
    loops = [
        _run(root, texts, cores, (processes, threads), seconds, candidates)
        for processes, threads in sorted(forms)
    ]
    return max(loops, key=lambda loop: loop.per_second), loops


def _run(
    root: Path, texts: list[str], cores: list[int], form: tuple[int, int], seconds: float, candidates: int
) -> Loop:
    """Measures one form."""
    processes, threads = form
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(
            target=_process,
            args=(root, texts[number::processes], cores, threads, seconds, candidates, barrier, results),
        )
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=seconds + 120) for _ in workers]
    for worker in workers:
        worker.join()
    done, cpu_s = sum(row[0] for row in found), sum(row[1] for row in found)
    return Loop(processes, threads, round(done / seconds, 1), round(1e3 * cpu_s / max(done, 1), 3))


def _process(
    root: Path,
    texts: list[str],
    cores: list[int],
    threads: int,
    seconds: float,
    candidates: int,
    barrier: Barrier,
    results: "Queue[tuple[int, float]]",
) -> None:
    os.sched_setaffinity(0, cores)
    versions = IndexRoot(root)
    index = Index.open(versions.folder(versions.current()))
    done = [0] * threads
    parts = [texts[number::threads] for number in range(threads)]
    _loop(index, parts[0][:WARM_UP], candidates, time.perf_counter() + seconds)
    barrier.wait()
    end, before = time.perf_counter() + seconds, time.process_time()

    def work(number: int) -> None:
        set_threads(1)
        done[number] = _loop(index, parts[number], candidates, end, again=True)

    started = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    results.put((sum(done), time.process_time() - before))


def _loop(index: Index, texts: list[str], candidates: int, end: float, again: bool = False) -> int:
    """Searches texts until they or the time run out; returns their number."""
    params, done = SearchParams(), 0
    while again or not done:
        for text in texts:
            if time.perf_counter() >= end:
                return done
            vectors = index.encoder.run([index.preprocessor.query(text)])
            index[VECTORS].search(vectors, candidates, params)
            done += 1
    return done
