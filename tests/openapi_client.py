"""A client that knows OpenAPI and nothing of us, `swagger-client`, asked for whatever a document has."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from jsonschema_rs import Draft202012Validator

from tests.e2e.node import NODE, installed_network

TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Asked:
    """One operation, and what is given for it."""

    path: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Mapping[str, Any] | None = None
    credentials: Mapping[str, str] = field(default_factory=dict[str, str])  # by the name of their scheme


@dataclass(frozen=True, slots=True)
class Answered:
    """What came."""

    status: int
    type: str
    body: Any


class OpenApiClient:
    """The operations of the document at a server's `/openapi.json`."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/openapi.json"
        self.document: dict[str, Any] = httpx.get(self._url).raise_for_status().json()

    def ask(self, calls: Sequence[Asked]) -> list[Answered]:
        """Calls in this order, each checked against what the document says of such an answer; raises OutOfReach."""
        asked = [
            {
                "path": each.path,
                "method": each.method,
                "parameters": each.parameters,
                "body": each.body,
                "credentials": each.credentials,
            }
            for each in calls
        ]
        done = subprocess.run(
            (NODE, installed_network() / "openapi.mjs"),
            input=json.dumps({"url": self._url, "calls": asked}),
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers = [Answered(**json.loads(line)) for line in done.stdout.splitlines()]
        for call, answer in zip(calls, answers, strict=True):
            self._check(call, answer)
        return answers

    def _check(self, call: Asked, answer: Answered) -> None:
        described = self.document["paths"][call.path][call.method]["responses"][str(answer.status)]
        schema = described["content"][answer.type.partition(";")[0]]["schema"]
        components = {"schemas": self.document["components"]["schemas"]}
        Draft202012Validator({**schema, "components": components}).validate(answer.body)
