"""Requests over all faces, drawn at random, with credentials good and bad; and what is wrong with their answers.

async with asking(cluster, seed) as asker:
    for _ in range(1_000):
        fault = await asker.ask_one()     # null: nothing is wrong

What a credential is used for has to be answered as if there were nothing but what it may read: by the very bytes that
come from an index that never held anything else. And nothing by which a memory is known that may not be read may stand
in an answer, whatever that other index says. In between, viewers and authorities act (`isolation_acts.py`), so that it
changes who may read what.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx

from appview.faces.assistants.face import PREFIX as ASSISTANTS
from appview.faces.stores.endpoints import PREFIX as STORES
from appview.faces.xrpc import PREFIX as XRPC
from appview.keys import Key, uri_of
from appview.store.stores import StoreKey
from memory.cluster import Cluster
from tests.api_client import NOW
from tests.isolation import (
    AUTHORS,
    IDS,
    KEYS,
    RKEYS,
    SPACES,
    UNKNOWN,
    VIEWERS,
    WORDS,
    App,
    Cast,
    Marks,
    draw_cast,
    load_marks,
    mark_of,
    own_rkey,
)
from tests.isolation_acts import Actor, acting
from tests.isolation_answers import BUSY, Ask, Fault, Refusals, Why, bytes_of, is_kept_private
from tests.isolation_indexes import Indexes, indexes
from tests.memory_rows import day, text
from tests.service_tokens import ALGORITHMS, SEARCH, claims, signed

NSID: Final = "dev.bastienrobert.memory."
_CURSORS: Final = {"cursor": "cursor", "nextPageToken": "pageToken", "next_page": "page"}  # in an answer → in a request
_POOL: Final = 50
_ACTS: Final = 0.08  # of all that is done


@dataclass(frozen=True, slots=True)
class Who:
    """A credential, and the app if it is one's. Null: none. `id`: whom it stands for, if it holds."""

    credential: str | None
    app: App | None = None
    id: str = ""


