"""What a Space host answers as the authority's: credentials, writers, subscriptions, and hearing of writes."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.fakes.space_bytes import from_json, to_json
from tests.fakes.space_host_faults import PRIVATE, Answer, Call, in_json
from tests.fakes.space_host_gate import Gate
from tests.fakes.space_host_params import judged_body
from tests.fakes.space_host_reads import cursor_of, paged
from tests.fakes.space_host_spaces import SUBSCRIBED_FOR, Governed
from tests.fakes.space_host_tokens import Refused


class Authority:
    """The Spaces of one host, asked from outside."""

    def __init__(self, gate: Gate, governed: Governed) -> None:
        self._gate = gate
        self._governed = governed

    def credential(self, call: Call) -> Answer:
        """A delegation token for a credential."""
        token, jkt = self._gate.judge_delegation(call, self._governed.burnt)
        body = judged_body(call)
        if token.says("sub") != body["space"]:
            message = "Delegation token subject does not match requested space"
            raise Refused(400, "InvalidDelegationToken", message)
        credential = self._governed.credential(body["space"], token.says("iss"), body.get("clientAttestation"), jkt)
        return in_json({"credential": credential}, 200, *PRIVATE)

    def listing(self, call: Call) -> Answer:
        """Who writes in a Space, and where they stand as far as they told."""
        self._gate.judge_credential(call, call.parameters["space"])
        space = self._governed.find(call.parameters["space"])
        after = cursor_of(call) or ""
        page, cursor = paged(call, [did for did in sorted(space.listing) if did > after], str)
        repos = [{"did": did, "rev": space.listing[did][0], "hash": to_json(space.listing[did][1])} for did in page]
        return in_json({**cursor, "repos": repos}, 200, *PRIVATE)

    def subscription(self, call: Call) -> Answer:
        """To be told, or no longer."""
        body = judged_body(call)
        self._gate.judge_credential(call, body["space"])
        space = self._governed.find(body["space"])
        service = body["service"]
        if call.method == "unregisterNotify":
            space.subscribers.pop(service, None)
            return Answer(200, b"", None, PRIVATE)
        if service not in self._gate.world.services:
            message = f"Could not resolve a service endpoint for {service}"
            raise Refused(400, "ServiceNotResolvable", message)
        until = self._gate.world.clock() + SUBSCRIBED_FOR
        space.subscribers[service] = until
        return in_json({"expiresAt": _iso(until)}, 200, *PRIVATE)

    def heard(self, call: Call) -> Answer:
        """What the host of a writer tells, and whoever holds the writer's key; true or not."""
        token = self._gate.judge_service(call)
        body = judged_body(call)
        space = self._governed.find(body["space"])
        if token.claims.get("aud") != space.authority.did:
            raise Refused(403, "Forbidden", "notifyWrite aud does not match the space authority")
        if token.says("iss") != body["repo"]:
            raise Refused(403, "Forbidden", "notifyWrite iss does not match claimed writer")
        if not self._governed.hear(space.uri, body["repo"], body["rev"], from_json(body["hash"])):
            raise Refused(403, "Forbidden", "notifyWrite writer is not authorized")
        return Answer(200, b"", None, PRIVATE)


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
