"""`python -m appview`: the read API of the index."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Final

import uvloop

from appview.service import serve
from memory.errors import Misconfigured, Unavailable
from memory.settings import load
from memory.telemetry import set_up_logging

_EXAMPLES: Final = """\
examples:
  python -m appview serve
  curl 'http://127.0.0.1:8600/xrpc/dev.bastienrobert.memory.searchRecords?q=tea'

Then http://127.0.0.1:8600/ searches in a browser, and /docs tells all methods. The database is the one that
DATABASE_URL names, else an embedded one; `python -m indexer` fills it.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code: 0, 2 for what the user can mend, 1 for what is not reachable."""
    parser = argparse.ArgumentParser(
        prog="python -m appview",
        description="Serves the index of memories: search, lists, history and statistics over HTTP.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    serve_parser = commands.add_parser(
        "serve",
        help="answer requests until stopped",
        description="Answers requests until Ctrl-C or SIGTERM; those under way are finished first.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve_parser.add_argument("--host", help="address to listen on (default: APPVIEW_HOST, else 127.0.0.1)")
    serve_parser.add_argument("--port", type=int, help="port to listen on (default: APPVIEW_PORT, else 8600)")
    options = parser.parse_args(arguments)
    set_up_logging()
    try:
        settings = load(os.environ)
        host: str = options.host or settings.appview.host
        port: int = settings.appview.port if options.port is None else options.port
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, host=host, port=port))
    except Misconfigured as mistake:
        print(f"error: {mistake.message}", file=sys.stderr)
        return 2
    except Unavailable as outage:
        print(f"error: {outage.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
