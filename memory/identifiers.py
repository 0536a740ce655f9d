"""The protocol's identifiers: their syntax, the time in a TID, and one spelling for each source.

Everything here compares text as it stands: DIDs, NSIDs, record keys and TIDs are case-sensitive, handles are not.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import libipld

NAMESPACE: Final = "dev.bastienrobert.memory."
"""How the names of the API's methods begin, and that of the collection."""

COLLECTION: Final = f"{NAMESPACE}record"
"""Statements write it out: in an expression of an index it has to stand word by word."""

MAX_DID_CHARS: Final = 2048
MAX_HANDLE_CHARS: Final = 253
MAX_NSID_CHARS: Final = 317
MAX_RKEY_CHARS: Final = 512

_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_LETTER_LABEL: Final = r"[a-zA-Z](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"

_DID: Final = re.compile(r"did:[a-z]+:[a-zA-Z0-9._:%-]*[a-zA-Z0-9._-]")
_HANDLE: Final = re.compile(rf"(?:{_LABEL}\.)+{_LETTER_LABEL}")
_NSID: Final = re.compile(rf"{_LETTER_LABEL}(?:\.{_LABEL})+\.[a-zA-Z][a-zA-Z0-9]{{0,62}}")
_RKEY: Final = re.compile(rf"[A-Za-z0-9._:~-]{{1,{MAX_RKEY_CHARS}}}")
_TID: Final = re.compile(r"[2-7a-j][2-7a-z]{12}")
_CID: Final = re.compile(r"[a-zA-Z0-9+=]{8,256}")

_BINARY_CID_BYTES: Final = 36
_BINARY_CID_PREFIXES: Final = (b"\x01\x71\x12\x20", b"\x01\x55\x12\x20")

_TID_ALPHABET: Final = "234567abcdefghijklmnopqrstuvwxyz"
_TID_DIGITS: Final = str.maketrans(_TID_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_HTTP_SCHEMES: Final = {"https": "https", "wss": "https", "http": "http", "ws": "http"}
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_HOST: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?")


def is_did(text: str) -> bool:
    """Whether `text` is a DID of any method."""
    return len(text) <= MAX_DID_CHARS and _DID.fullmatch(text) is not None


def is_handle(text: str) -> bool:
    """Whether `text` is a handle, in either case."""
    return len(text) <= MAX_HANDLE_CHARS and _HANDLE.fullmatch(text) is not None


def is_nsid(text: str) -> bool:
    """Whether `text` is the name of a collection or another lexicon."""
    return len(text) <= MAX_NSID_CHARS and _NSID.fullmatch(text) is not None


def is_rkey(text: str) -> bool:
    """Whether `text` is a record key."""
    return _RKEY.fullmatch(text) is not None and text not in (".", "..")


def is_tid(text: str) -> bool:
    """Whether `text` is a timestamp identifier, the form of every `rev`."""
    return _TID.fullmatch(text) is not None


def is_cid(text: str) -> bool:
    """Whether `text` has the form of a CID of version 1, in any base; says nothing of what it hashes."""
    return _CID.fullmatch(text) is not None and not text.startswith("Qmb")


def tid_time(tid: str) -> datetime:
    """The instant in a valid TID, to the microsecond, in UTC; its clock identifier is dropped."""
    return _EPOCH + timedelta(microseconds=int(tid.translate(_TID_DIGITS), 32) >> 10)


def is_binary_cid(data: bytes) -> bool:
    """Whether `data` is a CID of the only kind that repos use: version 1, DAG-CBOR or raw, sha-256."""
    return len(data) == _BINARY_CID_BYTES and data[:4] in _BINARY_CID_PREFIXES


def cid_text(cid: bytes) -> str:
    """The base32 spelling of a binary CID, as records, answers and the database have it."""
    return libipld.encode_cid(cid)


def normalise_source(url: str) -> str:
    """The one spelling of a relay or PDS: `http(s)://host[:port]`.

    Takes wss, ws, https and http URLs, and bare `host[:port]`: that is http for localhost and loopback addresses, else
    https. Raises ValueError for another scheme, a user, a path, a query or a fragment.
    """
    bare = "://" not in url
    parts = urlsplit(f"//{url}" if bare else url)
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc or url.endswith(("?", "#")):
        raise ValueError("a source is a scheme, a host and a port, nothing else")
    host = _normalise_host(parts.hostname or "")
    scheme = ("http" if _is_loopback(host) else "https") if bare else _HTTP_SCHEMES.get(parts.scheme)
    if scheme is None:
        raise ValueError("a source is reached by wss, ws, https or http")
    port = parts.port  # raises ValueError for what is no port
    if port == 0:
        raise ValueError("a source's port is 1 to 65535")
    if port is None or port == _DEFAULT_PORTS[scheme]:
        return f"{scheme}://{host}"
    return f"{scheme}://{host}:{port}"


def _normalise_host(host: str) -> str:
    if ":" in host:
        return f"[{ipaddress.IPv6Address(host)}]"
    if _HOST.fullmatch(host) is None:
        raise ValueError("a source needs a host name or an address")
    return host


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
