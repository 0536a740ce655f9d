"""Who this server is, for Spaces that let only named apps read them: an OAuth client, by the URL of its metadata.

No user signs in here: the metadata is there for the keys that it leads to, and has the rest of what an authority
expects of any client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from memory.errors import Misconfigured
from memory.es256 import ALGORITHM, Es256Key, NotAnEs256Key
from memory.key_files import read_key_file, unusable
from memory.space_protocol import ATTESTATION_LIFETIME, TokenType, space_host_audience

SETTING: Final = "SPACES_CLIENT_KEY_FILE"
METADATA_PATH: Final = "/client-metadata.json"
KEYS_PATH: Final = "/jwks.json"
MAX_KEYS: Final = 10

_JTI_BYTES: Final = 16
_BLOCK: Final = re.compile(r"-----BEGIN PRIVATE KEY-----\n[A-Za-z0-9+/=\n]+-----END PRIVATE KEY-----")


class ClientAttestation:
    """Says who this server is, signed by the first of its keys; the others were, and are still shown."""

    def __init__(self, keys: Sequence[Es256Key], *, public_url: str) -> None:
        """`public_url`: where the metadata can be fetched by everybody, without a slash at the end."""
        self._keys = tuple(keys)
        self._public_url = public_url
        self.client_id: Final = public_url + METADATA_PATH

    @classmethod
    def read(cls, file: Path, *, public_url: str) -> ClientAttestation:
        """By the keys in `file`: P-256, PKCS #8 in PEM, one after the other. Raises Misconfigured.

        `public_url` has to be one by HTTPS: no authority would fetch anything else.
        """
        if not public_url.startswith("https://"):
            raise Misconfigured(f"With {SETTING}, APPVIEW_PUBLIC_URL must be set, and by https://.", setting=SETTING)
        return cls(_parse(read_key_file(file, SETTING)), public_url=public_url)

    def attest(self, authority: str, *, now: datetime, random_bytes: Callable[[int], bytes]) -> str:
        """An attestation for one exchange with the Space host of `authority`, a DID."""
        issued = int(now.timestamp())
        key = self._keys[0]
        return key.sign_jwt(
            {"typ": TokenType.CLIENT_ATTESTATION, "alg": ALGORITHM, "kid": key.thumbprint},
            {
                "iss": self.client_id,
                "sub": self.client_id,
                "aud": space_host_audience(authority),
                "iat": issued,
                "exp": issued + int(ATTESTATION_LIFETIME.total_seconds()),
                "jti": random_bytes(_JTI_BYTES).hex(),
            },
        )

    def metadata(self) -> bytes:
        """What stands at `client_id`, as JSON."""
        return orjson.dumps(
            {
                "client_id": self.client_id,
                "client_name": "Memory AppView",
                "client_uri": self._public_url,
                "application_type": "web",
                "redirect_uris": [f"{self._public_url}/"],
                "response_types": ["code"],
                "grant_types": ["authorization_code"],
                "scope": "atproto",
                "token_endpoint_auth_method": "private_key_jwt",
                "token_endpoint_auth_signing_alg": ALGORITHM,
                "dpop_bound_access_tokens": True,
                "jwks_uri": self._public_url + KEYS_PATH,
            }
        )

    def key_set(self) -> bytes:
        """The public keys, as a JSON Web Key Set."""
        keys = [{**key.jwk, "kid": key.thumbprint, "use": "sig", "alg": ALGORITHM} for key in self._keys]
        return orjson.dumps({"keys": keys})


def _parse(text: str) -> list[Es256Key]:
    text = text.replace("\r\n", "\n")
    blocks = _BLOCK.findall(text)
    if not blocks or _BLOCK.sub("", text).strip():
        raise unusable(SETTING, "it is not one PRIVATE KEY after the other, in PEM")
    if len(blocks) > MAX_KEYS:
        raise unusable(SETTING, f"it holds more than {MAX_KEYS} keys")
    keys = [_key(block, number) for number, block in enumerate(blocks, start=1)]
    if len({key.thumbprint for key in keys}) < len(keys):
        raise unusable(SETTING, "one of its keys stands there twice")
    return keys


def _key(block: str, number: int) -> Es256Key:
    try:
        key = load_pem_private_key(block.encode(), password=None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return Es256Key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm, NotAnEs256Key):
        pass
    raise unusable(SETTING, f"key {number} is none of P-256")
