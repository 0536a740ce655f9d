"""Permissioned Spaces as proposal 0016 has them: each name and number of it that is used, here and nowhere else.

It is a draft. What stands here was read in the proposal and seen in the answers of its reference implementation
(bluesky-social/atproto, branch `permissioned-data`, 89deb9fa), which wins where the two differ.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final


class SpaceMethod(StrEnum):
    """XRPC methods, by NSID. Where each is asked: at the Space's host, an author's host, or here."""

    # At the Space's host.
    GET_SPACE_CREDENTIAL = "com.atproto.space.getSpaceCredential"
    LIST_REPOS = "com.atproto.space.listRepos"
    REGISTER_NOTIFY = "com.atproto.space.registerNotify"

    # At an author's host.
    GET_REPO = "com.atproto.space.getRepo"
    LIST_REPO_OPS = "com.atproto.space.listRepoOps"

    # Here, from the Space's authority, with service auth; the first one also goes from an author's host to the Space's.
    NOTIFY_WRITE = "com.atproto.space.notifyWrite"
    NOTIFY_SPACE_DELETED = "com.atproto.space.notifySpaceDeleted"


class TokenType(StrEnum):
    """The `typ` in a JWT's header, which keeps a token of one kind from passing as one of another."""

    DELEGATION = "atproto-space-delegation+jwt"
    CREDENTIAL = "atproto-space-credential+jwt"
    CLIENT_ATTESTATION = "atproto-client-attestation+jwt"
    DPOP_PROOF = "dpop+jwt"


class SpaceError(StrEnum):
    """The `error` of a refusal, word for word."""

    # The exchange of a delegation token for a credential, status 400.
    SPACE_NOT_FOUND = "SpaceNotFound"  # also from the other methods at the Space's host
    SPACE_DELETED = "SpaceDeleted"
    USER_NOT_AUTHORIZED = "UserNotAuthorized"
    APP_NOT_AUTHORIZED = "AppNotAuthorized"
    NOT_AUTHORIZED = "NotAuthorized"  # does not tell which of the two; in the proposal, never seen
    INVALID_DELEGATION_TOKEN = "InvalidDelegationToken"  # noqa: S105 - an error's name
    INVALID_CLIENT_ATTESTATION = "InvalidClientAttestation"

    # Credentials, delegation tokens, service auth, status 401.
    AUTH_MISSING = "AuthMissing"
    BAD_JWT = "BadJwt"
    BAD_JWT_TYPE = "BadJwtType"
    BAD_JWT_ISS = "BadJwtIss"
    BAD_JWT_AUDIENCE = "BadJwtAudience"
    BAD_JWT_LEXICON_METHOD = "BadJwtLexiconMethod"
    BAD_JWT_SIGNATURE = "BadJwtSignature"
    JWT_EXPIRED = "JwtExpired"
    JWT_REPLAYED = "JwtReplayed"

    # DPoP proofs, status 401.
    MISSING_DPOP_PROOF = "MissingDpopProof"
    BAD_DPOP_PROOF = "BadDpopProof"  # replayed ones, and those for another request or credential
    BAD_DPOP_PROOF_SIGNATURE = "BadDpopProofSignature"  # also another algorithm or `typ`, and an `iat` in the future
    DPOP_PROOF_EXPIRED = "DpopProofExpired"
    DPOP_KEY_MISMATCH = "DpopKeyMismatch"
    USE_DPOP_NONCE = "use_dpop_nonce"  # the host took it for an OAuth token; a credential needs no nonce

    # Reads, status 400.
    INVALID_CREDENTIAL = "InvalidCredential"  # of another Space
    INVALID_TOKEN = "InvalidToken"  # noqa: S105 - an error's name
    REPO_NOT_FOUND = "RepoNotFound"  # also of an author who never wrote in the Space
    REPO_TAKENDOWN = "RepoTakendown"
    REPO_SUSPENDED = "RepoSuspended"
    REPO_DEACTIVATED = "RepoDeactivated"


SPACE_HOST_FRAGMENT: Final = "#atproto_space_host"
"""Names the Space's host in its authority's DID document, and ends the `aud` of delegation tokens and attestations.

An authority without such a service is served by its PDS; the `aud` is the same.
"""

SPACE_HOST_TYPE: Final = "AtprotoSpaceHost"

SYNCER_FRAGMENT: Final = "#atproto_space_syncer"
"""Names, in our DID document, where notifications go."""

SYNCER_TYPE: Final = "AtprotoSpaceSyncer"

PDS_FRAGMENT: Final = "#atproto_pds"

SPACE_KEY_FRAGMENT: Final = "#atproto_space"
"""The key with which an authority signs credentials, if it has one for that; a credential's `kid` says which."""

ACCOUNT_KEY_FRAGMENT: Final = "#atproto"
"""The key that signs commits, delegation tokens, and credentials where there is no other."""

DPOP_ALGORITHM: Final = "ES256"

SIGNED_COMMIT_TYPE: Final = "com.atproto.space.defs#signedCommit"
"""The `$type` that `getLatestCommit` puts into a commit, and `listRepoOps` does not."""

COMMIT_VERSION: Final = 1

CONTEXT_TAG: Final = b"atproto-space-v1"
"""How the context of a commit of this version begins."""

COMMIT_FIELDS: Final[frozenset[str]] = frozenset(("ver", "hash", "ikm", "sig", "mac", "rev"))

HASH_BYTES: Final = 32
IKM_BYTES: Final = 32
MAC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

SET_LANES: Final = 1024
"""Numbers of 16 bits in the state of a set hash."""

SET_STATE_BYTES: Final = 2 * SET_LANES

PAGE_ITEMS_MAX: Final = 1000
"""The highest `limit` of `listRepos`, `listRepoOps` and `listRecords`."""

DELEGATION_LIFETIME: Final = timedelta(seconds=60)
"""Of a delegation token, which is good for one exchange."""

CREDENTIAL_LIFETIME: Final = timedelta(hours=2)
"""What hosts of the reference implementation give; an authority of its own may give any."""

CREDENTIAL_LIFETIME_MAX: Final = CREDENTIAL_LIFETIME
"""How long a credential counts here, whatever its `exp`: after that, membership has to be proven again."""

ATTESTATION_LIFETIME: Final = timedelta(seconds=60)
"""Of a client attestation, which is good for one exchange."""

REGISTRATION_LIFETIME: Final = timedelta(hours=24)
"""How long notifications come after `registerNotify`; its answer says until when."""

REV_LEAD_MAX: Final = timedelta(minutes=5)
"""How far ahead of our clock a rev may be. Ours, as for public repos: hosts take any."""


def space_host_audience(authority: str) -> str:
    """The `aud` of whatever is shown to the Space's host in exchange for a credential."""
    return f"{authority}{SPACE_HOST_FRAGMENT}"
