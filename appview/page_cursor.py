"""Page cursors: where a page ended, sealed so that only the same question by the same viewer can go on from there."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import orjson

from appview.refusals import InvalidCursor

Place: TypeAlias = "Sequence[Place] | str | int | float | bool | None"

_MAC_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Question:
    """What a cursor holds good for: who asked which method with which parameters (`Parameters.fingerprint`)."""

    viewer: str
    method: str
    parameters: bytes

    def digest(self) -> bytes:
        """One hash over the three, their borders included."""
        return hashlib.sha256(orjson.dumps([self.viewer, self.method, self.parameters.decode()])).digest()


@dataclass(frozen=True, slots=True, repr=False)
class PageCursors:
    """Seals and opens page cursors with the key that all API processes of one index share."""

    key: bytes

    def seal(self, question: Question, place: Place) -> str:
        """The text for `cursor`: URL-safe, not secret, of no use with another question."""
        payload = orjson.dumps(place)
        return urlsafe_b64encode(self._mac(question, payload) + payload).rstrip(b"=").decode()

    def open(self, question: Question, text: str) -> Place:
        """The place that `seal` was given; InvalidCursor for any other text and for another question."""
        try:
            sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            raise InvalidCursor from None
        mac, payload = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(question, payload)):
            raise InvalidCursor
        place: Place = orjson.loads(payload)
        return place

    def _mac(self, question: Question, payload: bytes) -> bytes:
        return hmac.new(self.key, question.digest() + payload, hashlib.sha256).digest()[:_MAC_BYTES]
