"""What a listing of a Space's writers changes, compared with what is known of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from indexer.spaces.reads import is_standing
from indexer.store.spaces import Listed, Note, NoteKind, Standing


def changed_by_listing(listed: Mapping[str, Listed], known: Mapping[str, Standing]) -> Iterator[Listed]:
    """Who stands elsewhere than is known, is new, or is listed no more; and who has to be pulled and does not wait."""
    for author, each in listed.items():
        if _is_news(each, known.get(author)):
            yield each
    for author, standing in known.items():
        if standing.listed_rev is not None and author not in listed:
            yield Listed(author, None, None)


class Hints(NamedTuple):
    """What notifications say."""

    changed: Sequence[Listed]  # of listed authors
    is_incomplete: bool  # of others too, whom only a listing can make writers


def hints_of(notes: Iterable[Note], known: Mapping[str, Standing]) -> Hints:
    """What is to be believed of notifications until the next listing; what is none is passed over."""
    changed: list[Listed] = []
    is_incomplete = False
    for note in notes:
        if note.kind is not NoteKind.WRITTEN or not is_standing(note.author, note.rev, note.hash):
            continue
        standing, said = known.get(note.author), Listed(note.author, note.rev, note.hash)
        if standing is None or standing.listed_rev is None:
            is_incomplete = True
        elif _is_news(said, standing):
            changed.append(said)
    return Hints(changed, is_incomplete)


def _is_news(listed: Listed, known: Standing | None) -> bool:
    if known is None or (listed.rev, listed.hash) != (known.listed_rev, known.listed_hash):
        return True
    return not known.in_step and not known.waits
