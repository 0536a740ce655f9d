"""Who the service says it is."""

from __future__ import annotations

import pytest

from appview.did_document import did_document
from memory.identity import BadIdentity, did_web_url
from memory.service_did import service_did


@pytest.mark.parametrize(
    ("url", "did"),
    [
        ("https://memory.example.com", "did:web:memory.example.com"),
        ("https://memory.example.com/", "did:web:memory.example.com"),
        ("https://Memory.Example.com", "did:web:memory.example.com"),
        ("http://localhost:8600", "did:web:localhost%3A8600"),
        ("http://localhost", "did:web:localhost"),
        ("https://memory.example.com:8443", None),
        ("http://memory.example.com", None),
        ("http://127.0.0.1:8600", None),
        ("https://203.0.113.7", None),
        ("https://[2001:db8::1]", None),
    ],
)
def test_did_is_the_host_of_the_url(url: str, did: str | None) -> None:
    assert service_did(url) == did


@pytest.mark.parametrize("url", ["https://memory.example.com", "http://localhost:8600"])
def test_document_is_found_where_the_did_says(url: str) -> None:
    did = service_did(url)
    assert did is not None
    try:
        assert did_web_url(did) == f"{url}/.well-known/did.json"
    except BadIdentity:
        pytest.fail("the protocol allows no such DID")


def test_document_names_what_is_offered_and_where() -> None:
    document = did_document("did:web:memory.example.com", "https://memory.example.com/")
    assert document["id"] == "did:web:memory.example.com"
    assert document["service"] == [
        {"id": "#memory_appview", "type": "MemoryAppView", "serviceEndpoint": "https://memory.example.com"},
        {"id": "#atproto_space_syncer", "type": "AtprotoSpaceSyncer", "serviceEndpoint": "https://memory.example.com"},
    ]
