"""What an operator can set, all by environment variables; `docs/settings.md` shows the same (a test compares)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
)

from memory.errors import Misconfigured
from memory.identifiers import is_did, normalise_source
from memory.outbound_addresses import Network
from memory.telemetry import get_logger

MIB: Final = 1024 * 1024
MIN_SECRET_CHARACTERS: Final = 32

_PRINTABLE: Final = re.compile("[!-~]+")

_log = get_logger()


def _postgres_url(url: SecretStr) -> SecretStr:
    if not url.get_secret_value().startswith(("postgres://", "postgresql://")):
        raise ValueError("it must start with postgresql://")
    return url


def _long_secret(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value()) < MIN_SECRET_CHARACTERS:
        raise ValueError(f"it must have {MIN_SECRET_CHARACTERS} characters or more")
    return secret


def _split(text: object) -> object:
    return text.replace(",", " ").split() if isinstance(text, str) else text


def _read_repos(text: object) -> object:
    """The DIDs in the file of that name: one a line, `#` starts a comment."""
    if not isinstance(text, str) or text == "all":
        return text
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ValueError("it must be `all` or name a readable file of DIDs") from None
    repos: set[str] = set()
    for number, line in enumerate(lines, start=1):
        did = line.partition("#")[0].strip()
        if did and not is_did(did):
            raise ValueError(f"line {number} of that file is no DID")
        repos.add(did)
    return frozenset(repos - {""})


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise ValueError("there is no such folder")
    return path


Source = Annotated[str, AfterValidator(normalise_source)]
Sources = Annotated[tuple[Source, ...], BeforeValidator(_split)]
Networks = Annotated[tuple[Network, ...], BeforeValidator(_split)]
Count = Annotated[int, Field(ge=1)]


def _endpoint(url: str) -> str:
    """The one URL that embeddings are asked of; `…/v1` and `…/v1/embeddings` are the same."""
    parts = urlsplit(url)
    if not _PRINTABLE.fullmatch(url) or "://" not in url or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("it must be a URL like http://localhost:11434/v1, without a user or a query")
    host = normalise_source(f"{parts.scheme}://{parts.netloc}")
    path = parts.path.rstrip("/") or "/v1"
    return host + (path if path.endswith("/embeddings") else f"{path}/embeddings")


def usable_api_key(key: SecretStr) -> SecretStr:
    """The key as it is; ValueError if it cannot stand in a header."""
    if not _PRINTABLE.fullmatch(key.get_secret_value()):
        raise ValueError("it must be visible ASCII characters without spaces")
    return key


def _needed_by(backend: str) -> AfterValidator:
    def judge(value: object, info: ValidationInfo) -> object:
        if value is None and info.data.get("backend") == backend:
            raise ValueError(f"with EMBEDDING_BACKEND={backend} it must be set")
        return value

    return AfterValidator(judge)


def _unless_key_is_given(file: Path | None, info: ValidationInfo) -> Path | None:
    if file is not None and info.data.get("api_key") is not None:
        raise ValueError("EMBEDDING_API_KEY is set too")
    return file


class _Part(BaseModel):
    """The settings of one prefix: the field `port` of `APPVIEW_` is the variable `APPVIEW_PORT`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    prefix: ClassVar[str]

    @classmethod
    def variables(cls) -> dict[str, str]:
        """The field behind each variable."""
        return {cls.prefix + field.upper(): field for field in cls.model_fields}


class DatabaseSettings(_Part):
    """Where Postgres is."""

    prefix = "DATABASE_"
    url: Annotated[SecretStr, AfterValidator(_postgres_url)] | None = Field(
        default=None, description="The Postgres to use, `postgresql://…`. Unset: an embedded one, for development."
    )
    data_dir: Path = Field(default=Path(".data/postgres"), description="Where the embedded Postgres keeps its data.")


