"""Why what a host sent of a repo in a Space is not taken, beside the reasons that public repos have as well."""

from __future__ import annotations

from enum import StrEnum


class SpaceRefusal(StrEnum):
    """Nobody's state changes. Only after `HASH_MISMATCH` is there a commit that the author signed."""

    COMMIT_VERSION = "commit_version"  # one of the format's later versions
    BAD_MAC = "bad_mac"  # the hash was not bound to this Space, author, rev
    REV_IN_FUTURE = "rev_in_future"
    MALFORMED_INDEX = "malformed_index"
    INDEX_TOO_BIG = "index_too_big"
    RECORD_UNEXPECTED = "record_unexpected"  # not the block whose turn it is
    RECORD_MISSING = "record_missing"  # the CAR ends before all that its index lists
    MALFORMED_PAGE = "malformed_page"
    TOO_MANY_OPS = "too_many_ops"  # also too many bytes of records; the whole repo comes as a stream
    BAD_OP = "bad_op"  # contradicts itself or an earlier op on its path
    REV_ORDER = "rev_order"
    VALUE_MISMATCH = "value_mismatch"  # a record is not what its CID says
    HASH_MISMATCH = "hash_mismatch"
