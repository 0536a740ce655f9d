"""How the reference implementation gave credentials, and refused them: tests/recordings/spaces/credentials."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import libipld

from memory.identity import parse_document
from memory.signatures import PublicKey, parse_did_key
from memory.space import SpaceRef, parse_space_uri
from memory.space_authority import SpaceAuthority, authority_of_document

FOLDER: Final = Path(__file__).parent / "recordings" / "spaces" / "credentials"
_RECORDED: Final[dict[str, Any]] = json.loads((FOLDER / "exchanges.json").read_bytes())
VECTOR: Final[dict[str, Any]] = json.loads((FOLDER / "vectors-dpop.json").read_bytes())
PROOF_SECRET: Final = bytes.fromhex(_RECORDED["proofKey"]["secret"])
"""The key of some of the recorded proofs."""


@dataclass(frozen=True)
class Exchanged:
    """One `getSpaceCredential`, as it was asked and answered."""

    step: str
    at: datetime  # by the host's clock
    url: str
    authorization: str
    proof: str | None
    body: dict[str, str]
    status: int
    answer: dict[str, str]

    @property
    def space(self) -> SpaceRef:
        return space_ref(self.body["space"])

    @property
    def delegation(self) -> str:
        return self.authorization.removeprefix("Bearer ")


@dataclass(frozen=True)
class Shown:
    """A credential, or what was shown as one, and how the host of a repo took it."""

    step: str
    at: datetime
    credential: str
    status: int
    error: str | None


def _at(recorded: Mapping[str, Any], *but: str) -> dict[str, Any]:
    values = {name: value for name, value in recorded.items() if name not in but}
    return values | {"at": datetime.fromtimestamp(recorded["at"], UTC)}


EXCHANGES: Final = {each["step"]: Exchanged(**_at(each)) for each in _RECORDED["exchanges"] if each["step"] != "cred"}
GRANTED: Final = {step: each for step, each in EXCHANGES.items() if each.status == 200}
REFUSED: Final = {step: each for step, each in EXCHANGES.items() if each.status != 200}
SHOWN: Final = {each["step"]: Shown(**_at(each, "url", "proof")) for each in _RECORDED["shown"]}
DOCUMENTS: Final[dict[str, Any]] = _RECORDED["documents"]


def space_ref(uri: str) -> SpaceRef:
    space = parse_space_uri(uri)
    assert space is not None
    return space


def authority_of(did: str) -> SpaceAuthority:
    return authority_of_document(parse_document(did, json.dumps(DOCUMENTS[did]).encode()))


def parts_of(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a JWT."""
    header, claims, _ = token.split(".")
    return json.loads(decode(header)), json.loads(decode(claims))


def decode(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def key_of_jwk(jwk: Mapping[str, str]) -> PublicKey:
    """The P-256 key of a JWK."""
    x, y = decode(jwk["x"]), decode(jwk["y"])
    return parse_did_key("did:key:" + libipld.encode_multibase("z", b"\x80\x24" + bytes([2 + y[-1] % 2]) + x))
