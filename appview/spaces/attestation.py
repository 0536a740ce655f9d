"""Who this server is, for Spaces that let only named apps read them: an OAuth client, by the URL of its metadata.

No user signs in here: the metadata is there for the keys that it leads to, and has the rest of what an authority
expects of any client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson

from memory.client_keys import KEYS_PATH, METADATA_PATH, SETTING, key_set, read_client_keys
from memory.errors import Misconfigured
from memory.es256 import ALGORITHM, Es256Key
from memory.space_protocol import ATTESTATION_LIFETIME, TokenType, space_host_audience

_JTI_BYTES: Final = 16


class ClientAttestation:
    """Says who this server is, signed by the first of its keys; the others were, and are still shown."""

    def __init__(self, keys: Sequence[Es256Key], *, public_url: str) -> None:
        """`public_url`: where the metadata can be fetched by everybody, without a slash at the end."""
        self._keys = tuple(keys)
        self._public_url = public_url
        self.client_id: Final = public_url + METADATA_PATH

    @classmethod
    def read(cls, file: Path, *, public_url: str) -> ClientAttestation:
        """By the keys in `file`, as read_client_keys. Raises Misconfigured.

        `public_url` has to be one by HTTPS: no authority would fetch anything else.
        """
        if not public_url.startswith("https://"):
            raise Misconfigured(f"With {SETTING}, APPVIEW_PUBLIC_URL must be set, and by https://.", setting=SETTING)
        return cls(read_client_keys(file), public_url=public_url)

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
        return key_set(self._keys)
