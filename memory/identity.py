"""Who a DID is: its handle, its host and its signing key, as they stood at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol, assert_never

from pydantic import AwareDatetime, BaseModel, ConfigDict, Discriminator, JsonValue, Tag, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from memory.errors import Misconfigured, Rejected
from memory.identifiers import is_did, is_handle, normalise_source
from memory.signatures import BadKey, parse_did_key, parse_verification_method

_PDS: Final = "AtprotoPersonalDataServer"

_resolved_at: Final = attrgetter("resolved_at")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a DID document said, from `resolved_at` until a later one."""

    did: str
    handle: str | None  # lower case; null: none, or not verified both ways
    host: str | None  # of the PDS, as `normalise_source` spells it; null: none, or unusable
    signing_key: str | None  # the did:key of `#atproto`; null: none, or none that can be read
    tombstoned: bool
    resolved_at: datetime  # orders the documents of one DID: an older one never replaces a newer


class IdentitySource(Protocol):
    """Where identities are looked up."""

    def at(self, did: str, time: datetime) -> Identity | None:
        """The identity as it stood at `time`; None where nothing is known of it."""
        ...

    def announced(self, did: str, time: datetime) -> Identity | None:
        """The identity after a word that it may have changed; None where that has to be asked first."""
        ...


class BadIdentity(Rejected):
    """What a directory or host sent is no identity."""

    reason = "bad_identity"


class PlcExport:
    """The histories of many DIDs, as a PLC directory exports them; every handle in it counts as verified.

    One JSON object a line, in any order: `{did, operation, nullified, createdAt}` as `/export` and `/{did}/log/audit`
    of a PLC directory give them, and `{did, document, createdAt}` for DIDs of other methods, whose document held from
    `createdAt` on. Operations that were nullified are passed over: they never stood.
    """

    def __init__(self, identities: Iterable[Identity] = ()) -> None:
        self._in_order = sorted(identities, key=_resolved_at)
        self._by_did: dict[str, list[Identity]] = {}
        for identity in self._in_order:
            self._by_did.setdefault(identity.did, []).append(identity)

    @classmethod
    def read(cls, path: Path) -> PlcExport:
        """Read an export; raises Misconfigured, naming file and line, for what is none."""
        try:
            with path.open("rb") as lines:
                return cls(_parse_lines(lines, path))
        except OSError as error:
            raise Misconfigured(f"{path}: cannot be read: {error.strerror}", path=str(path)) from error

    @classmethod
    def of_audit_log(cls, did: str, answer: bytes) -> PlcExport:
        """The history of one DID from the answer of `/{did}/log/audit`; raises BadIdentity for anything else."""
        try:
            lines = _AUDIT_LOG.validate_json(answer)
        except ValidationError as error:
            raise BadIdentity(_first_complaint(error), did=did) from error
        if any(line.did != did for line in lines):
            raise BadIdentity("the audit log is that of another DID", did=did)
        return cls(_identities(lines))

    def at(self, did: str, time: datetime) -> Identity | None:
        """The identity as it stood at `time`; None before its first operation."""
        history = self._by_did.get(did, [])
        index = bisect_right(history, time, key=_resolved_at)
        return history[index - 1] if index else None

    def announced(self, did: str, time: datetime) -> Identity | None:
        """The same as `at`: a record of the directory knows every change."""
        return self.at(did, time)

    def last(self, did: str) -> Identity | None:
        """The identity as it stands at the end."""
        history = self._by_did.get(did)
        return history[-1] if history else None

    def changes(self, after: datetime | None, until: datetime | None) -> Iterator[Identity]:
        """Every identity that began to hold in `(after, until]`, oldest first; null: without that bound."""
        first = 0 if after is None else bisect_right(self._in_order, after, key=_resolved_at)
        end = len(self._in_order) if until is None else bisect_right(self._in_order, until, key=_resolved_at)
        for index in range(first, end):
            yield self._in_order[index]

    def keys_valid_at(self, did: str, time: datetime) -> frozenset[str]:
        """The did:keys whose signatures held at `time`; empty before the first operation and after a tombstone."""
        identity = self.at(did, time)
        if identity is None or identity.signing_key is None:
            return frozenset()
        return frozenset({identity.signing_key})


class _Edge(BaseModel):
    """The form of JSON from outside: what we do not read may be anything."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, strict=True)


class VerificationMethod(_Edge):
    """One key of a DID document."""

    id: str
    type: str
    public_key_multibase: str | None = None


class Service(_Edge):
    """One service of a DID document; `serviceEndpoint` may be any JSON, the PDS's is text."""

    id: str
    type: JsonValue = None
    service_endpoint: JsonValue = None


class DidDocument(_Edge):
    """A DID document, as far as it concerns us."""

    id: str
    also_known_as: list[str] = []
    verification_method: list[VerificationMethod] = []
    service: list[Service] = []


def did_web_url(did: str) -> str:
    """Where the document of a did:web stands; raises BadIdentity for the forms that the protocol does not use.

    A DID is a host name and nothing else; only localhost may have a port, and is asked by plain HTTP.
    """
    host, _, port = did.removeprefix("did:web:").partition("%3A")
    if host == "localhost" and (port.isdecimal() or not port):
        return f"http://localhost{port and ':' + port}/.well-known/did.json"
    if not did.startswith("did:web:") or port or not is_handle(host):
        raise BadIdentity("not a did:web that the protocol allows", did=did)
    return f"https://{host}/.well-known/did.json"