class Asker:
    """Who asks what, and the indexes that answer: `whole`, and one for each set of Spaces."""

    def __init__(self, draw: random.Random, cast: Cast, made: Indexes, actor: Actor, marks: Marks) -> None:
        self.draw = draw
        self.cast = cast
        self.made = made
        self.actor = actor
        self.marks = marks
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.seen: Counter[str] = Counter()  # by Space, answers that had something of it
        self.pages: list[tuple[Ask, Who]] = []
        self.tags: list[tuple[Ask, str]] = []
        self.versions: list[str] = []
        self.refusals = Refusals()

    async def ask_one(self) -> Fault | None:
        """One request, to the whole index and to its twin; or something is done."""
        if self.draw.random() < _ACTS:
            wrong = await self.actor.act()
            return None if wrong is None else Fault(Why.DONE, None, wrong, "")
        ask, who, page_of = self._draw()
        readable = self.cast.readable(who.app) if who.app is not None else frozenset[str]()
        twin = await self.made.twin(readable)
        if who.app is not None and who.app.token is not None:
            await twin.know(who.app.token, readable)
        headers = [*ask.headers]
        if who.credential is not None:
            headers.append(("authorization", f"Bearer {who.credential}"))
        answer, instead = await asyncio.gather(
            *(
                index.send(ask.verb, ask.path, params=list(ask.query), json=ask.body, headers=headers)
                for index in (self.actor.whole, twin)
            )
        )
        self._learn(ask, who, answer)
        if BUSY in (answer.status_code, instead.status_code) and not self.marks.found(bytes_of(answer)):
            return None  # by a machine that has much to do; it is counted
        why = self._judge(answer, instead, readable)
        if why is None and page_of is not None and page_of.id != who.id and answer.status_code == 200:
            why = Why.TAKEN
        if why is None and ask.named - readable and not self.refusals.has(ask, answer):
            why = Why.TAKEN_FOR_NOTHING
        return None if why is None else Fault(why, ask, answer.text, instead.text)

    def _judge(self, answer: httpx.Response, twin: httpx.Response, readable: frozenset[str]) -> Why | None:
        shown = bytes_of(answer)
        spaces = self.marks.found(shown)
        if not spaces <= readable:
            return Why.SHOWN
        self.seen.update(spaces)
        if answer.status_code >= 500:
            return Why.FAILED
        if spaces and not is_kept_private(answer):
            return Why.KEPT
        return Why.DIFFERS if shown != bytes_of(twin) else None

    def _learn(self, ask: Ask, who: Who, answer: httpx.Response) -> None:
        self.statuses[ask.face, answer.status_code] += 1
        if answer.status_code != 200 or "ndjson" in answer.headers["content-type"]:
            return
        body = answer.json()
        for name, parameter in _CURSORS.items():
            if body.get(name):
                _keep(self.draw, self.pages, (ask.on_from(parameter, body[name]), who))
        if "etag" in answer.headers:
            _keep(self.draw, self.tags, (ask, answer.headers["etag"]))
        if ask.path.endswith("memory_versions"):
            for version in body["data"]:
                _keep(self.draw, self.versions, version["id"])

    # Who

    def _draw(self) -> tuple[Ask, Who, Who | None]:
        """What is asked, who asks, and whose page cursor it has."""
        draw = self.draw
        chance = draw.random()
        if self.pages and chance < 0.15:
            ask, who = draw.choice(self.pages)
            return ask, who if draw.random() < 0.7 else self._who(ask), who
        if self.tags and chance < 0.2:
            ask, tag = draw.choice(self.tags)
            ask = replace(
                ask, headers=(*(pair for pair in ask.headers if pair[0] != "if-none-match"), ("if-none-match", tag))
            )
        else:
            ask = draw.choice(
                (self._search, self._search, self._list, self._by_id, self._stats, self._store, self._assist)
            )()
        return ask, self._who(ask), None

    def _who(self, ask: Ask) -> Who:
        draw = self.draw
        chance = draw.random()
        if chance < 0.05:
            return Who(None)
        if chance < 0.15:
            viewer = draw.choice(VIEWERS)
            said = claims(viewer, self.cast.now, lxm=draw.choice((ask.lxm, ask.lxm, SEARCH)))
            by = viewer if draw.random() < 0.8 else draw.choice(VIEWERS)
            return Who(signed(KEYS[by], ALGORITHMS["k256"], said).decode(), id=viewer)
        able = [app for app in self.cast.apps if self.cast.readable(app)]
        app: App = draw.choice(able) if able and chance < 0.7 else draw.choice(self.cast.apps)
        return Who(app.text, app, app.text)

    # What

    def _spaces(self) -> list[str]:
        return self.draw.sample((*SPACES, UNKNOWN, SPACES[0] + "x"), k=self.draw.choice((1, 1, 1, 2)))

    def _uri(self) -> Key:
        draw = self.draw
        space, author = draw.choice(("", *SPACES, UNKNOWN)), draw.choice(AUTHORS)
        own = space in SPACES and draw.random() < 0.2
        return Key(author, space, own_rkey(space, author) if own else draw.choice(RKEYS))

    def _words(self) -> str:
        draw = self.draw
        words = draw.choices(WORDS, k=draw.choice((1, 2, 3)))
        if draw.random() < 0.3:
            words.append(mark_of(draw.choice(SPACES), draw.choice(AUTHORS), draw.choice(RKEYS)))
        if draw.random() < 0.15:
            words[0] = f'"{words[0]}"'
        if draw.random() < 0.15 and len(words) > 1:
            words[-1] = f"-{words[-1]}"
        return " ".join(words)

    def _value(self) -> str:
        draw = self.draw
        mark = mark_of(draw.choice(SPACES), draw.choice(AUTHORS), draw.choice(RKEYS))
        return draw.choice(("a", "b", "", f"a{mark}"))

    def _filters(self) -> dict[str, Any]:
        draw = self.draw
        drawn: dict[str, Any] = {
            "repo": draw.sample([*AUTHORS, f"{AUTHORS[0][8:16]}.test"], k=draw.choice((1, 2))),
            "space": self._spaces(),
            "publicOnly": draw.random() < 0.5,
            "kind": [self._value()],
            "scope": [self._value()],
            "agent": [self._value()],
            "client": [self._value()],
            "createdAfter": text(day(draw.randint(1, 60))),
            "occurredBefore": "2021-01-01T00:00:00Z",
            "asOf": text(day(draw.randint(1, 100))),
            "includeSuperseded": draw.random() < 0.7,
        }
        weights = {"repo": 0.3, "space": 0.3, "includeSuperseded": 0.4}
        return {name: value for name, value in drawn.items() if draw.random() < weights.get(name, 0.06)}

    def _search(self) -> Ask:
        draw = self.draw
        asked: dict[str, Any] = {"q": self._words(), **self._filters(), "limit": draw.choice((1, 3, 10, 100))}
        asked["mode"] = draw.choice(("hybrid", "lexical", "semantic"))
        if draw.random() < 0.3:
            asked["explain"] = True
        if draw.random() < 0.3:
            asked["explainUri"] = uri_of(self._uri())
        if draw.random() < 0.2:
            asked["minScore"] = draw.choice((0, 500))
        if draw.random() < 0.1:
            asked["prefix"] = True
        if draw.random() < 0.3:
            return Ask("POST", f"{XRPC}{NSID}searchRecords", body=asked)
        return Ask("GET", f"{XRPC}{NSID}searchRecords", _pairs(asked))

    def _list(self) -> Ask:
        draw = self.draw
        asked = self._filters() | {"order": draw.choice(("newest", "oldest", "occurred"))}
        if draw.random() < 0.2:
            lines = (("accept", "application/x-ndjson"),)
            return Ask("GET", f"{XRPC}{NSID}listRecords", _pairs(asked), headers=lines)
        asked["limit"] = draw.choice((1, 3, 25, 100))
        return Ask("GET", f"{XRPC}{NSID}listRecords", _pairs(asked))

    def _by_id(self) -> Ask:
        method = self.draw.choice(("getRecord", "getHistory"))
        asked: dict[str, Any] = {"uri": uri_of(self._uri())}
        if method == "getHistory":
            asked["limit"] = self.draw.choice((1, 5, 100))
        return Ask("GET", f"{XRPC}{NSID}{method}", _pairs(asked))

    def _stats(self) -> Ask:
        asked = {"repo": self.draw.choice(AUTHORS)} if self.draw.random() < 0.5 else {}
        return Ask("GET", f"{XRPC}{NSID}getStats", _pairs(asked))

    def _store(self) -> Ask:
        draw = self.draw
        key = self._uri()
        stores = f"{STORES}memory_stores"
        store = f"{stores}/{IDS.of_store(StoreKey(key.repo, key.space))}"
        limit = str(draw.choice((1, 5, 100)))
        match draw.randrange(7):
            case 0:
                names = ("did:plc:", "a", *(author[:13] for author in AUTHORS))
                asked = [("limit", limit)] + ([("name", draw.choice(names))] if draw.random() < 0.3 else [])
                if draw.random() < 0.3:
                    asked.append(("include_archived", "true"))
                return Ask("GET", stores, (*asked, *self._beside(store.rpartition("/")[2])))
            case 1:
                return Ask("GET", store)
            case 2:
                asked = [("limit", limit), ("include_superseded", draw.choice(("true", "false")))]
                if draw.random() < 0.2:
                    asked.append(("path_prefix", draw.choice(("default/", "a", "azq"))))
                return Ask("GET", f"{store}/memories", (*asked, *self._beside(IDS.of_memory(key))))
            case 3:
                return Ask("GET", f"{store}/memories/{IDS.of_memory(key)}")
            case 4:
                return Ask("GET", f"{store}/memory_versions", (("limit", limit), ("memory_id", IDS.of_memory(key))))
            case 5 if self.versions:
                return Ask("GET", f"{store}/memory_versions/{draw.choice(self.versions)}")
            case _:
                return Ask("GET", f"{store}/memory_versions", (("limit", limit),))

    def _beside(self, object_id: str) -> tuple[tuple[str, str], ...]:
        """Sometimes, where a list begins or ends."""
        draw = self.draw
        return ((draw.choice(("after_id", "before_id")), object_id),) if draw.random() < 0.2 else ()

    def _assist(self) -> Ask:
        draw = self.draw
        method = draw.choice(("get-memory", "list-memories", "search-memories"))
        if method == "get-memory":
            return Ask("POST", ASSISTANTS + method, body={"id": uri_of(self._uri())})
        body: dict[str, Any] = {"userId": draw.choice(AUTHORS)} if draw.random() < 0.6 else {}
        if draw.random() < 0.4:
            body["appId"] = draw.choice(("", *SPACES, UNKNOWN))
        if draw.random() < 0.2:
            body["runId"] = self._value() or "a"
        if draw.random() < 0.2:
            body["filters"] = {"space": self._spaces()}
        if method == "search-memories":
            return Ask(
                "POST", ASSISTANTS + method, body=body | {"query": self._words(), "topK": draw.choice((1, 10, 50))}
            )
        return Ask("POST", ASSISTANTS + method, body=body | {"pageSize": draw.choice((1, 5, 50))})


def _keep(draw: random.Random, pool: list[Any], item: Any) -> None:
    """The last of them, by and large."""
    if len(pool) < _POOL:
        pool.append(item)
    else:
        pool[draw.randrange(_POOL)] = item


def _pairs(asked: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for name, value in asked.items():
        values = value if isinstance(value, list) else [str(value).lower() if isinstance(value, bool) else str(value)]
        pairs += [(name, item) for item in values]
    return tuple(pairs)


@asynccontextmanager
async def asking(cluster: Cluster, seed: int) -> AsyncGenerator[Asker]:
    """A whole index, its twins, and who asks them, all drawn by a seed."""
    draw = random.Random(seed)
    drawn = draw_cast(draw, NOW)
    async with indexes(cluster, seed, drawn) as made, acting(draw, drawn, seed) as actor:
        actor.index = await made.whole(actor.opening)
        yield Asker(draw, drawn, made, actor, await load_marks(actor.whole.database))
