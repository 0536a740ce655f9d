"""Verification: from what a source claims to what an author signed. No I/O, no logging, no state.

    event ─► verify_commit ─► VerifiedCommit ─► admit ─► Accept | Desynchronize | Drop
             (nothing held)                    (held, under the lock of the repo's row)

`car` splits blocks and checks their hashes, `tree` holds the part of a repo's tree that they carry, `commit` and `sync`
judge an event by itself, `admission` judges a verified commit by what is held.
"""
