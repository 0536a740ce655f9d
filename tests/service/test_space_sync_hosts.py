"""Space sync and its hosts: with which credential each is asked, how often, and who waits for whom."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest

from indexer.quota import QuotaLimits
from indexer.spaces.reads import parse_listing, parse_registration
from memory.database import Database
from memory.dpop import ProofKey
from memory.errors import Rejected
from memory.sealed import SealingKeys
from memory.space_credential import SpaceCredential
from tests.builders import memory
from tests.fakes.space_host_faults import Fault
from tests.fakes.space_subscriber import subscriber
from tests.feed import rkey
from tests.space_scene import SYNCER
from tests.spaces_world import BUDGET, setting, spaces_world

# Credentials


async def test_credential_that_is_refused_is_passed_over(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await world.open(here.space, here.alice)
        key = ProofKey.generate(world.draw.randbytes)
        for text in ("mandarin", here.space.host.sign_credential(here.space, "another key")):
            world.tokens += 1
            await world.grant(str(here.space), here.bob, SpaceCredential(text, key), hours=3)
        await here.begin("0")
        assert await world.is_served(here.space)


async def test_credential_of_another_space_is_passed_over(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        other = here.home.create_space(here.alice, "other", here.bob)
        key = ProofKey.generate(world.draw.randbytes)
        credential = SpaceCredential(other.host.sign_credential(other, key.jkt), key)
        world.tokens += 1
        await world.grant(str(here.space), here.bob, credential, hours=3)
        await here.begin("0")
        assert await world.is_served(here.space)


async def test_space_whose_credentials_are_all_refused_is_not_served(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.home.faults.refusal = here.away.faults.refusal = (401, "BadJwtSignature")
        here.home.misbehave(Fault.REFUSING)
        world.clock.advance(minutes=16)
        await here.home.until_asked("listRepos", 2)
        await world.until_idle(here.space)
        assert not await world.is_served(here.space)
        assert await world.contents(here.space, here.bob, shown=False) == ["0"]
        assert (await world.space_row(here.space))["failure"] == "unavailable"


async def test_what_no_key_of_ours_opens_is_no_credential(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        here.bob.create(here.space, rkey(1), memory("0"))
        world.keys = SealingKeys({"other": bytes(reversed(range(32)))}, random_bytes=random.Random(9).randbytes)
        await world.open(here.space, here.bob)
        world.start()
        await world.until_idle(here.space)
        assert here.home.asked == []
        assert not await world.is_served(here.space)


async def test_credentials_are_shown_only_to_the_hosts_of_their_space(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        stranger = await world.host()
        await here.begin("0")
        assert stranger.asked == []
        assert {asked.space for asked in here.away.asked} == {str(here.space)}


async def test_each_request_has_a_proof_of_its_own(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        for number in range(1, 4):
            here.bob.create(here.space, rkey(number), memory(f"{number}"))
            await world.note_write(here.space, here.bob)
            await world.until_contents(here.space, here.bob, [f"{each}" for each in range(number + 1)])
        assert len(here.away.gate.proofs) == len(here.away.asked)


# Hosts


async def test_slow_host_of_one_author_holds_up_nobody_else(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        slow = await world.host()
        carol = slow.add("carol")
        here.space.admit(carol)
        carol.create(here.space, rkey(1), memory("of carol"))
        slow.misbehave(Fault.SLOW)
        here.bob.create(here.space, rkey(0), memory("0"))
        await world.open(here.space, here.bob)
        world.start()
        await slow.until_asked("getRepo")
        await world.until_contents(here.space, here.bob, ["0"])
        for number in range(1, 4):
            here.bob.create(here.space, rkey(number), memory(f"{number}"))
            await world.note_write(here.space, here.bob)
            await world.until_contents(here.space, here.bob, [f"{each}" for each in range(number + 1)])
        assert await world.contents(here.space, carol) == []
        slow.misbehave(None)
        slow.faults.release.set()
        await world.until_contents(here.space, carol, ["of carol"])


async def test_many_repos_of_a_slow_host_leave_room_for_others(database: Database):
    budget = replace(BUDGET, repos_at_once=2, repos_per_site=2)
    async with spaces_world(database, budget=budget) as world:
        here = await setting(world)
        slow = await world.host()
        people = [slow.add(f"person {number}") for number in range(40)]
        here.space.admit(*people)
        for person in people:
            person.create(here.space, rkey(1), memory("slow"))
        slow.misbehave(Fault.SLOW)
        here.bob.create(here.space, rkey(0), memory("0"))
        await world.open(here.space, here.bob)
        world.start()
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0"])
        assert slow.most_at_once["getRepo"] <= 2
        slow.misbehave(None)
        slow.faults.release.set()
        shown = "select count(*) from repos where space = $1 and visible"
        await world.pass_time_until(lambda: world.value(shown, str(here.space)), 41, seconds=2)


async def test_host_of_a_space_that_hangs_holds_up_no_other_space(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        hanging = await world.host()
        eve = hanging.add("eve")
        stuck = hanging.create_space(eve, "stuck")
        hanging.misbehave(Fault.HUNG)
        await world.open(stuck, eve)
        world.start()
        await hanging.until_asked("listRepos")
        await here.begin("0")
        await world.stop()


async def test_busy_host_is_left_alone_for_as_long_as_it_asks(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        here.away.misbehave(Fault.BUSY)
        await world.note_write(here.space, here.bob)
        await here.away.until_asked("listRepoOps")
        await world.until_idle(here.space)
        row = await world.repo_row(here.space, here.bob)
        assert row["attempts"] == 0
        assert row["pull_after"] - world.clock() >= timedelta(seconds=6)
        assert here.away.asked_for("listRepoOps") == 1
        here.away.misbehave(None)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"])


async def test_author_who_moved_is_read_at_their_new_host(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        new = await world.host()
        here.away.accounts.pop(here.bob.did)
        here.bob.host = new.url
        new.adopt(here.bob)
        world.hosts.publish(here.bob)
        here.bob.create(here.space, rkey(1), memory("1"))
        world.clock.advance(hours=25)  # what is known of them is looked up anew then
        await world.open(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0", "1"])
        assert new.asked_for("listRepoOps") == 1


async def test_repo_rests_after_a_pull_as_long_as_that_took(database: Database):
    looks = count()
    async with spaces_world(database, monotonic=lambda: 0.2 * next(looks)) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.note_write(here.space, here.bob)
        await world.until_idle(here.space)
        assert await world.contents(here.space, here.bob) == ["0"]
        rests = (await world.repo_row(here.space, here.bob))["pull_after"] - world.clock()
        assert timedelta(seconds=5) < rests < timedelta(minutes=2)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"])


async def test_work_is_shared_by_workers_and_done_once(database: Database):
    async with spaces_world(database) as world:
        home, away = await world.host(), await world.host()
        alice = home.add("alice")
        authors = [away.add(f"author {number}") for number in range(10)]
        made = [home.create_space(alice, f"space{number}", *authors) for number in range(5)]
        for space in made:
            for author in authors:
                author.create(space, rkey(1), memory("mine"))
            await world.open(space, authors[0])
        for _ in range(3):
            world.start(world.new_worker())
        shown = "select count(*) from repos where visible and state = 'active'"
        await world.pass_time_until(lambda: world.value(shown), 50)
        assert away.asked_for("getRepo") == 50
        assert home.asked_for("listRepos") == 5


# Notifications


async def test_host_is_asked_to_tell_of_writes_and_asked_again_in_time(database: Database):
    async with spaces_world(database, syncer=SYNCER) as world, subscriber() as syncer:
        world.hosts.services[SYNCER] = syncer.url
        here = await setting(world)
        await here.begin("0")
        assert here.space.subscribers[SYNCER] == world.clock() + timedelta(hours=24)
        assert here.home.asked_for("registerNotify") == 1
        for _ in range(11):
            world.clock.advance(hours=2)
            await world.open(here.space, here.bob)
            await world.until_idle(here.space)
            assert here.space.subscribers[SYNCER] > world.clock() + timedelta(hours=2)
        assert here.home.asked_for("registerNotify") == 2


async def test_without_a_public_url_no_host_is_asked_to_tell(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        assert here.home.asked_for("registerNotify") == 0
        assert (await world.space_row(here.space))["registered_until"] is None


async def test_host_that_cannot_tell_is_swept(database: Database):
    async with spaces_world(database, syncer=SYNCER) as world:
        here = await setting(world)
        await here.begin("0")
        assert here.home.asked_for("registerNotify") == 1
        here.bob.create(here.space, rkey(1), memory("1"))
        world.clock.advance(minutes=5)
        await world.until_contents(here.space, here.bob, ["0", "1"])
        assert here.home.asked_for("registerNotify") == 1


# Quotas


async def test_quota_of_a_repo_in_a_space_is_its_own(database: Database):
    limits = QuotaLimits(max_memories=2, max_bytes=10**9, max_edges=10**6)
    async with spaces_world(database, limits=limits) as world:
        here = await setting(world)
        await here.begin("0", "1", "2", shown=["0", "1"])
        [row] = await world.rows("select over_quota_count, quota_edge from repos where space = $1", str(here.space))
        assert tuple(row) == (1, rkey(2))
        here.bob.delete(here.space, rkey(0))
        await world.note_write(here.space, here.bob)
        await world.until_idle(here.space)
        assert await world.contents(here.space, here.bob) == ["1"]
        world.clock.now = (await world.repo_row(here.space, here.bob))["pull_after"]
        await world.until_contents(here.space, here.bob, ["1", "2"])
        assert here.away.asked_for("getRepo") == 2


# What hosts say


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"repos": 1}',
        b'{"repos": [1]}',
        b'{"repos": [{"did": "did:plc:x", "rev": "3kaaaaaaaaa2a"}]}',
        b'{"repos": [{"did": "x", "rev": "3kaaaaaaaaa2a", "hash": {"$bytes": "' + b"A" * 43 + b'"}}]}',
        b'{"repos": [{"did": "did:plc:x", "rev": "no tid", "hash": {"$bytes": "' + b"A" * 43 + b'"}}]}',
        b'{"repos": [{"did": "did:plc:x", "rev": "3kaaaaaaaaa2a", "hash": {"$bytes": "AAAA"}}]}',
        b'{"repos": [], "cursor": 1}',
        b'{"repos": [], "cursor": ""}',
    ],
)
def test_listing_that_is_none_is_refused(body: bytes):
    with pytest.raises(Rejected) as caught:
        parse_listing(body)
    assert caught.value.reason == "malformed_page"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"expiresAt": 1}', b'{"expiresAt": "tomorrow"}'])
def test_registration_that_says_no_end_is_refused(body: bytes):
    with pytest.raises(Rejected) as caught:
        parse_registration(body)
    assert caught.value.reason == "malformed_page"
