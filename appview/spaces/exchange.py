"""A delegation token exchanged for a credential, at the host of the Space: where its authority says who may read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from appview.jwt import MAX_TOKEN_BYTES
from appview.refusals import AuthenticationRequired, Refusal
from appview.spaces.attestation import ClientAttestation
from appview.spaces.credential import UnsignedCredential, judge_credential
from appview.spaces.delegation import Delegation
from appview.spaces.let_in import LetIn
from appview.spaces.refusals import (
    AppNotAuthorized,
    AuthorityRefused,
    InvalidClientAttestation,
    InvalidDelegationToken,
    NotAuthorized,
    SpaceDeleted,
    SpaceHostUnavailable,
    SpaceNotFound,
    UserNotAuthorized,
)
from memory.dpop import ProofKey
from memory.errors import Rejected, Unavailable
from memory.es256 import compact
from memory.outbound import Limits, Outbound
from memory.outbound_errors import ForbiddenAddress, ForbiddenUrl, HostRefused, HostUnavailable
from memory.outbound_hosts import MAX_RETRY_AFTER_S
from memory.space_authorities import SpaceAuthorities
from memory.space_authority import SpaceAuthority
from memory.space_credential import SpaceCredential
from memory.space_protocol import SpaceError, SpaceMethod

LIMITS: Final = Limits(max_bytes=16 * 1024)

_NAMED: Final[Mapping[str, type[Refusal]]] = {
    SpaceError.SPACE_NOT_FOUND: SpaceNotFound,
    SpaceError.SPACE_DELETED: SpaceDeleted,
    SpaceError.USER_NOT_AUTHORIZED: UserNotAuthorized,
    SpaceError.APP_NOT_AUTHORIZED: AppNotAuthorized,
    SpaceError.NOT_AUTHORIZED: NotAuthorized,
    SpaceError.INVALID_DELEGATION_TOKEN: InvalidDelegationToken,
    SpaceError.INVALID_CLIENT_ATTESTATION: InvalidClientAttestation,
}
_OF_THE_TOKEN: Final = frozenset(
    {
        SpaceError.BAD_JWT,
        SpaceError.BAD_JWT_TYPE,
        SpaceError.BAD_JWT_ISS,
        SpaceError.BAD_JWT_AUDIENCE,
        SpaceError.BAD_JWT_LEXICON_METHOD,
        SpaceError.BAD_JWT_SIGNATURE,
        SpaceError.JWT_EXPIRED,
        SpaceError.JWT_REPLAYED,
    }
)
_OF_OUR_PROOF: Final = frozenset(
    {
        SpaceError.AUTH_MISSING,
        SpaceError.MISSING_DPOP_PROOF,
        SpaceError.BAD_DPOP_PROOF,
        SpaceError.BAD_DPOP_PROOF_SIGNATURE,
        SpaceError.DPOP_PROOF_EXPIRED,
        SpaceError.DPOP_KEY_MISMATCH,
        SpaceError.USE_DPOP_NONCE,
    }
)


@dataclass(frozen=True, slots=True, repr=False)
class Opened:
    """A Space that a viewer was found to be allowed to read, until then."""

    credential: SpaceCredential
    expires_at: datetime


class Exchange:
    """Asks the hosts of Spaces. `client`: who this server says it is; None: it does not say.

    A Space may ask for that by refusing, which uses the delegation token up. So whoever can say, always does.
    """

    def __init__(
        self,
        outbound: Outbound,
        authorities: SpaceAuthorities,
        *,
        client: ClientAttestation | None,
        clock: Callable[[], datetime],
        random_bytes: Callable[[int], bytes],
        limits: Limits = LIMITS,
    ) -> None:
        self._outbound = outbound
        self._authorities = authorities
        self._client = client
        self._clock = clock
        self._random_bytes = random_bytes
        self._limits = limits
        self._let_in = LetIn(clock=clock)

    async def host_of(self, delegation: Delegation) -> str:
        """The URL of the host that `open` would ask. Raises SpaceNotFound and SpaceHostUnavailable."""
        return _host(await _resolved(self._authorities.resolve, delegation))

    def has_let_in(self, delegation: Delegation) -> bool:
        """Whether the authority gave a credential for that viewer within a day, as far as this process remembers."""
        return self._let_in.knows(delegation.space.authority, delegation.viewer)

    async def open(self, delegation: Delegation) -> Opened:
        """The credential for what `delegation` names, bound to a fresh key.

        Raises a Refusal of `appview/spaces/refusals.py`, whatever goes wrong: by the authority's own name where it has
        one, SpaceHostUnavailable where nothing usable was said. The token may be used up in each case.
        """
        authority = await _resolved(self._authorities.resolve, delegation)
        key = ProofKey.generate(self._random_bytes)
        text = _read_answer(await self._ask(_host(authority), delegation, key))
        unsigned = self._judge(text, delegation, key)
        await self._require_signature(unsigned, authority, delegation)
        self._let_in.remember(authority.did, delegation.viewer)
        return Opened(SpaceCredential(text, key), unsigned.expires_at)

    async def _ask(self, host: str, delegation: Delegation, key: ProofKey) -> bytes:
        url = f"{host}/xrpc/{SpaceMethod.GET_SPACE_CREDENTIAL}"
        now = self._clock()
        body = {"space": str(delegation.space)}
        if self._client is not None:
            body["clientAttestation"] = self._client.attest(
                delegation.space.authority, now=now, random_bytes=self._random_bytes
            )
        proof = key.prove("POST", url, now=now, random_bytes=self._random_bytes)
        headers = (("Authorization", f"Bearer {delegation.text}"), ("DPoP", proof))
        try:
            return await self._outbound.post(url, compact(body), self._limits, headers=headers)
        except HostRefused as refused:
            raise _refusal(refused) from None
        except (ForbiddenAddress, ForbiddenUrl):
            raise _nowhere() from None
        except Unavailable as failure:
            raise _unavailable(failure) from None
        except Rejected:
            raise _nonsense() from None

    def _judge(self, text: str, delegation: Delegation, key: ProofKey) -> UnsignedCredential:
        try:
            return judge_credential(text, space=delegation.space, jkt=key.jkt, now=self._clock())
        except AuthenticationRequired:
            raise _nonsense() from None

    async def _require_signature(
        self, unsigned: UnsignedCredential, authority: SpaceAuthority, delegation: Delegation
    ) -> None:
        if unsigned.is_signed_by(authority):
            return
        # The keys may have changed since they were looked up.
        if not unsigned.is_signed_by(await _resolved(self._authorities.refresh, delegation)):
            raise _nonsense()


class _Answer(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)
    credential: Annotated[str, StringConstraints(strict=True, max_length=MAX_TOKEN_BYTES)]


def _read_answer(answer: bytes) -> str:
    try:
        return _Answer.model_validate_json(answer).credential
    except ValidationError:
        raise _nonsense() from None


def _refusal(refused: HostRefused) -> Refusal:
    name = refused.error
    if name is None:
        return AuthorityRefused(f"The Space's host answers {refused.status}.")
    if name in _NAMED:
        return _NAMED[name]()
    if name in _OF_THE_TOKEN:
        return InvalidDelegationToken(f"The Space's authority does not take the delegation token: {name}.")
    if name in _OF_OUR_PROOF:
        return SpaceHostUnavailable(f"The Space's host does not take our proof: {name}.")
    return AuthorityRefused(f"The Space's authority refuses: {name}.")


async def _resolved(look_up: Callable[[str], Awaitable[SpaceAuthority]], delegation: Delegation) -> SpaceAuthority:
    try:
        return await look_up(delegation.space.authority)
    except Unavailable as failure:
        raise _unavailable(failure) from None
    except Rejected:
        raise _nowhere() from None


def _host(authority: SpaceAuthority) -> str:
    if authority.host is None:
        raise _nowhere()
    return authority.host


def _nowhere() -> Refusal:
    return SpaceNotFound("The Space's authority names no host that can be asked.")


def _nonsense() -> Refusal:
    return SpaceHostUnavailable("The Space's host answers with what is no credential for it.")


def _unavailable(failure: Unavailable) -> Refusal:
    wait_s = failure.retry_after_s if isinstance(failure, HostUnavailable) else None
    return SpaceHostUnavailable(retry_after_s=None if wait_s is None else ceil(min(wait_s, MAX_RETRY_AFTER_S)))
