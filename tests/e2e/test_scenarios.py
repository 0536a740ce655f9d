"""Random lives on a real network that fails: the index ends as the PDSes' repos, record by record.

`TEST_E2E_SCENARIOS` says how many; a failure prints its seed, and `TEST_SEED=…` repeats its choices.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from memory.database import Database
from tests.e2e.scenario import Scenario
from tests.e2e.servers import Network
from tests.e2e.trouble import Lag, Trouble, TroubledStream
from tests.e2e.world import open_world

SCENARIOS = int(os.environ.get("TEST_E2E_SCENARIOS", "5"))


@pytest.mark.parametrize("number", range(SCENARIOS))
async def test_random_lives_end_as_their_repos(
    network: Network, database: Database, database_url: str, tmp_path: Path, seed: int, number: int
) -> None:
    draw = random.Random(f"{seed} {number}")
    trouble, lag = Trouble(), Lag()
    async with open_world(network, database, database_url, tmp_path, relayed=[draw.randrange(2)]) as world:
        for proxy in world.proxies:
            proxy.treat = TroubledStream(trouble, draw).treat
        world.proxies[-1].treat = lag.hold
        scenario = Scenario(world, draw, trouble, lag)
        print(f"seed {seed}")
        try:
            await world.daemon.start()
            await scenario.run()
        except BaseException:
            print(*scenario.log, sep="\n")
            print(await world.told())
            raise
        finally:
            await network.set_outage(False)
        print(f"{dict(trouble.made)}; {len(trouble.harmed)} repos were harmed, and healed")
