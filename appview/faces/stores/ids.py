"""Ids of stores, memories and versions: 128 bits of SHA-256 as 32 hexadecimal digits, behind a prefix.

Of what is public, anybody can compute them: a store's of `at://{did}`, a memory's of its at-uri. Of what is in a Space,
the hash is enciphered, so that an id says nothing without the key; versions too, for a version's id is made of a CID
that it outlives, and must not confirm a guess at what was erased.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from appview.keys import Key, uri_of
from appview.store.stores import StoreKey
from memory.space import PUBLIC

_HASH_BYTES: Final = 16
_DIGITS: Final = re.compile(r"[0-9a-f]{32}")


class IdKind(StrEnum):
    """The prefixes."""

    STORE = "memstore_"
    MEMORY = "mem_"
    VERSION = "memver_"


class IdHashes(NamedTuple):
    """What an id means, as the hash of something public and as that of something in a Space."""

    public: bytes
    keyed: bytes

    def of(self, store: StoreKey) -> bytes:
        """The hash of something in that store."""
        return self.public if store.space == PUBLIC else self.keyed


class Ids:
    """Makes ids and reads them, with the key that all API processes of one index share."""

    def __init__(self, key: bytes) -> None:
        # One block each, and no two alike: here the mode that is none is the right one.
        self._cipher = Cipher(AES(sha256(b"ids of memory stores\0" + key).digest()), ECB())  # noqa: S305

    def of_store(self, store: StoreKey) -> str:
        """The id of a store."""
        uri = f"at://{store.repo}" if store.space == PUBLIC else f"{store.space}/{store.repo}"
        return self._write(IdKind.STORE, _hash_of(uri), keyed=store.space != PUBLIC)

    def of_memory(self, key: Key) -> str:
        """The id of a memory, there or deleted."""
        return self._write(IdKind.MEMORY, _hash_of(uri_of(key)), keyed=key.space != PUBLIC)

    def of_version(self, id_hash: bytes) -> str:
        """The id of the version that the index keeps under this hash."""
        return self._write(IdKind.VERSION, id_hash, keyed=True)

    def read(self, kind: IdKind, text: str) -> IdHashes | None:
        """What an id means; None for what is no id of this kind."""
        if not is_id(kind, text):
            return None
        block = bytes.fromhex(text.removeprefix(kind))
        decryptor = self._cipher.decryptor()
        keyed = decryptor.update(block) + decryptor.finalize()
        return IdHashes(keyed if kind is IdKind.VERSION else block, keyed)

    def _write(self, kind: IdKind, block: bytes, *, keyed: bool) -> str:
        if keyed:
            encryptor = self._cipher.encryptor()
            block = encryptor.update(block) + encryptor.finalize()
        return kind + block.hex()


def is_id(kind: IdKind, text: str) -> bool:
    """Whether `text` has the form of an id of this kind."""
    return text.startswith(kind) and _DIGITS.fullmatch(text, len(kind)) is not None


def _hash_of(uri: str) -> bytes:
    return sha256(uri.encode()).digest()[:_HASH_BYTES]