class IndexerSettings(_Part):
    """What is followed, and how much of it is kept."""

    prefix = "INDEXER_"
    relay_urls: Sources = Field(default=(), description="The relays to follow, separated by commas.")
    pds_urls: Sources = Field(default=(), description="Single PDSes to follow, separated by commas.")
    plc_url: Source = Field(default="https://plc.directory", description="The directory of did:plc identities.")
    handle_resolver: Sources = Field(
        default=(),
        description="PDSes to ask whose a handle is, instead of DNS and the handle's host; for development.",
    )
    allow_private_addresses: Networks = Field(
        default=(),
        description="Private networks that may be asked, without TLS too, like `127.0.0.0/8`; for development.",
    )
    repos: Annotated[Literal["all"] | frozenset[str], BeforeValidator(_read_repos)] = Field(
        default="all", description="Whose memories are indexed: `all`, or a file with one DID a line."
    )
    repo_max_memories: Count = Field(
        default=100_000, description="How many memories of one repo are kept; the rest is over quota."
    )
    repo_max_bytes: Annotated[ByteSize, Field(ge=1)] = Field(
        default=ByteSize(256 * MIB), description="How many bytes of records of one repo are kept, like `256MiB`."
    )
    repo_max_edges: Count = Field(
        default=50_000, description="How many `supersedes` entries within one repo (and Space) are kept."
    )
    batch_events: Count = Field(default=500, description="How many events one transaction writes, at most.")
    health_port: int | None = Field(
        default=None, ge=1, le=65535, description="The port of `/live`, `/ready` and `/metrics`. Unset: none."
    )
    health_host: str = Field(default="127.0.0.1", description="The address that the health port listens on.")
    version_content_days: int = Field(
        default=30, ge=0, description="For how many days the content of an overwritten version is kept."
    )
    deletion_days: int = Field(
        default=90,
        ge=1,
        description="For how many days is known what was deleted: at least as many as a backup is kept.",
    )
    host_rate: float = Field(
        default=5, gt=0, le=1000, description="How many requests a second one repo's host gets, at most."
    )
    fetches_at_once: int = Field(
        default=8, ge=1, le=64, description="How many whole repos one process fetches at a time."
    )
    spool_dir: Annotated[Path, AfterValidator(_folder)] | None = Field(
        default=None,
        description="The folder for repos too large for memory while they are fetched. Unset: the system's temporary.",
    )
    spool_max_bytes: Annotated[ByteSize, Field(ge=1)] = Field(
        default=ByteSize(8192 * MIB),
        description="How many bytes of disk all of these may take, in one command.",
    )
    audit_days: int = Field(
        default=30, ge=0, description="After how many days a repo is compared with its host again; 0: never."
    )


class AppviewSettings(_Part):
    """Where the API is served."""

    prefix = "APPVIEW_"
    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(default=8600, ge=1, le=65535, description="The port to listen on.")
    metrics_port: int | None = Field(
        default=None, ge=1, le=65535, description="The port of `/live`, `/ready` and `/metrics`. Unset: none."
    )
    public_url: Source | None = Field(
        default=None, description="The URL by which clients reach the API. Unset: made of host and port."
    )
    trusted_proxies: Networks = Field(
        default=(),
        description="Networks of the proxies whose `X-Forwarded-For` is believed, like `10.0.0.0/8`.",
    )
    rate_limit: int = Field(
        default=3000,
        ge=0,
        description="How many requests a viewer, or the network of whoever is not signed in, has in 5 minutes, and all"
        " viewers of one network ten times that; 0: any.",
    )
    id_key: Annotated[SecretStr, AfterValidator(_long_secret)] | None = Field(
        default=None,
        description="The secret behind ids of what is not public, 32 characters or more. Unset: the database's own.",
    )


class EmbeddingSettings(_Part):
    """What gives vectors, for search by meaning."""

    prefix = "EMBEDDING_"
    backend: Literal["embedded", "server", "onnx", "none"] = Field(
        default="embedded",
        description="`embedded` (the model that comes along), `server`, `onnx`, or `none`: search by words only.",
    )
    threads: int = Field(
        default=1, ge=1, le=64, description="How many cores one process computes with (`embedded`, `onnx`)."
    )
    allow_private: bool = Field(
        default=False,
        description="Whether text of private Spaces, and queries over them, may go to a server on another machine.",
    )
    url: Annotated[Annotated[str, AfterValidator(_endpoint)] | None, _needed_by("server")] = Field(
        default=None,
        validate_default=True,
        description="`server`: one that speaks OpenAI's `/v1/embeddings`, like `http://localhost:11434/v1`.",
    )
    model: Annotated[Annotated[str, Field(max_length=200, pattern=r"^[!-~]+$")] | None, _needed_by("server")] = Field(
        default=None,
        validate_default=True,
        description="The model's name there (`server`), or that its vectors go by (`onnx`; unset: the folder's).",
    )
    api_key: Annotated[SecretStr, AfterValidator(usable_api_key)] | None = Field(
        default=None, description="`server`: the key that it wants."
    )
    api_key_file: Annotated[Path | None, AfterValidator(_unless_key_is_given)] = Field(
        default=None, description="`server`: the file with that key, instead."
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=4_000,
        description="`server`: how many dimensions to ask for. Unset: as many as the model has.",
    )
    query_prefix: str = Field(
        default="", max_length=1_000, description="What the model wants before a query, like `query:`."
    )
    passage_prefix: str = Field(
        default="", max_length=1_000, description="What the model wants before a memory, like `passage:`."
    )
    passage_type: Literal["passage", "document"] | None = Field(
        default=None,
        description="`server`: the `input_type` of memories, if it wants one; that of queries is `query`.",
    )
    batch_size: int = Field(
        default=32, ge=1, le=2_048, description="`server`: how many texts one request has, at most."
    )
    timeout_seconds: float = Field(
        default=30,
        gt=0,
        le=600,
        description="`server`: how long one request may take; a query waits for a second only.",
    )
    onnx_dir: Annotated[Annotated[Path, AfterValidator(_folder)] | None, _needed_by("onnx")] = Field(
        default=None, validate_default=True, description="`onnx`: the folder of `model.onnx` and `tokenizer.json`."
    )
    onnx_pooling: Literal["mean", "cls"] = Field(
        default="mean", description="`onnx`: how the vectors of tokens become one, if the model leaves that open."
    )
    search_model: Annotated[str, Field(max_length=200, pattern=r"^[!-~]+$")] | None = Field(
        default=None,
        description="The model that searches go by, of those in `indexer reembed --list`. Unset: the serving one.",
    )


