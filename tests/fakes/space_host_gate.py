"""Who asks a Space host: with a credential and a proof, with a session of one's own, or by service auth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, cast

from tests.fakes.space_host_faults import Call
from tests.fakes.space_host_tokens import (
    CREDENTIAL,
    DELEGATION,
    HOST,
    Refused,
    Token,
    authority_of,
    judge_expiry,
    judge_proof,
    read_token,
)
from tests.fakes.space_host_world import World

_NONCE: Final = "Authorization server requires nonce in DPoP proof"
_ALGORITHMS: Final = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES256K ES384 ES512"
_NONCE_HEADERS: Final = (
    "dpop-nonce: mandarin",
    "access-control-expose-headers: DPoP-Nonce, WWW-Authenticate",
    f'www-authenticate: DPoP algs="{_ALGORITHMS}", error="use_dpop_nonce", error_description="{_NONCE}"',
)


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who signed in to their own PDS."""

    did: str
    app_password: bool = False


@dataclass
class Gate:
    """What one host believes. It remembers proofs and tokens that it saw; another host does not."""

    world: World
    url: str = ""  # as the world knows the host
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    proofs: set[str] = field(default_factory=set[str])  # their `jti`

    def open_session(self, did: str, *, app_password: bool = False) -> str:
        """An access token for writes, and for delegation tokens."""
        token = f"session.{self.world.jti()}"
        self.sessions[token] = Session(did, app_password)
        return token

    def reader(self, call: Call, space: str) -> Session | None:
        """Whose session it is; none for a credential of that Space."""
        scheme, token = _authorization(call)
        if scheme == "Bearer":
            return self._session(token)
        if read_token(token).typ != CREDENTIAL:
            _ask_for_a_nonce()
        self.judge_credential(call, space)
        return None

    def session(self, call: Call) -> Session:
        scheme, token = _authorization(call)
        if scheme != "Bearer":
            _ask_for_a_nonce()
        return self._session(token)

    def _session(self, token: str) -> Session:
        if token not in self.sessions:
            raise Refused(400, "InvalidToken", "Token could not be verified")
        return self.sessions[token]

    def judge_credential(self, call: Call, space: str) -> None:
        """Whether a credential of that Space was given, by who holds its key."""
        _, text = _authorization(call)
        token = read_token(text)
        jkt = _bound_to(token)
        judge_expiry(token, self.world.clock())
        if token.says("iss") != authority_of(token.says("sub")):
            raise Refused(401, "BadJwtIss", "space credential issuer is not the space authority")
        self.world.judge(token)
        key, jti = self._judge_proof(call, text)
        if key != jkt:
            message = "DPoP proof is not signed by the key the credential is bound to"
            raise Refused(401, "DpopKeyMismatch", message)
        self._see(jti)
        if token.says("sub") != space:
            raise Refused(400, "InvalidCredential", "Credential is not scoped to this space")

    def judge_delegation(self, call: Call, burnt: set[str]) -> tuple[Token, str]:
        """A delegation token and the thumbprint of the key that the credential is for.

        The token is burnt by the first proof that is good, whatever comes of it then.
        """
        _, text = _authorization(call)
        token = read_token(text)
        if token.typ != DELEGATION:
            raise Refused(401, "BadJwtType", f'wrong token type: expected "{DELEGATION}", got "{token.typ}"')
        _kid(token)
        if token.claims.get("aud") != authority_of(token.says("sub")) + HOST:
            raise Refused(401, "BadJwtAudience", "delegation token audience does not match the space authority")
        self.world.judge(token)
        key, jti = self._judge_proof(call, None)
        self._see(jti)
        if token.says("jti") in burnt:
            raise Refused(401, "JwtReplayed", "delegation token has already been used")
        burnt.add(token.says("jti"))
        return token, key

    def judge_service(self, call: Call) -> Token:
        """Service auth for this very method."""
        _, text = _authorization(call)
        token = read_token(text)
        judge_expiry(token, self.world.clock())
        if token.claims.get("lxm") != call.nsid:
            message = f'bad jwt lexicon method ("lxm"). must match: {call.nsid}'
            raise Refused(401, "BadJwtLexiconMethod", message)
        key = self.world.documents.get(token.says("iss"), {}).get("#atproto")
        if key is None or not token.is_signed_by(key):
            raise Refused(401, "BadJwtSignature", "jwt signature does not match jwt issuer")
        return token

    def _judge_proof(self, call: Call, credential: str | None) -> tuple[str, str]:
        url = f"{self.url}/xrpc/{call.nsid}"
        return judge_proof(call.headers.get("dpop"), call.verb, url, self.world.clock(), credential=credential)

    def _see(self, jti: str) -> None:
        if jti in self.proofs:
            raise Refused(401, "BadDpopProof", "DPoP proof replayed")
        self.proofs.add(jti)


def _authorization(call: Call) -> tuple[str, str]:
    scheme, _, token = call.headers.get("authorization", "").partition(" ")
    if not token:
        raise Refused(401, "AuthMissing", "Authentication Required")
    return scheme, token


def _kid(token: Token) -> None:
    if not token.header.get("kid"):
        raise Refused(401, "BadJwt", 'missing token "kid"')


def _bound_to(token: Token) -> str:
    _kid(token)
    confirmation = token.claims.get("cnf")
    jkt = cast("Mapping[str, Any]", confirmation).get("jkt") if isinstance(confirmation, Mapping) else None
    if not isinstance(jkt, str):
        raise Refused(401, "BadJwtCnf", 'missing token "cnf.jkt"')
    return jkt


def _ask_for_a_nonce() -> NoReturn:
    raise Refused(401, "use_dpop_nonce", _NONCE, *_NONCE_HEADERS)