def parse_document(did: str, answer: bytes) -> DidDocument:
    """The DID document in a host's answer; raises BadIdentity for anything else, and for that of another DID."""
    try:
        document = DidDocument.model_validate_json(answer)
    except ValidationError as error:
        raise BadIdentity(_first_complaint(error), did=did) from error
    if document.id != did:
        raise BadIdentity("the document is that of another DID", did=did)
    return document


def identity_of_document(document: DidDocument, resolved_at: datetime) -> Identity:
    """What a DID document claims. Its handle still has to be verified from the handle's side.

    Of several entries the first counts; ids may be relative (`#atproto`) or absolute.
    """
    did = document.id
    method = next((each for each in document.verification_method if each.id in ("#atproto", f"{did}#atproto")), None)
    service = next((each for each in document.service if each.id in ("#atproto_pds", f"{did}#atproto_pds")), None)
    endpoint = service.service_endpoint if service is not None and service.type == _PDS else None
    return Identity(
        did=did,
        handle=_first_handle(document.also_known_as),
        host=_normalised_host(endpoint) if isinstance(endpoint, str) else None,
        signing_key=None if method is None else _key_of_method(method),
        tombstoned=False,
        resolved_at=resolved_at.astimezone(UTC),
    )


class _PlcService(_Edge):
    type: str
    endpoint: str


class _PlcOperation(_Edge):
    type: Literal["plc_operation"]
    verification_methods: dict[str, str]
    also_known_as: list[str]
    services: dict[str, _PlcService]


class _PlcCreate(_Edge):
    """The form of the first operation until 2023."""

    type: Literal["create"]
    signing_key: str
    handle: str
    service: str


class _PlcTombstone(_Edge):
    type: Literal["plc_tombstone"]


class _PlcLine(_Edge):
    did: str
    operation: Annotated[_PlcOperation | _PlcCreate | _PlcTombstone, Discriminator("type")]
    nullified: bool = False
    created_at: AwareDatetime


class _DocumentLine(_Edge):
    did: str
    document: DidDocument
    created_at: AwareDatetime


def _form_of_line(line: object) -> str:
    return "document" if isinstance(line, dict) and "document" in line else "operation"


_LINE: Final = TypeAdapter[_PlcLine | _DocumentLine](
    Annotated[
        Annotated[_PlcLine, Tag("operation")] | Annotated[_DocumentLine, Tag("document")], Discriminator(_form_of_line)
    ]
)
_AUDIT_LOG: Final = TypeAdapter(list[_PlcLine])


def _parse_lines(lines: Iterable[bytes], path: Path) -> Iterator[Identity]:
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            parsed = _LINE.validate_json(line)
        except ValidationError as error:
            raise _bad_line(path, number, _first_complaint(error)) from error
        if not is_did(parsed.did):
            raise _bad_line(path, number, "did: no DID")
        if isinstance(parsed, _DocumentLine) and parsed.document.id != parsed.did:
            raise _bad_line(path, number, "document: that of another DID")
        yield from _identities([parsed])


def _bad_line(path: Path, number: int, complaint: str) -> Misconfigured:
    return Misconfigured(f"{path}, line {number}: not a line of a PLC export: {complaint}", path=str(path), line=number)


def _first_complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def _identities(lines: Iterable[_PlcLine | _DocumentLine]) -> Iterator[Identity]:
    for line in lines:
        match line:
            case _DocumentLine():
                yield identity_of_document(line.document, line.created_at)
            case _PlcLine(nullified=False):
                yield _identity_of_operation(line)
            case _PlcLine():
                pass
            case _:
                assert_never(line)


def _identity_of_operation(line: _PlcLine) -> Identity:
    resolved_at = line.created_at.astimezone(UTC)
    operation = line.operation
    match operation:
        case _PlcTombstone():
            return Identity(line.did, None, None, None, tombstoned=True, resolved_at=resolved_at)
        case _PlcCreate():
            handle = _valid_handle(operation.handle.removeprefix("at://"))
            host, key = operation.service, operation.signing_key
        case _PlcOperation():
            handle = _first_handle(operation.also_known_as)
            pds = operation.services.get("atproto_pds")
            host = pds.endpoint if pds is not None and pds.type == _PDS else None
            key = operation.verification_methods.get("atproto")
        case _:
            assert_never(operation)
    return Identity(
        did=line.did,
        handle=handle,
        host=_normalised_host(host),
        signing_key=None if key is None else _readable_key(key),
        tombstoned=False,
        resolved_at=resolved_at,
    )


def _first_handle(also_known_as: list[str]) -> str | None:
    """The first at-uri decides: when it holds no handle, a later one is not asked."""
    first = next((name for name in also_known_as if name.startswith("at://")), None)
    return None if first is None else _valid_handle(first.removeprefix("at://"))


def _valid_handle(text: str) -> str | None:
    return text.lower() if is_handle(text) else None


def _key_of_method(method: VerificationMethod) -> str | None:
    if method.public_key_multibase is None:
        return None
    try:
        return parse_verification_method(method.type, method.public_key_multibase).did_key
    except BadKey:
        return None


def _readable_key(did_key: str) -> str | None:
    try:
        return parse_did_key(did_key).did_key
    except BadKey:
        return None


def _normalised_host(endpoint: str | None) -> str | None:
    if endpoint is None:
        return None
    try:
        return normalise_source(endpoint)
    except ValueError:
        return None
