"""Who governs a Space: where its host is, and which keys sign its credentials, by the DID document of its authority.

No I/O: `memory/space_authorities.py` looks them up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from memory.identifiers import normalise_source
from memory.identity import DidDocument, Service
from memory.signatures import BadKey, PublicKey, parse_verification_method
from memory.space_protocol import (
    ACCOUNT_KEY_FRAGMENT,
    PDS_FRAGMENT,
    SPACE_HOST_FRAGMENT,
    SPACE_HOST_TYPE,
    SPACE_KEY_FRAGMENT,
)

_PDS_TYPE: Final = "AtprotoPersonalDataServer"


@dataclass(frozen=True, slots=True)
class SpaceAuthority:
    """What the DID document of an authority says of its Spaces."""

    did: str
    host: str | None  # as `normalise_source` spells it; null: none, or unusable
    keys: Mapping[str, PublicKey]  # by SPACE_KEY_FRAGMENT and ACCOUNT_KEY_FRAGMENT: those there that can be read


def authority_of_document(document: DidDocument) -> SpaceAuthority:
    """What a document says. Who names no Space host has its Spaces at its PDS; who names an unusable one, nowhere."""
    found = {fragment: _key(document, fragment) for fragment in (SPACE_KEY_FRAGMENT, ACCOUNT_KEY_FRAGMENT)}
    keys = {fragment: key for fragment, key in found.items() if key is not None}
    return SpaceAuthority(document.id, _host(document), keys)


def _host(document: DidDocument) -> str | None:
    host = _service(document, SPACE_HOST_FRAGMENT)
    if host is not None:
        return _url(host, SPACE_HOST_TYPE)
    pds = _service(document, PDS_FRAGMENT)
    return None if pds is None else _url(pds, _PDS_TYPE)


def _service(document: DidDocument, fragment: str) -> Service | None:
    names = (fragment, document.id + fragment)
    return next((service for service in document.service if service.id in names), None)


def _url(service: Service, kind: str) -> str | None:
    endpoint = service.service_endpoint
    if service.type != kind or not isinstance(endpoint, str):
        return None
    try:
        return normalise_source(endpoint)
    except ValueError:
        return None


def _key(document: DidDocument, fragment: str) -> PublicKey | None:
    names = (fragment, document.id + fragment)
    method = next((method for method in document.verification_method if method.id in names), None)
    if method is None or method.public_key_multibase is None:
        return None
    try:
        return parse_verification_method(method.type, method.public_key_multibase)
    except BadKey:
        return None
