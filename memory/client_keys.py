"""The keys by which Spaces believe who this server is: their file, and where and how they are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from memory.es256 import ALGORITHM, Es256Key, NotAnEs256Key
from memory.key_files import read_key_file, unusable

SETTING: Final = "SPACES_CLIENT_KEY_FILE"
METADATA_PATH: Final = "/client-metadata.json"
KEYS_PATH: Final = "/jwks.json"
MAX_KEYS: Final = 10

_BLOCK: Final = re.compile(r"-----BEGIN PRIVATE KEY-----\n[A-Za-z0-9+/=\n]+-----END PRIVATE KEY-----")


def read_client_keys(file: Path) -> tuple[Es256Key, ...]:
    """The keys in `file`: P-256, PKCS #8 in PEM, one after the other; the first signs. Raises Misconfigured."""
    text = read_key_file(file, SETTING).replace("\r\n", "\n")
    blocks = _BLOCK.findall(text)
    if not blocks or _BLOCK.sub("", text).strip():
        raise unusable(SETTING, "it is not one PRIVATE KEY after the other, in PEM")
    if len(blocks) > MAX_KEYS:
        raise unusable(SETTING, f"it holds more than {MAX_KEYS} keys")
    keys = tuple(_key(block, number) for number, block in enumerate(blocks, start=1))
    if len({key.thumbprint for key in keys}) < len(keys):
        raise unusable(SETTING, "one of its keys stands there twice")
    return keys


def key_set(keys: Sequence[Es256Key]) -> bytes:
    """What is public of them, as a JSON Web Key Set."""
    shown = [{**key.jwk, "kid": key.thumbprint, "use": "sig", "alg": ALGORITHM} for key in keys]
    return json.dumps({"keys": shown}, separators=(",", ":")).encode()


def _key(block: str, number: int) -> Es256Key:
    try:
        key = load_pem_private_key(block.encode(), password=None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return Es256Key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm, NotAnEs256Key):
        pass
    raise unusable(SETTING, f"key {number} is none of P-256")
