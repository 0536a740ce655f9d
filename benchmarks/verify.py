"""`verify`: one-op commits from frame bytes to a verified commit, in one process, nothing stored."""

from __future__ import annotations

from time import perf_counter

from benchmarks.result import Result
from benchmarks.workload import one_op_commits
from indexer.frames import CommitEvent, decode_frame
from indexer.verify.commit import verify_commit
from memory.signatures import PublicKey, parse_did_key

REPOS, COMMITS_EACH, ROUNDS = 200, 40, 3


async def run() -> Result:
    """Commits per second, the best of some rounds."""
    work = one_op_commits(REPOS, COMMITS_EACH)
    keys: dict[str, PublicKey] = {}
    best, commits = 0.0, 0
    for _ in range(ROUNDS):
        commits, started = 0, perf_counter()
        for frame in work.frames:
            event = decode_frame(frame)
            if not isinstance(event, CommitEvent) or not event.ops:
                continue
            key = keys.get(event.did)
            if key is None:
                identity = work.export.last(event.did)
                assert identity is not None
                assert identity.signing_key is not None
                key = keys[event.did] = parse_did_key(identity.signing_key)
            commit = verify_commit(event, key, event.time)
            assert commit.fault is None
            commits += 1
        best = max(best, commits / (perf_counter() - started))
    return Result("verify", round(best), "commits/s", notes=(f"{commits} commits of {REPOS} repos, best of {ROUNDS}",))
