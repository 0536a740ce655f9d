"""The protocol's interoperability vectors, where they are at hand."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import coincurve
import libipld
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from indexer.verify.car import decode_block
from indexer.verify.node import key_layer
from indexer.verify.tree import Tree
from memory.identifiers import cid_text, is_cid, is_did, is_nsid, is_rkey, is_tid
from memory.identity import identity_of_document, parse_document
from memory.signatures import SignatureVerdict, parse_did_key, parse_multikey, parse_verification_method
from tests.tree_model import layer_of, tree_of

VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors"

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="the interoperability vectors are not here")

SYNTAXES = [(is_cid, "cid"), (is_did, "did"), (is_nsid, "nsid"), (is_rkey, "recordkey"), (is_tid, "tid")]


def lines(name: str) -> list[str]:
    """One value a line; comments and empty lines are none."""
    text = (VECTORS / name).read_text(encoding="utf-8")
    return [line for line in text.split("\n") if line and not line.startswith("# ")]


def loaded(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def unpadded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))


@pytest.mark.parametrize(("check", "name"), SYNTAXES)
def test_valid_identifiers_are_taken(check: Callable[[str], bool], name: str) -> None:
    assert [line for line in lines(f"{name}_syntax_valid.txt") if not check(line)] == []


@pytest.mark.parametrize(("check", "name"), SYNTAXES)
def test_invalid_identifiers_are_refused(check: Callable[[str], bool], name: str) -> None:
    assert [line for line in lines(f"{name}_syntax_invalid.txt") if check(line)] == []


def test_signatures_are_judged_as_the_fixtures_say() -> None:
    for fixture in loaded("signature-fixtures.json"):
        key = parse_did_key(fixture["publicKeyDid"])
        assert key == parse_verification_method(fixture["didDocSuite"], fixture["publicKeyMultibase"])
        verdict = key.verify(unpadded(fixture["messageBase64"]), unpadded(fixture["signatureBase64"]))
        expected = SignatureVerdict.NOT_LOW_S if fixture["tags"] == ["high-s"] else SignatureVerdict.BAD
        assert verdict is (SignatureVerdict.GOOD if fixture["validSignature"] else expected)


def test_keys_of_the_k256_curve_are_named_as_the_fixtures_say() -> None:
    for fixture in loaded("w3c_didkey_K256.json"):
        point = coincurve.PrivateKey(bytes.fromhex(fixture["privateKeyBytesHex"])).public_key.format()
        named = parse_multikey(libipld.encode_multibase("z", b"\xe7\x01" + point))
        assert named.did_key == fixture["publicDidKey"]
        assert parse_did_key(fixture["publicDidKey"]) == named


def test_keys_of_the_p256_curve_are_named_as_the_fixtures_say() -> None:
    for fixture in loaded("w3c_didkey_P256.json"):
        secret = int.from_bytes(libipld.decode_multibase("z" + fixture["privateKeyBytesBase58"])[1])
        public = ec.derive_private_key(secret, ec.SECP256R1()).public_key()
        point = public.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        assert parse_did_key(fixture["publicDidKey"]).did_key == fixture["publicDidKey"]
        assert parse_multikey(libipld.encode_multibase("z", b"\x80\x24" + point)).did_key == fixture["publicDidKey"]


@pytest.mark.parametrize("name", ["did_plc_doc.json", "did_plc_doc_legacy.json"])
def test_new_and_legacy_documents_name_the_same_key(name: str) -> None:
    (method,) = loaded(name)["verificationMethod"]
    key = parse_verification_method(method["type"], method["publicKeyMultibase"])
    assert key.did_key == "did:key:zQ3shXjHeiBuRCKmM36cuYnm7YEMzhGnCmCyW92sRJ9pribSF"


def test_example_keys_stand_on_the_layer_that_their_name_tells() -> None:
    keys = [line.encode() for line in lines("mst_example_keys.txt")]
    assert [key_layer(key) for key in keys] == [int(key[1:2]) for key in keys]
    assert list(map(key_layer, keys)) == list(map(layer_of, keys))


def test_commits_are_undone_with_the_proofs_of_the_fixtures_alone() -> None:
    for fixture in loaded("commit-proof-fixtures.json"):
        value = binary(fixture["leafValue"])
        before = {key.encode(): value for key in fixture["keys"]}
        after = dict.fromkeys(before.keys() - encoded(fixture["dels"]) | encoded(fixture["adds"]), value)
        root, blocks = tree_of(after)
        assert cid_text(root) == fixture["rootAfterCommit"]
        proof = {binary(cid): blocks[binary(cid)] for cid in fixture["blocksInProof"]}
        tree = Tree.load(root, proof)
        for key in encoded(fixture["adds"]):
            tree.remove(key, value)
        for key in encoded(fixture["dels"]):
            tree.insert(key, value)
        made: dict[bytes, bytes] = {}
        assert cid_text(tree.seal(made)) == fixture["rootBeforeCommit"] == cid_text(tree_of(before)[0])
        assert made.items() <= tree_of(before)[1].items()


def test_blocks_have_the_form_that_the_fixtures_have() -> None:
    for fixture in loaded("data-model-fixtures.json"):
        block = unpadded(fixture["cbor_base64"])
        assert isinstance(decode_block(block), dict)
        assert decode_block(block + b"\x00") is None


def binary(cid: str) -> bytes:
    decoded = libipld.decode_multibase(cid)[1]
    assert isinstance(decoded, bytes)
    return decoded


def encoded(keys: list[str]) -> set[bytes]:
    return {key.encode() for key in keys}


def test_did_web_document_names_its_services():
    """It has no key and no PDS: a service of another kind is none of a repo's host."""
    document = loaded("did_web_doc.json")
    parsed = parse_document(document["id"], json.dumps(document).encode())
    identity = identity_of_document(parsed, datetime(2026, 11, 30, tzinfo=UTC))
    assert (identity.did, identity.signing_key, identity.host) == (document["id"], None, None)
