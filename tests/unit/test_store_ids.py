"""Ids of the memory-store face."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from appview.faces.stores.ids import IdKind, Ids, is_id
from appview.keys import Key
from appview.store.stores import StoreKey
from memory.errors import Misconfigured
from memory.settings import load
from tests.memory_rows import ALICE, BOB, SPACE

IDS = Ids(b"one key" * 5)
OTHERS = Ids(b"another" * 5)
RKEY = "3kaaaaaaaaa2a"
STORE, SHARED = StoreKey(ALICE, ""), StoreKey(ALICE, SPACE)
MEMORY, SECRET = Key(ALICE, "", RKEY), Key(ALICE, SPACE, RKEY)
HASH = bytes(range(16))


def digest(uri: str) -> str:
    return sha256(uri.encode()).hexdigest()[:32]


def test_public_ids_are_hashes_that_anybody_can_compute_and_every_index_has():
    for ids in (IDS, OTHERS):
        assert ids.of_store(STORE) == "memstore_" + digest(f"at://{ALICE}")
        assert ids.of_memory(MEMORY) == "mem_" + digest(f"at://{ALICE}/dev.bastienrobert.memory.record/{RKEY}")


def test_ids_in_spaces_say_nothing_without_the_key():
    uri = f"{SPACE}/{ALICE}"
    assert digest(uri) not in IDS.of_store(SHARED)
    assert digest(f"{uri}/dev.bastienrobert.memory.record/{RKEY}") not in IDS.of_memory(SECRET)
    assert IDS.of_store(SHARED) != OTHERS.of_store(SHARED)
    assert IDS.of_memory(SECRET) != OTHERS.of_memory(SECRET)
    assert IDS.of_store(SHARED) == Ids(b"one key" * 5).of_store(SHARED)


def test_version_ids_confirm_no_guess_at_what_was_erased():
    assert HASH.hex() not in IDS.of_version(HASH)
    assert IDS.of_version(HASH) != OTHERS.of_version(HASH)


def test_ids_are_read_as_they_were_written():
    for store in (STORE, SHARED):
        hashes = IDS.read(IdKind.STORE, IDS.of_store(store))
        assert hashes is not None
        uri = f"at://{ALICE}" if store is STORE else f"{SPACE}/{ALICE}"
        assert hashes.of(store).hex() == digest(uri)
    read = IDS.read(IdKind.VERSION, IDS.of_version(HASH))
    assert read is not None
    assert read.of(STORE) == read.of(SHARED) == HASH


def test_no_two_things_have_one_id():
    stores = [StoreKey(did, space) for did in (ALICE, BOB) for space in ("", SPACE)]
    memories = [Key(*store, rkey) for store in stores for rkey in (RKEY, RKEY[:-1] + "b")]
    ids = [IDS.of_store(store) for store in stores] + [IDS.of_memory(memory) for memory in memories]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("(memstore|mem)_[0-9a-f]{32}", each) for each in ids)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mem_",
        "mem_" + "0" * 31,
        "mem_" + "0" * 33,
        "mem_" + "A" * 32,
        "mem_" + "٠" * 32,
        "0" * 32,
        "mem_" + "0" * 31 + "\n",
    ],
)
def test_what_is_no_id_is_read_as_none(text: str):
    assert IDS.read(IdKind.MEMORY, text) is None
    assert not is_id(IdKind.MEMORY, text)
    assert IDS.read(IdKind.STORE, "mem_" + "0" * 32) is None


def test_a_key_is_long_and_shown_nowhere():
    with pytest.raises(Misconfigured, match="APPVIEW_ID_KEY") as refused:
        load({"APPVIEW_ID_KEY": "too-short-a-secret"})
    assert "too-short-a-secret" not in str(refused.value)
    settings = load({"APPVIEW_ID_KEY": "long-enough-" * 3})
    assert settings.appview.id_key is not None
    assert "long-enough" not in repr(settings)
    assert "key" not in repr(Ids(b"a key of bytes")).lower()
    assert load({}).appview.id_key is None
