from __future__ import annotations

from typing import Any

import pytest

from memory.identity import DidDocument
from memory.signatures import parse_did_key
from memory.space_authority import authority_of_document
from tests.builders import SigningKey
from tests.credentials_recorded import DOCUMENTS, authority_of

MARA = "did:plc:mara"
SPACE_KEY, ACCOUNT_KEY = SigningKey("space", "p256").did_key, SigningKey("mara").did_key
HOST = {"id": "#atproto_space_host", "type": "AtprotoSpaceHost", "serviceEndpoint": "https://spaces.example"}
PDS = {"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "https://pds.example"}


def method(fragment: str, did_key: str, **changes: Any) -> dict[str, Any]:
    multibase = did_key.removeprefix("did:key:")
    return {"id": fragment, "type": "Multikey", "controller": MARA, "publicKeyMultibase": multibase} | changes


def document(service: list[dict[str, Any]], *methods: dict[str, Any]) -> DidDocument:
    return DidDocument.model_validate({"id": MARA, "verificationMethod": list(methods), "service": service})


def test_recorded_authorities_are_read():
    for did in DOCUMENTS:
        assert authority_of(did).did == did
    served_apart = authority_of("did:plc:fogl23elj7zfudr5h6cg5pd6")
    assert served_apart.host == "http://localhost:26594"
    assert {name: key.jose_algorithm for name, key in served_apart.keys.items()} == {
        "#atproto_space": "ES256",
        "#atproto": "ES256K",
    }
    served_by_its_pds = authority_of("did:plc:arbvynoilacb2fsx4skgjztv")
    assert served_by_its_pds.host == "http://localhost:26583"
    assert list(served_by_its_pds.keys) == ["#atproto"]


@pytest.mark.parametrize(
    ("services", "host"),
    [
        ([HOST], "https://spaces.example"),
        ([HOST, PDS], "https://spaces.example"),
        ([PDS, HOST], "https://spaces.example"),
        ([PDS], "https://pds.example"),
        ([HOST | {"id": f"{MARA}#atproto_space_host"}], "https://spaces.example"),
        ([HOST, HOST | {"serviceEndpoint": "https://second.example"}], "https://spaces.example"),
        ([HOST | {"serviceEndpoint": "https://spaces.example/"}], "https://spaces.example"),
        # Who names a host that is none wants no other to be asked.
        ([HOST | {"serviceEndpoint": "https://spaces.example/path"}, PDS], None),
        ([HOST | {"serviceEndpoint": {"uri": "https://spaces.example"}}, PDS], None),
        ([HOST | {"serviceEndpoint": None}, PDS], None),
        ([HOST | {"serviceEndpoint": "ftp://spaces.example"}, PDS], None),
        ([HOST | {"serviceEndpoint": "https://user@spaces.example"}, PDS], None),
        ([HOST | {"type": "AtprotoPersonalDataServer"}, PDS], None),
        ([HOST | {"id": "did:plc:noor#atproto_space_host"}], None),
        ([PDS | {"type": "AtprotoSpaceHost"}], None),
        ([], None),
    ],
)
def test_host_is_the_one_that_the_document_names(services: list[dict[str, Any]], host: str | None):
    assert authority_of_document(document(services)).host == host


@pytest.mark.parametrize(
    ("methods", "keys"),
    [
        ([method("#atproto", ACCOUNT_KEY)], {"#atproto": ACCOUNT_KEY}),
        (
            [method("#atproto", ACCOUNT_KEY), method(f"{MARA}#atproto_space", SPACE_KEY)],
            {"#atproto_space": SPACE_KEY, "#atproto": ACCOUNT_KEY},
        ),
        ([method("#atproto_space", SPACE_KEY), method("#atproto_space", ACCOUNT_KEY)], {"#atproto_space": SPACE_KEY}),
        ([method("#atproto_space", SPACE_KEY, type="Ed25519VerificationKey2020")], {}),
        ([method("#atproto_space", SPACE_KEY, publicKeyMultibase="zzz")], {}),
        ([method("#atproto_space", SPACE_KEY, publicKeyMultibase=None)], {}),
        ([method("did:plc:noor#atproto_space", SPACE_KEY)], {}),
        ([method("#atproto_label", SPACE_KEY)], {}),
        ([], {}),
    ],
)
def test_keys_are_those_that_can_sign_a_credential(methods: list[dict[str, Any]], keys: dict[str, str]):
    found = authority_of_document(document([HOST], *methods)).keys
    assert found == {fragment: parse_did_key(did_key) for fragment, did_key in keys.items()}
