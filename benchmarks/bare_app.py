"""`python -m benchmarks.bare_app PORT`: the bare framework, answering every request with the same 700 bytes.

Served as the API is: by the same server, on the same kind of event loop.
"""

from __future__ import annotations

import asyncio
import sys

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

CONSTANT = b'{"uri": "' + b"x" * 690 + b'"}'


async def answer(_request: Request) -> Response:
    """The constant."""
    return Response(CONSTANT, media_type="application/json")


def main(port: int) -> None:
    """Serves until it is stopped."""
    app = Starlette(routes=[Route("/{path:path}", answer)])
    config = uvicorn.Config(app, port=port, lifespan="off", ws="none", access_log=False, log_config=None)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main(int(sys.argv[1]))
