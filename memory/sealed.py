"""Small secrets, sealed with AES-GCM before they are kept.

A sealed secret is: a version byte, the length of the key's id and the id, a nonce of 12 bytes, then AES-256-GCM's
ciphertext and tag. All of the beginning is authenticated too, and so is what the secret belongs to, which whoever opens
it has to name: a row that was copied to another Space or viewer opens for neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from memory.errors import Rejected
from memory.key_files import read_key_file, unusable

SETTING: Final = "SPACES_KEY_FILE"
KEY_BYTES: Final = 32
MAX_KEYS: Final = 100

_VERSION: Final = 1
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_LENGTH_BYTES: Final = 4  # before each part of what is authenticated, so that no two lists of parts look alike
_LEAST_DISTINCT_BYTES: Final = 8  # of a key: random ones have many more, a pattern that was typed in has not
_KEY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,32}")
_KEY: Final = re.compile(r"[0-9a-f]{64}")


class NotSealedHere(Rejected):
    """A sealed secret cannot be opened."""

    reason = "not_sealed_here"


class SealingKeys:
    """The keys of one file: the first seals, all of them open. Nothing shows them."""

    __slots__ = ("_ciphers", "_random_bytes", "current")

    def __init__(self, keys: Mapping[str, bytes], *, random_bytes: Callable[[int], bytes]) -> None:
        """`keys`: by id, in the order of the file; each has KEY_BYTES."""
        self.current: Final = next(iter(keys))
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._random_bytes = random_bytes

    @classmethod
    def read(cls, file: Path, *, random_bytes: Callable[[int], bytes]) -> SealingKeys:
        """The keys in `file`: one a line, `<id> <64 hex digits>`; `#` starts a comment.

        Raises Misconfigured for a file that cannot be used, naming the line and nothing that stands in it.
        """
        return cls(_parse(read_key_file(file, SETTING)), random_bytes=random_bytes)

    def seal(self, secret: bytes, *belongs_to: str) -> bytes:
        """The secret as it may be kept; `belongs_to` has to be named again to open it, in the same order."""
        header = self.current_header
        nonce = self._random_bytes(_NONCE_BYTES)
        sealed = self._ciphers[self.current].encrypt(nonce, secret, _authenticated(header, belongs_to))
        return header + nonce + sealed

    def open(self, sealed: bytes, *belongs_to: str) -> bytes:
        """The secret; raises NotSealedHere, whatever the cause: another key, owner or form, or bytes that changed."""
        key_id, header = _read_header(sealed)
        cipher = self._ciphers.get(key_id)
        nonce, rest = sealed[len(header) : len(header) + _NONCE_BYTES], sealed[len(header) + _NONCE_BYTES :]
        if cipher is None or len(rest) < _TAG_BYTES:
            raise NotSealedHere
        try:
            return cipher.decrypt(nonce, rest, _authenticated(header, belongs_to))
        except InvalidTag:
            raise NotSealedHere from None

    def reseal(self, sealed: bytes, *belongs_to: str) -> bytes | None:
        """The same secret, sealed by the current key; None: it is already. Raises NotSealedHere."""
        secret = self.open(sealed, *belongs_to)
        return None if sealed.startswith(self.current_header) else self.seal(secret, *belongs_to)

    @property
    def current_header(self) -> bytes:
        """How all begins that the current key sealed, and nothing else."""
        return bytes((_VERSION, len(self.current))) + self.current.encode()


def _read_header(sealed: bytes) -> tuple[str, bytes]:
    if len(sealed) < 2 or sealed[0] != _VERSION:
        raise NotSealedHere
    header = sealed[: 2 + sealed[1]]
    return header[2:].decode("ascii", "replace"), header


def _authenticated(header: bytes, belongs_to: tuple[str, ...]) -> bytes:
    parts = (header, *(part.encode() for part in belongs_to))
    return b"".join(len(part).to_bytes(_LENGTH_BYTES) + part for part in parts)


def _parse(text: str) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not _KEY_ID.fullmatch(words[0]) or not _KEY.fullmatch(words[1]):
            raise unusable(SETTING, f"line {number} is not an id and {2 * KEY_BYTES} hex digits in lower case")
        key = bytes.fromhex(words[1])
        if len(set(key)) < _LEAST_DISTINCT_BYTES:
            raise unusable(SETTING, f"the key in line {number} is not random (openssl rand -hex {KEY_BYTES} makes one)")
        if words[0] in keys or key in keys.values():
            raise unusable(SETTING, f"the id or the key in line {number} stands there twice")
        keys[words[0]] = key
    if not keys:
        raise unusable(SETTING, "it holds no key")
    if len(keys) > MAX_KEYS:
        raise unusable(SETTING, f"it holds more than {MAX_KEYS} keys")
    return keys
