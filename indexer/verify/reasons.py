"""Why a commit is not applied, in the two fates that a signature separates."""

from __future__ import annotations

from enum import StrEnum

from memory.errors import Rejected


class Unattributable(StrEnum):
    """The named author did not provably sign this: raised, counted, and nobody's state changes."""

    MALFORMED_CAR = "malformed_car"
    TRUNCATED_CAR = "truncated_car"  # it ends within a block
    BLOCK_HASH = "block_hash"  # a block is not what its CID says
    ROOT_MISMATCH = "root_mismatch"  # the CAR's first root is not the event's commit
    COMMIT_MISSING = "commit_missing"
    MALFORMED_COMMIT = "malformed_commit"
    DID_MISMATCH = "did_mismatch"
    REV_MISMATCH = "rev_mismatch"
    BAD_SIGNATURE = "bad_signature"
    SIGNATURE_NOT_LOW_S = "signature_not_low_s"
    TOO_BIG = "too_big"


class Fault(StrEnum):
    """Signed by the author, and yet not to be applied: the repo is `desynchronized` until it is fetched whole."""

    REV_NOT_TID = "rev_not_tid"
    REV_IN_FUTURE = "rev_in_future"
    REV_CONFLICT = "rev_conflict"  # two commits with one rev
    SINCE_MISMATCH = "since_mismatch"
    PREV_DATA_ABSENT = "prev_data_absent"
    PREV_DATA_MISMATCH = "prev_data_mismatch"
    TOO_MANY_OPS = "too_many_ops"
    BAD_PATH = "bad_path"
    BAD_OP = "bad_op"  # contradicts itself or an earlier op on its path
    PREV_ABSENT = "prev_absent"  # an update or deletion that does not say of what
    RECORD_MISSING = "record_missing"
    RECORD_TOO_BIG = "record_too_big"
    MALFORMED_TREE = "malformed_tree"
    TREE_INCOMPLETE = "tree_incomplete"  # a node that inverting needs is not in the CAR
    OP_MISMATCH = "op_mismatch"  # the tree does not hold what an op says it wrote
    INVERSION = "inversion"  # undoing the ops does not lead back to `prevData`
    REPO_INCOMPLETE = "repo_incomplete"  # a whole repo lacks a node of its tree, or a record of ours
    UNSTORABLE = "unstorable"  # the database cannot hold what it brings


class Inconsistent(Rejected):
    """What was signed does not fit together."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(reason=fault)
