"""The authorities of Spaces, looked up where DID documents are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from memory.did_documents import fetch_document
from memory.identity import BadIdentity
from memory.outbound import Outbound
from memory.space_authority import SpaceAuthority, authority_of_document

MAX_AGE: Final = timedelta(minutes=10)
REFRESH_INTERVAL: Final = timedelta(minutes=1)
CAPACITY: Final = 10_000


class SpaceAuthorities:
    """Looks authorities up, and remembers the last `capacity` for ten minutes."""

    def __init__(
        self, outbound: Outbound, *, plc_url: str, clock: Callable[[], datetime], capacity: int = CAPACITY
    ) -> None:
        self._outbound = outbound
        self._plc_url = plc_url
        self._clock = clock
        self._capacity = capacity
        self._known: OrderedDict[str, tuple[datetime, SpaceAuthority]] = OrderedDict()

    async def resolve(self, did: str) -> SpaceAuthority:
        """The authority as it was at most ten minutes ago.

        Raises BadIdentity, or another Rejected of the DID's own host, where the DID has no document that can be used,
        and Unavailable where that cannot be told now.
        """
        return await self._not_older(did, MAX_AGE)

    async def refresh(self, did: str) -> SpaceAuthority:
        """The authority as it was at most a minute ago: after a bad signature. Raises what `resolve` raises."""
        return await self._not_older(did, REFRESH_INTERVAL)

    async def _not_older(self, did: str, max_age: timedelta) -> SpaceAuthority:
        now = self._clock()
        asked_at, known = self._known.get(did, (None, None))
        if asked_at is not None and known is not None and now - asked_at < max_age:
            return known
        document = await fetch_document(self._outbound, self._plc_url, did)
        if document is None:
            raise BadIdentity("the DID was given up", reason="tombstoned", did=did)
        authority = authority_of_document(document)
        self._known[did] = now, authority
        self._known.move_to_end(did)
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return authority
