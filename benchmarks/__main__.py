"""`python -m benchmarks [NAME]`: runs one benchmark, or all of them."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict

from benchmarks import (
    backfill,
    catchup,
    dense,
    embed_latency,
    firehose,
    freshness,
    hostile,
    memory_use,
    reading,
    set_hash,
    space_sync,
    verify,
    whole_repo,
)
from benchmarks.result import NotHere, Result
from benchmarks.retrieval import evaluation as retrieval
from benchmarks.retrieval import own
from benchmarks.search_scale_api import run_search_hybrid, run_search_million
from benchmarks.search_scale_recall import run_search_recall
from indexer.pipeline import collect_garbage_seldom
from memory.telemetry import set_up_logging

BENCHMARKS: dict[str, Callable[[], Coroutine[None, None, Result]]] = {
    "verify": verify.run,
    "dense": dense.run,
    "firehose": firehose.run,
    "freshness": freshness.run,
    "embed_latency": embed_latency.run,
    "whole_repo": whole_repo.run,
    "set_hash": set_hash.run,
    "space_sync": space_sync.run,
    "backfill": backfill.run,
    "catchup": catchup.run,
    "hostile": hostile.run,
    "get_record": reading.run_get_record,
    "search_lexical": reading.run_search_lexical,
    "list_page": reading.run_list_page,
    "search_hybrid": run_search_hybrid,
    "search_million": run_search_million,
    "search_recall": run_search_recall,
    "retrieval_obs": retrieval.run_obs,
    "retrieval_turns": retrieval.run_turns,
    "retrieval_xquad": retrieval.run_xquad,
    "retrieval_own": own.run_own,
    "memory": memory_use.run_idle,
    "memory_tracked": memory_use.run_tracked,
    "memory_replay": memory_use.run_replay,
}


def main() -> int:
    """Runs what was asked for; the last line of each is its JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=[*BENCHMARKS, ""], default="", help="which one; without: all")
    name = parser.parse_args().name
    set_up_logging(level=logging.WARNING)
    collect_garbage_seldom()  # as every command that judges frames does
    for chosen in [name] if name else BENCHMARKS:
        try:
            result = asyncio.run(BENCHMARKS[chosen]())
        except NotHere as lack:
            print(f"{chosen} was not run: {lack}", file=sys.stderr)
            if name:
                return 1
            continue
        for line in result.notes:
            print(line, file=sys.stderr)
        figures = {key: value for key, value in asdict(result).items() if key not in ("notes", "beside")}
        print(json.dumps(figures | result.beside), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
