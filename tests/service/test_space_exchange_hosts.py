"""Delegation tokens exchanged at Space hosts that do not behave, and with authorities that cannot be found."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from appview.spaces.exchange import Exchange
from appview.spaces.refusals import (
    AuthorityRefused,
    SpaceHostUnavailable,
    SpaceNotFound,
)
from memory.outbound import Limits
from tests.exchanging import METHOD, Setting, refused, setting_with
from tests.fakes.directory import Mood
from tests.fakes.internet import plain_outbound
from tests.fakes.space_host_faults import Fault


@pytest.fixture
async def setting() -> AsyncGenerator[Setting]:
    async with setting_with() as made:
        yield made


# Hosts that do not behave


@pytest.mark.parametrize(
    "fault",
    [
        Fault.CUT,
        Fault.TRUNCATED,
        Fault.ENDLESS,
        Fault.BOASTING,
        Fault.BUSY_WITHOUT_A_WORD,
        Fault.OVERLOADED,
        Fault.BROKEN,
        Fault.GIBBERISH,
        Fault.BOMB,
    ],
)
async def test_host_that_gives_no_usable_answer_is_unavailable(setting: Setting, fault: Fault):
    setting.host.misbehave(fault, METHOD)
    refusal = await refused(setting)
    assert isinstance(refusal, SpaceHostUnavailable)
    assert refusal.status == 503
    assert refusal.retry_after_s is not None


@pytest.mark.parametrize("fault", [Fault.HUNG, Fault.STALLED])
async def test_host_that_hangs_is_unavailable_when_its_time_is_over(setting: Setting, fault: Fault):
    setting.host.misbehave(fault, METHOD)
    assert isinstance(await refused(setting, limits=Limits(total_s=0.2)), SpaceHostUnavailable)


async def test_host_that_says_when_is_not_asked_before(setting: Setting):
    setting.host.misbehave(Fault.BUSY, METHOD)
    first = await refused(setting)
    assert isinstance(first, SpaceHostUnavailable)
    assert first.retry_after_s == setting.host.faults.retry_after_s
    setting.host.misbehave(None, METHOD)
    assert isinstance(await refused(setting), SpaceHostUnavailable)
    assert setting.host.asked_for(METHOD) == 1


async def test_redirect_is_not_followed(setting: Setting):
    other = await setting.world.host()
    setting.host.faults.location = f"{other.url}/xrpc/com.atproto.space.getSpaceCredential"
    setting.host.misbehave(Fault.MOVED, METHOD)
    assert isinstance(await refused(setting), AuthorityRefused)
    assert other.asked == []


async def test_host_at_a_private_address_is_not_asked():
    async with setting_with() as inside, plain_outbound(allowed=()) as outside:
        delegation = inside.delegation()
        exchange = Exchange(
            outside, inside.authorities, client=None, clock=inside.clock, random_bytes=inside.draw.randbytes
        )
        with pytest.raises(SpaceNotFound, match="no host that can be asked"):
            await exchange.open(delegation)
        assert inside.host.asked_for(METHOD) == 0


# Authorities that cannot be found


async def test_authority_that_the_directory_does_not_know_has_no_space(setting: Setting):
    del setting.fake.documents[setting.noor.did]
    assert isinstance(await refused(setting), SpaceNotFound)


async def test_authority_that_was_given_up_has_no_space(setting: Setting):
    del setting.fake.documents[setting.noor.did]
    setting.fake.tombstoned.add(setting.noor.did)
    assert isinstance(await refused(setting), SpaceNotFound)


async def test_authority_without_a_host_has_no_space(setting: Setting):
    setting.fake.documents[setting.noor.did]["service"] = []
    assert isinstance(await refused(setting), SpaceNotFound)


async def test_space_host_that_the_authority_names_is_asked_and_its_pds_is_not(setting: Setting):
    other = await setting.world.host()
    setting.noor.space_host = other.url
    setting.host.world.publish(setting.noor)
    assert isinstance(await refused(setting), SpaceNotFound)  # as that host knows of no Space
    assert (other.asked_for(METHOD), setting.host.asked_for(METHOD)) == (1, 0)


async def test_directory_that_is_away_is_nobodys_refusal(setting: Setting):
    setting.fake.mood = Mood.OUTAGE
    assert isinstance(await refused(setting), SpaceHostUnavailable)
