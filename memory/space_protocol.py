"""Permissioned Spaces as proposal 0016 has them: each name and number of it, here and nowhere else.

It is a draft. What stands here was read in the proposal and seen in the answers of its reference implementation
(bluesky-social/atproto, branch `permissioned-data`, 89deb9fa), which wins where the two differ.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final


class SpaceMethod(StrEnum):
    """XRPC methods, by NSID. Where each is asked: at the user's PDS, the Space's host, an author's host, or here."""

    # At the user's PDS, with the user's session.
    GET_DELEGATION_TOKEN = "com.atproto.space.getDelegationToken"  # noqa: S105 - a method's name

    # At the Space's host.
    GET_SPACE_CREDENTIAL = "com.atproto.space.getSpaceCredential"
    LIST_REPOS = "com.atproto.space.listRepos"
    REGISTER_NOTIFY = "com.atproto.space.registerNotify"
    UNREGISTER_NOTIFY = "com.atproto.space.unregisterNotify"

    # At an author's host.
    GET_LATEST_COMMIT = "com.atproto.space.getLatestCommit"
    GET_REPO = "com.atproto.space.getRepo"
    LIST_REPO_OPS = "com.atproto.space.listRepoOps"
    GET_RECORD = "com.atproto.space.getRecord"
    LIST_RECORDS = "com.atproto.space.listRecords"
    LIST_BLOBS = "com.atproto.space.listBlobs"
    GET_BLOB = "com.atproto.space.getBlob"

    # At an author's host, with the author's own session.
    LIST_SPACES = "com.atproto.space.listSpaces"
    CREATE_RECORD = "com.atproto.space.createRecord"
    PUT_RECORD = "com.atproto.space.putRecord"
    DELETE_RECORD = "com.atproto.space.deleteRecord"
    APPLY_WRITES = "com.atproto.space.applyWrites"

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
    BAD_JWT_CNF = "BadJwtCnf"
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
    RECORD_NOT_FOUND = "RecordNotFound"
    BLOB_NOT_FOUND = "BlobNotFound"
    INVALID_REQUEST = "InvalidRequest"
    MALFORMED_CURSOR = "MalformedCursor"

    # Registrations, status 400.
    SERVICE_NOT_RESOLVABLE = "ServiceNotResolvable"

    # Sessions and notifications that may not do what they ask for, status 403.
    FORBIDDEN = "Forbidden"
    SCOPE_MISSING = "ScopeMissingError"


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

CAR_TYPE: Final = "application/vnd.ipld.car"
"""The content type of `getRepo`."""

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

NOTIFICATION_TOKEN_LIFETIME: Final = timedelta(seconds=60)
"""Of the service auth that comes with a notification."""

REGISTRATION_LIFETIME: Final = timedelta(hours=24)
"""How long notifications come after `registerNotify`; its answer says until when."""

PROOF_AGE_MAX: Final = timedelta(seconds=60)
"""How old the `iat` of a DPoP proof may be."""

CLOCK_SKEW: Final = timedelta(seconds=5)
"""What hosts allow beyond it, before `iat`, and behind the `exp` of any token."""

REV_LEAD_MAX: Final = timedelta(minutes=5)
"""How far ahead of our clock a rev may be. Ours, as for public repos: hosts take any."""


def delegation_scope(space_type: str) -> str:
    """The OAuth scope that lets an app ask for delegation tokens of all Spaces of a type, whoever governs them."""
    return f"space:{space_type}?authority=*&action=read"


def space_host_audience(authority: str) -> str:
    """The `aud` of whatever is shown to the Space's host in exchange for a credential."""
    return f"{authority}{SPACE_HOST_FRAGMENT}"
