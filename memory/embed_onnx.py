"""A model in a local folder: `model.onnx` and `tokenizer.json`, as sentence embedding models are exported.

Its packages are an extra (`onnx`), imported only when a folder is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from memory.embed_thread import EmbeddingThread
from memory.embedding import MAX_DIMENSIONS, Vector, clean_query, clean_text, unit_vector
from memory.errors import Misconfigured

MAX_TOKENS: Final = 512

Pooling: TypeAlias = Literal["mean", "cls"]

_AT_ONCE: Final = 8
_SETTING: Final = "EMBEDDING_ONNX_DIR"
_POOLED_OUTPUT: Final = "sentence_embedding"
_INTEGERS: Final = {"tensor(int64)": "int64", "tensor(int32)": "int32"}


@dataclass(frozen=True, slots=True)
class OnnxFolder:
    """A model and how it is used. A prefix is put before each text, with a space between."""

    path: Path
    model: str
    pooling: Pooling = "mean"  # where the model does not pool by itself
    query_prefix: str = ""
    passage_prefix: str = ""
    threads: int = 1


class OnnxEmbedder:
    """A loaded folder."""

    def __init__(self, folder: OnnxFolder, network: OnnxNetwork, thread: EmbeddingThread, dimensions: int) -> None:
        self._folder = folder
        self._network = network
        self._thread = thread
        self._dimensions = dimensions

    @property
    def model(self) -> str:
        """The name that was set, or the folder's."""
        return self._folder.model

    @property
    def dimensions(self) -> int:
        """How long its vectors are."""
        return self._dimensions

    @property
    def leaves_machine(self) -> bool:
        """Texts stay in this process."""
        return False

    async def embed_query(self, text: str) -> Vector:
        """The vector of what is asked."""
        (vector,) = await self._embed([clean_query(text)], self._folder.query_prefix)
        return vector

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of texts that are searched, in their order; of each, the first 512 tokens count."""
        return await self._embed(texts, self._folder.passage_prefix)

    async def aclose(self) -> None:
        """End, without what still waits."""
        await self._thread.aclose()

    async def _embed(self, texts: Sequence[str], prefix: str) -> list[Vector]:
        cleaned = [clean_text(f"{prefix} {text}" if prefix else text) for text in texts]
        vectors: list[Vector] = []
        for first in range(0, len(cleaned), _AT_ONCE):
            vectors += await self._thread.call(self._network.vectors, cleaned[first : first + _AT_ONCE])
        return vectors


class OnnxNetwork:
    """Tokenizer and network; all of it is to be called from one thread. Raises Misconfigured for what does not fit."""

    def __init__(self, folder: OnnxFolder) -> None:
        runtime, tokenizers = _packages()
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(folder.path / "tokenizer.json"))
        except Exception as failure:  # noqa: BLE001  the package raises that very class
            raise _unusable("tokenizer.json", failure) from None
        self._tokenizer.enable_truncation(MAX_TOKENS)
        if self._tokenizer.padding is None:
            self._tokenizer.enable_padding()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = folder.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what it prints may quote what it was given
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session: Any = runtime.InferenceSession(
                str(folder.path / "model.onnx"), options, providers=["CPUExecutionProvider"]
            )
        except Exception as failure:  # noqa: BLE001  its classes have no other in common
            raise _unusable("model.onnx", failure) from None
        self._pooling: Pooling = folder.pooling
        self._types = {given.name: _INTEGERS.get(given.type) for given in self._session.get_inputs()}
        outputs = [output.name for output in self._session.get_outputs()]
        self._output = _POOLED_OUTPUT if _POOLED_OUTPUT in outputs else outputs[0]

    def vectors(self, texts: Sequence[str]) -> list[Vector]:
        """A vector for each text, at unit length."""
        encoded = self._tokenizer.encode_batch(list(texts))
        mask = [item.attention_mask for item in encoded]
        given = {
            "input_ids": [item.ids for item in encoded],
            "attention_mask": mask,
            "token_type_ids": [item.type_ids for item in encoded],
            "position_ids": [list(range(len(row))) for row in mask],
        }
        try:
            (states,) = self._session.run([self._output], self._inputs(given))
            rows = cast("list[list[float]]", _pool(states, mask, self._pooling).tolist())
            return [unit_vector(row) for row in rows]
        except Misconfigured:
            raise
        except Exception as failure:  # noqa: BLE001  its classes have no other in common
            raise _unusable("model.onnx", failure) from None

    def _inputs(self, given: dict[str, list[list[int]]]) -> dict[str, Any]:
        import numpy as np  # noqa: PLC0415  comes with the extra's packages

        unknown = [name for name, kind in self._types.items() if name not in given or kind is None]
        if unknown:
            raise Misconfigured(f"The model in {_SETTING} wants an input that texts do not have.", setting=_SETTING)
        return {name: np.asarray(given[name], dtype=kind) for name, kind in self._types.items()}


async def open_onnx(folder: OnnxFolder) -> OnnxEmbedder:
    """The model, loaded and tried. Raises Misconfigured if the extra is not installed or a file cannot be used."""
    thread = EmbeddingThread()
    try:
        network = await thread.call(OnnxNetwork, folder)
        (tried,) = await thread.call(network.vectors, ["memory"])
    except BaseException:
        await thread.aclose()
        raise
    if len(tried) > MAX_DIMENSIONS:
        await thread.aclose()
        raise Misconfigured(
            f"The model in {_SETTING} has {len(tried)} dimensions, the index holds up to {MAX_DIMENSIONS}.",
            setting=_SETTING,
        )
    return OnnxEmbedder(folder, network, thread, len(tried))


def _packages() -> tuple[Any, Any]:
    try:
        return import_module("onnxruntime"), import_module("tokenizers")
    except ImportError as missing:
        raise Misconfigured(
            f"EMBEDDING_BACKEND is onnx, but {missing.name or 'a package'} is not installed:"
            " it comes with memory-appview[onnx].",
            setting="EMBEDDING_BACKEND",
        ) from None


def _unusable(file: str, failure: Exception) -> Misconfigured:
    # What the packages say may quote a text.
    return Misconfigured(f"{file} in {_SETTING} cannot be used ({type(failure).__name__}).", setting=_SETTING)


def _pool(states: Any, mask: list[list[int]], pooling: Pooling) -> Any:
    """One row for each text out of what the network gave: rows of texts, or of their tokens."""
    import numpy as np  # noqa: PLC0415

    if states.ndim == 2:
        return states
    if pooling == "cls":
        return states[:, 0]
    weights = np.asarray(mask, dtype=states.dtype)[:, :, None]
    return (states * weights).sum(axis=1) / weights.sum(axis=1)
