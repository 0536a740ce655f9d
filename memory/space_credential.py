"""A credential for one Space, and the proofs without which it is worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from memory.dpop import ProofKey
from memory.es256 import KEY_BYTES, NotAnEs256Key
from memory.sealed import NotSealedHere, SealingKeys

_SEALED_AS: Final = "space credential"  # so that no other secret of the same Space and viewer is taken for one


@dataclass(frozen=True, slots=True, repr=False)
class SpaceCredential:
    """What reads a Space's repos for one viewer: `text` is the authority's JWT, bound to `key`."""

    text: str
    key: ProofKey

    def headers(
        self, method: str, url: str, *, now: datetime, random_bytes: Callable[[int], bytes]
    ) -> tuple[tuple[str, str], ...]:
        """The headers of one request to a host of the Space, good once."""
        proof = self.key.prove(method, url, now=now, random_bytes=random_bytes, credential=self.text)
        return ("Authorization", f"DPoP {self.text}"), ("DPoP", proof)

    def seal(self, keys: SealingKeys, *, space: str, viewer: str) -> bytes:
        """As it is kept; opens for the same Space and viewer only."""
        return keys.seal(self.key.to_bytes() + self.text.encode(), _SEALED_AS, space, viewer)


def open_credential(keys: SealingKeys, sealed: bytes, *, space: str, viewer: str) -> SpaceCredential:
    """What `SpaceCredential.seal` kept; raises NotSealedHere."""
    secret = keys.open(sealed, _SEALED_AS, space, viewer)
    try:
        return SpaceCredential(secret[KEY_BYTES:].decode("ascii"), ProofKey.from_bytes(secret[:KEY_BYTES]))
    except (NotAnEs256Key, UnicodeDecodeError):
        raise NotSealedHere from None


def reseal_credential(keys: SealingKeys, sealed: bytes, *, space: str, viewer: str) -> bytes | None:
    """The same, sealed by the key that seals now; None: it is already. Raises NotSealedHere."""
    return keys.reseal(sealed, _SEALED_AS, space, viewer)