class SpacesSettings(_Part):
    """What is private: Spaces, which their authorities let a viewer read."""

    prefix = "SPACES_"
    key_file: Path | None = Field(
        default=None,
        description="The file with the keys that seal credentials for Spaces. Unset: no Space can be opened.",
    )
    client_key_file: Path | None = Field(
        default=None,
        description="The file with the keys by which Spaces believe who this server is. Unset: it does not say.",
    )
    max_staleness_s: int = Field(
        default=900,
        ge=60,
        le=86_400,
        description="For how many seconds a Space is readable after what is held of it was last confirmed.",
    )
    kept_days: int = Field(
        default=30,
        ge=1,
        le=3_650,
        description="For how many days what is held of a Space is kept after the last credential for it has expired.",
    )


PARTS: Final[tuple[type[_Part], ...]] = (
    DatabaseSettings,
    IndexerSettings,
    AppviewSettings,
    EmbeddingSettings,
    SpacesSettings,
)
_REFUSED_PREFIXES: Final = ("INDEXER_", "APPVIEW_", "EMBEDDING_", "SPACES_")
_Loaded = TypeVar("_Loaded", bound=_Part)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process."""

    database: DatabaseSettings
    indexer: IndexerSettings
    appview: AppviewSettings
    embedding: EmbeddingSettings
    spaces: SpacesSettings


def load(environ: Mapping[str, str]) -> Settings:
    """Settings out of environment variables; an empty one counts as unset.

    Raises `Misconfigured` for the first that cannot be used and for an unknown one with a prefix of ours. Platforms
    set `DATABASE_*` variables of their own: those are only warned of.
    """
    given = {name: value.strip() for name, value in environ.items() if value.strip()}
    _judge_unknown(given)
    return Settings(
        _load(DatabaseSettings, given),
        _load(IndexerSettings, given),
        _load(AppviewSettings, given),
        _load(EmbeddingSettings, given),
        _load(SpacesSettings, given),
    )


def default_text(part: type[_Part], field: str) -> str:
    """A field's default as an operator would write it."""
    match part.model_fields[field].get_default():
        case None | () | "":
            return "unset"
        case bool() as switch:
            return str(int(switch))
        case ByteSize() as size:
            return f"{size // MIB}MiB"
        case default:
            return str(default)


def _load(part: type[_Loaded], given: Mapping[str, str]) -> _Loaded:
    variables = part.variables()
    try:
        return part.model_validate({field: given[name] for name, field in variables.items() if name in given})
    except ValidationError as failure:
        first = failure.errors(include_url=False, include_context=False, include_input=False)[0]
        field = str(first["loc"][0])
        setting = part.prefix + field.upper()
        raise Misconfigured(
            f"{setting} cannot be used: {first['msg'].removeprefix('Value error, ')}."
            f" ({part.model_fields[field].description} Default: {default_text(part, field)}.)",
            setting=setting,
        ) from None


def _judge_unknown(given: Mapping[str, str]) -> None:
    known = {name for part in PARTS for name in part.variables()}
    for name in sorted(given.keys() - known):
        if name.startswith(_REFUSED_PREFIXES):
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {nearest[0]}?" if nearest else "docs/settings.md lists them all."
            raise Misconfigured(f"{name} is no setting. {hint}", setting=name)
        if name.startswith(DatabaseSettings.prefix):
            _log.warning("setting_ignored", setting=name)
