"""One source, followed: where it starts, goes on, stops, and how it comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from indexer.frames import MAX_FRAME_BYTES
from indexer.socket import Liveness
from indexer.store import leases
from indexer.store.streams import QUARANTINED_BYTES
from memory.database import Database
from tests.builders import START, RepoBuilder, Sequence, encode_frame, memory
from tests.daemons import IMPATIENT, Running, daemon, know
from tests.fakes.relay import Close, Cut, Raw, Refusal, Relay, error_frame, info_frame, relay
from tests.feed import rkey

_NOW = START
# Not so short that a machine with much else to do takes a source for dead that answers.
PINGING = replace(IMPATIENT, liveness=Liveness(ping_interval_s=0.1, ping_timeout_s=3.0))
WATCH_CURSORS = (
    "create table seen (seq bigint)",
    """create function see() returns trigger language plpgsql
        as 'begin insert into seen values (new.seq); return null; end'""",
    "create trigger see after insert or update on sources for each row execute function see()",
)


@pytest.fixture
async def alice(database: Database) -> RepoBuilder:
    """Someone whose identity is known; her stream starts at seq 101."""
    builder = RepoBuilder("alice", stream=Sequence(100))
    await know(database, builder)
    return builder


async def set_cursor(database: Database, fake: Relay, seq: int) -> None:
    async with database.transaction() as conn:
        await leases.set_cursor(conn, fake.source.url, seq, _NOW)


def disconnects(running: Running, fake: Relay, reason: str) -> float:
    return running.metric("indexer_disconnects_total", source=fake.source.url, reason=reason)


def rejected(reason: str) -> tuple[str, str]:
    return "select times from rejections where reason = $1", reason


# Where it starts


async def test_first_start_is_live(database: Database, fake: Relay, alice: RepoBuilder):
    fake.frames = [alice.create(rkey(1), memory("before"))]
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(alice.create(rkey(2), memory("after")))
        await running.until_memories(alice, "after")
    assert fake.cursors == [None]


async def test_first_start_stores_the_seq_before_the_first_frame(database: Database, fake: Relay):
    stranger = RepoBuilder("stranger", stream=Sequence(41))
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        async with database.connection() as conn:
            for statement in WATCH_CURSORS:
                await conn.execute(statement)
        await fake.send(stranger.identity_frame())
        await running.until_cursor(fake.source, 42)
        assert await running.value("select array_agg(seq) from seen") == [41, 42]


async def test_connection_that_is_lost_before_the_first_frame_of_all_leaves_a_gap(
    database: Database, fake: Relay, alice: RepoBuilder
):
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.cut()
        fake.frames = [alice.create(rkey(1), memory("lost"))]
        await fake.until_connected(2)
        await fake.send(alice.create(rkey(2), memory("live")))
        await running.until_memories(alice, "live")
        await running.until("select gap_at from sources", is_=running.clock.now)
        assert running.metric("indexer_gaps_total", source=fake.source.url, reason="first_start") == 1
    assert fake.cursors == [None, None]


async def test_source_that_was_not_reached_at_first_leaves_no_gap(database: Database, fake: Relay, alice: RepoBuilder):
    fake.refusals = [Refusal(404)]
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(alice.create(rkey(1), memory("live")))
        await running.until_memories(alice, "live")
        assert await running.value("select gap_at from sources") is None


async def test_restart_goes_on_from_the_cursor(database: Database, fake: Relay, alice: RepoBuilder):
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(alice.create(rkey(1), memory("one")))
        await running.until_cursor(fake.source, 101)
    await fake.send(alice.create(rkey(2), memory("two")))
    async with daemon(database, fake.source) as running:
        await running.until_memories(alice, "one", "two")
    assert fake.cursors == [None, 101]


@pytest.mark.parametrize("inclusive", [True, False], ids=["at the cursor", "one past it"])
async def test_replay_starts_at_the_cursor_or_one_past_it(
    database: Database, fake: Relay, alice: RepoBuilder, inclusive: bool
):
    fake.frames = [alice.create(rkey(n), memory(f"{n}")) for n in (1, 2)]
    fake.inclusive = inclusive
    await set_cursor(database, fake, 101)
    async with daemon(database, fake.source) as running:
        await running.until_cursor(fake.source, 102)
        assert await running.value("select array_agg(content) from memories") == ["2"]
        assert (await running.repo(alice))["state"] == "pending"


async def test_cursor_of_zero_replays_all(database: Database, fake: Relay, alice: RepoBuilder):
    fake.frames = [alice.create(rkey(n), memory(f"{n}")) for n in (1, 2)]
    await set_cursor(database, fake, 0)
    async with daemon(database, fake.source) as running:
        await running.until_memories(alice, "1", "2")
    assert fake.cursors == [0]


async def test_frames_that_were_read_already_are_not_taken_again(database: Database, fake: Relay, alice: RepoBuilder):
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(alice.create(rkey(1), memory("one")))
        await running.until_cursor(fake.source, 101)
        await set_back(database, fake, 50)
        await fake.cut()
        await fake.until_connected(2)
        await fake.send(alice.create(rkey(2), memory("two")))
        await running.until_memories(alice, "one", "two")
        assert fake.cursors == [None, 50]
        await running.until_true(lambda: running.metric("indexer_commits_applied_total") == 2)
        assert await running.value("select count(*) from rejections") == 0


async def set_back(database: Database, fake: Relay, seq: int) -> None:
    """As if what was read after that were not durable yet."""
    async with database.connection() as conn:
        await conn.execute("update sources set seq = $1 where source = $2", seq, fake.source.url)


async def test_seq_may_leap(database: Database, fake: Relay, alice: RepoBuilder):
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(
            alice.create(rkey(1), memory("one"), seq=1000), alice.create(rkey(2), memory("two"), seq=2**53 - 1)
        )
        await running.until_memories(alice, "one", "two")
        await running.until_cursor(fake.source, 2**53 - 1)


async def test_source_is_asked_for_the_stream_and_nothing_else(database: Database, fake: Relay):
    async with daemon(database, fake.source):
        await fake.until_connected()
    assert fake.paths == ["/xrpc/com.atproto.sync.subscribeRepos"]
    [headers] = fake.headers
    assert {"authorization", "cookie", "origin", "sec-websocket-extensions"}.isdisjoint(
        name.lower() for name in headers
    )
    assert headers["User-Agent"] == "memory-appview"


# What a stream says of itself


async def test_future_cursor_stops_the_source_until_its_cursor_is_set(
    database: Database, fake: Relay, alice: RepoBuilder
):
    fake.frames = [alice.create(rkey(1), memory("one"))]
    fake.openings = [[error_frame("FutureCursor"), Close(1008)]]
    await set_cursor(database, fake, 5000)
    with capture_logs() as logs:
        async with daemon(database, fake.source) as running:
            await running.until("select stopped_reason from sources", is_="FutureCursor")
            assert await running.value("select seq from sources") == 5000
            assert fake.cursors == [5000]
            await set_cursor(database, fake, 100)
            await running.until_memories(alice, "one")
            assert await running.value("select stopped_reason from sources") is None
    assert fake.cursors == [5000, 100]
    stopped = [log for log in logs if log["event"] == "source_stopped"]
    assert [(log["log_level"], log["reason"], log["cursor"]) for log in stopped] == [("error", "FutureCursor", 5000)]


async def test_stopped_source_stays_stopped_after_a_restart_and_others_go_on(
    database: Database, fake: Relay, alice: RepoBuilder
):
    await set_cursor(database, fake, 5000)
    async with database.connection() as conn:
        await leases.stop_source(conn, fake.source.url, "FutureCursor", _NOW)
    async with relay() as other, daemon(database, fake.source, other.source) as running:
        await other.until_connected()
        await other.send(alice.create(rkey(1), memory("one")))
        await running.until_memories(alice, "one")
        assert fake.cursors == []


async def test_cursor_may_be_set_back_while_the_daemon_runs(database: Database, fake: Relay, alice: RepoBuilder):
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(alice.create(rkey(1), memory("one"), seq=5000))
        await running.until_cursor(fake.source, 5000)
        fake.frames = [alice.create(rkey(2), memory("two"), seq=1)]
        fake.openings = [[error_frame("FutureCursor"), Close(1008)]]
        await fake.cut()
        await running.until("select stopped_reason from sources", is_="FutureCursor")
        await set_cursor(database, fake, 0)
        await running.until_memories(alice, "one", "two")
        await running.until_cursor(fake.source, 1)


async def test_too_slow_consumer_comes_back_with_the_durable_cursor(
    database: Database, fake: Relay, alice: RepoBuilder
):
    fake.frames = [alice.create(rkey(1), memory("one"))]
    fake.openings = [[error_frame("ConsumerTooSlow"), Close(1008)]]
    await set_cursor(database, fake, 100)
    async with daemon(database, fake.source) as running:
        await running.until_memories(alice, "one")
        assert disconnects(running, fake, "consumer_too_slow") == 1
    assert fake.cursors == [100, 100]


async def test_outdated_cursor_notes_the_gap_and_goes_on(database: Database, fake: Relay, alice: RepoBuilder):
    fake.frames = [alice.create(rkey(1), memory("one"))]
    fake.openings = [[info_frame("OutdatedCursor")]]
    await set_cursor(database, fake, 5)
    async with daemon(database, fake.source) as running:
        await running.until_memories(alice, "one")
        assert await running.value("select gap_at from sources") == running.clock.now
    assert fake.cursors == [5]


async def test_word_of_information_that_is_unknown_is_counted(database: Database, fake: Relay, alice: RepoBuilder):
    fake.openings = [[info_frame("Mandarin")]]
    async with daemon(database, fake.source) as running:
        await running.until(*rejected("info"), is_=1)
        await fake.send(alice.create(rkey(1), memory("one")))
        await running.until_memories(alice, "one")
    assert len(fake.cursors) == 1


async def test_error_that_carries_a_seq_is_an_error_all_the_same(database: Database, fake: Relay):
    fake.openings = [[Raw(encode_frame({"op": -1}, {"error": "FutureCursor", "seq": 2**50})), Close(1008)]]
    await set_cursor(database, fake, 5000)
    async with daemon(database, fake.source) as running:
        await running.until("select stopped_reason from sources", is_="FutureCursor")
        assert await running.value("select seq from sources") == 5000


async def test_unknown_error_is_waited_out(database: Database, fake: Relay, alice: RepoBuilder):
    fake.openings = [[error_frame("Mandarin"), Close(1008)], [error_frame("Mandarin"), Close(1008)]]
    async with daemon(database, fake.source) as running:
        await fake.until_connected(3)
        await fake.send(alice.create(rkey(1), memory("one")))
        await running.until_memories(alice, "one")
        assert disconnects(running, fake, "error_frame") == 2


# How it comes back


async def test_waits_between_failures_grow(database: Database, fake: Relay):
    fake.openings = [[Close()] for _ in range(5)]
    with capture_logs() as logs:
        async with daemon(database, fake.source):
            await fake.until_connected(6)
    waits = [(log["attempts"], log["reason"]) for log in logs if log["event"] == "source_unavailable"]
    assert waits == [(n, "closed_1000") for n in range(1, 6)]


@pytest.mark.parametrize(
    ("refusal", "at_least", "below"),
    [
        (Refusal(429, {"Retry-After": "120"}), 120, 181),
        (Refusal(503, {"Retry-After": "120"}), 120, 181),
        (Refusal(429), 30, 46),
        (Refusal(502), 30, 46),
        (Refusal(429, {"Retry-After": "soon"}), 30, 46),
        (Refusal(429, {"Retry-After": "Mon, 01 Jan 2035 00:00:00 GMT"}), 600, 901),
        (Refusal(429, {"Retry-After": "99999999"}), 600, 901),
    ],
    ids=["429", "503", "429 without", "502 without", "429 with nonsense", "429 until a date", "429 for years"],
)
async def test_source_that_refuses_is_left_alone_for_as_long_as_it_says(
    database: Database, fake: Relay, refusal: Refusal, at_least: int, below: int
):
    fake.refusals = [refusal]
    with capture_logs() as logs:
        async with daemon(database, fake.source) as running:
            await running.until_true(lambda: disconnects(running, fake, f"http_{refusal.status}") == 1)
            await running.until_true(lambda: any(log["event"] == "source_unavailable" for log in logs))
    [waited] = [log["seconds"] for log in logs if log["event"] == "source_unavailable"]
    assert at_least <= waited < below


async def test_refusal_that_asks_for_no_wait_is_tried_again(database: Database, fake: Relay):
    fake.refusals = [Refusal(404), Refusal(401)]
    async with daemon(database, fake.source):
        await fake.until_connected()


async def test_redirect_is_not_followed(database: Database, fake: Relay):
    async with relay() as elsewhere:
        fake.refusals = [Refusal(302, {"Location": f"{elsewhere.source.url}/"})]
        async with daemon(database, fake.source) as running:
            await fake.until_connected()
            assert disconnects(running, fake, "http_302") == 1
        assert elsewhere.paths == []


async def test_source_that_cannot_be_reached_is_tried_again(database: Database, fake: Relay):
    with capture_logs() as logs:
        async with relay() as gone:
            pass
        async with daemon(database, gone.source, fake.source) as running:
            await running.until_true(
                lambda: running.metric("indexer_disconnects_total", source=gone.source.url, reason="unreachable") >= 3
            )
            await fake.until_connected()
    assert any(log["event"] == "source_unavailable" and log["reason"] == "unreachable" for log in logs)


async def test_socket_that_is_cut_in_the_middle_of_a_message_loses_nothing(
    database: Database, fake: Relay, alice: RepoBuilder
):
    fake.frames = [alice.create(rkey(1), memory("one"))]
    fake.openings = [[Cut()]]
    await set_cursor(database, fake, 100)
    async with daemon(database, fake.source) as running:
        await running.until_memories(alice, "one")
        assert await running.value("select count(*) from quarantine") == 0
        assert disconnects(running, fake, "cut") == 1
    assert fake.cursors == [100, 100]


async def test_socket_that_answers_no_ping_is_dead(database: Database, fake: Relay, alice: RepoBuilder):
    fake.deaf = True
    async with daemon(database, fake.source, patience=PINGING) as running:
        await fake.until_connected()
        fake.deaf = False
        await fake.until_connected(2)
        assert disconnects(running, fake, "silent") == 1
        await fake.send(alice.create(rkey(1), memory("one")))
        await running.until_memories(alice, "one")


async def test_idle_stream_that_answers_pings_is_alive(database: Database, fake: Relay):
    async with daemon(database, fake.source, patience=PINGING) as running:
        await fake.until_connected()
        [connection] = fake.open
        pings = 0
        receive = connection.protocol.recv_frame

        def count(frame: object) -> None:
            nonlocal pings
            pings += getattr(frame, "opcode", None) == 0x9
            receive(frame)  # pyright: ignore[reportArgumentType]

        connection.protocol.recv_frame = count
        await running.until_true(lambda: pings >= 3)  # so it outlived two
        assert fake.cursors == [None]


async def test_message_above_the_limit_is_not_taken(database: Database, fake: Relay):
    fake.openings = [[Raw(bytes(MAX_FRAME_BYTES + 1))]]
    async with daemon(database, fake.source) as running:
        await fake.until_connected(2)
        assert disconnects(running, fake, "message_too_big") == 1


async def test_largest_message_is_taken(database: Database, fake: Relay):
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send_raw(bytes(MAX_FRAME_BYTES))
        await running.until("select octet_length(frame) from quarantine", is_=QUARANTINED_BYTES)
