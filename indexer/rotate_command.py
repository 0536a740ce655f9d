"""`python -m indexer rotate-key`: seals what other keys sealed by the current one, so that those can go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from indexer.store.sealed import BEFORE_ALL, load_sealed_by_others, replace_sealed
from memory.database import Database
from memory.sealed import NotSealedHere, SealingKeys
from memory.space_credential import reseal_credential

HELP: Final = """\
Seals the credentials of Spaces anew by the first key of SPACES_KEY_FILE, while everything runs. To change the key: put
a new one into the first line of the file, restart the indexer and then the API (which seals by it at once), run this,
and take the old line out. The last line is JSON: how many were sealed anew, and how many no key of the file opens;
those go when they expire, within two hours. Exit status 1 if some were not opened.

  echo "2027 $(openssl rand -hex 32)"          # a new key's line
  python -m indexer rotate-key
"""

_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many credentials were sealed anew, and how many no key opens."""

    resealed: int
    unopened: int


async def rotate(database: Database, keys: SealingKeys) -> Rotated:
    """Seals all anew that are sealed by another key than the current one. Any number may do so at a time."""
    resealed = unopened = 0
    last = BEFORE_ALL
    while True:
        async with database.connection() as conn:
            rows = await load_sealed_by_others(conn, keys.current, last, _AT_ONCE)
            for row in rows:
                try:
                    sealed = reseal_credential(keys, row.sealed, space=row.space, viewer=row.repo)
                except NotSealedHere:
                    unopened += 1
                    continue
                if sealed is not None and await replace_sealed(conn, row, sealed, keys.current):
                    resealed += 1
        if not rows:
            return Rotated(resealed, unopened)
        last = rows[-1]
