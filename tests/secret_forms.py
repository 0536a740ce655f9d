"""The forms in which a secret may stand in a file or a log, and the search for them.

sought = Sought()
sought.key("DPoP key", bytes_of_it)            # as in PEM, DER, JWK, hexadecimal
sought.jwt("credential", text)                 # its claims and its signature: the header is like any other's
sought.text("password", text)
sought.found(data)                             # the names of those of which there is a part

A secret is looked for by parts, so that half of it is found too: as it is, in hexadecimal, in base64 of either alphabet
wherever it begins in what was encoded (so PEM is found across its lines), as JSON, a URL and Python write bytes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64decode
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import numpy as np

_WALKED: Final = 2**22
PART: Final = 15
"""Bytes of a part: 20 letters of base64, so that a line of PEM holds one whole part at least."""


@dataclass
class Sought:
    """Secrets by what they are called."""

    forms: dict[bytes, str] = field(default_factory=dict[bytes, str], repr=False)

    def key(self, name: str, secret: bytes) -> None:
        """Random bytes."""
        self._add(name, secret)
        self.forms[str(int.from_bytes(secret)).encode()] = name

    def text(self, name: str, secret: str) -> None:
        """Letters that stand for nothing."""
        self._add(name, secret.encode())

    def jwt(self, name: str, token: str) -> None:
        """What a JWT says, from where it tells one from another, and who signed it."""
        header, claims, signature = token.split(".")
        # What may be like another's is no secret: `typ`, `alg`, issuers. The signature, and the end of the claims, are.
        self._add(name, signature.encode())
        self._add(name, urlsafe_b64decode(signature + "=="))
        self._add(name, f"{claims[-2 * PART :]}.{signature}".encode())
        assert header

    def access_token(self, name: str, token: str) -> None:
        """The random bytes of one: what is around them, its id and its viewer, is told and kept."""
        encoded = token.removeprefix("memat_")
        secret = b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_")[12:44]
        self.key(name, secret)
        self._add(name, encoded[16:58].encode())

    def found(self, data: bytes) -> set[str]:
        """Of which some part stands there, in some form: by one walk through it, however many there are."""
        by_start: defaultdict[int, list[bytes]] = defaultdict(list)
        may_start = np.zeros(2**24, dtype=np.bool_)  # by the first three bytes
        for form in self.forms:
            by_start[int.from_bytes(form[:4], "little")].append(form)
            may_start[int.from_bytes(form[:3], "little")] = True
        found: set[str] = set()
        starts = np.array(sorted(by_start), dtype=np.uint32)
        for begin in range(0, len(data), _WALKED):
            piece = np.frombuffer(data[begin : begin + _WALKED + 3].ljust(4, b"\0"), dtype=np.uint8).astype(np.uint32)
            three = piece[:-3] | piece[1:-2] << 8 | piece[2:-1] << 16
            places = np.flatnonzero(may_start[three])
            four = three[places] | piece[places + 3] << 24
            for place, start in zip(*(each[np.isin(four, starts)].tolist() for each in (places, four)), strict=True):
                at = begin + place
                found |= {self.forms[form] for form in by_start[start] if data.startswith(form, at)}
        return found

    def _add(self, name: str, secret: bytes) -> None:
        assert len(secret) >= PART, f"{name} is too short to be told from anything"
        for at in {*range(0, len(secret) - PART, PART), len(secret) - PART}:
            self.forms |= dict.fromkeys(forms_of(secret[at : at + PART]), name)


def forms_of(part: bytes) -> set[bytes]:
    """As bytes, hexadecimal, base64, and as JSON, URLs and Python have bytes."""
    forms = {part, part.hex().encode(), part.hex().upper().encode()}
    for before in range(3):
        # What is before it takes up some of the first letter, what is behind some of the last.
        encoded = b64encode(bytes(before) + part)
        begin, end = -(-before * 8 // 6), (before + len(part)) * 8 // 6
        whole = encoded[begin:end]
        forms |= {whole, whole.replace(b"+", b"-").replace(b"/", b"_")}
    letters = part.decode("latin-1")
    forms |= {quote(part).encode(), repr(part)[2:-1].encode(), repr(letters)[1:-1].encode()}
    return forms
