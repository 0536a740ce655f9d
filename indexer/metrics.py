"""The daemon's metrics, all of them: names, meanings and labels. `docs/operate.md` lists the same."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class IndexerMetrics:
    """One registry for one process. Labels hold sources, reasons and kinds, never repos."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.frames = Counter("indexer_frames", "Frames received.", ["source"], registry=registry)
        self.connected = Gauge("indexer_connected", "Whether a source's socket is open.", ["source"], registry=registry)
        self.disconnects = Counter(
            "indexer_disconnects",
            "Sockets that ended, or could not be opened.",
            ["source", "reason"],
            registry=registry,
        )
        self.gaps = Counter(
            "indexer_gaps", "Times that frames of a source were lost.", ["source", "reason"], registry=registry
        )
        self.lag_seconds = Gauge(
            "indexer_lag_seconds", "Age of the last durable frame, as its sender claims.", ["source"], registry=registry
        )
        self.received_seq = Gauge(
            "indexer_received_seq", "Seq of the last frame received.", ["source"], registry=registry
        )
        self.durable_seq = Gauge("indexer_durable_seq", "The cursor.", ["source"], registry=registry)
        self.buffered_bytes = Gauge(
            "indexer_buffered_bytes", "Bytes of frames that wait to be judged.", registry=registry
        )
        self.buffered_frames = Gauge("indexer_buffered_frames", "Frames that wait to be judged.", registry=registry)
        self.commits = Counter("indexer_commits_applied", "Commits verified and applied.", registry=registry)
        self.rejections = Counter(
            "indexer_rejections", "What was not applied.", ["reason", "effect"], registry=registry
        )
        self.batch_seconds = Histogram(
            "indexer_batch_seconds",
            "From the first statement of a batch to its commit.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.write_retries = Counter("indexer_write_retries", "Batches tried again.", registry=registry)
        self.tracked_repos = Gauge("indexer_tracked_repos", "Repos that are followed.", registry=registry)
        self.unwhole_repos = Gauge(
            "indexer_unwhole_repos", "Repos that are not known to be whole.", ["state"], registry=registry
        )
        self.repair_ends = Counter(
            "indexer_repair_ends", "Times that the process that asks hosts ended by itself.", registry=registry
        )
        self.embed_ends = Counter(
            "indexer_embed_ends", "Times that the process that embeds ended by itself.", registry=registry
        )
        self.spaces_ends = Counter(
            "indexer_spaces_ends", "Times that the process that keeps Spaces ended by itself.", registry=registry
        )
        self.spaces = Gauge("indexer_spaces", "Private Spaces that are held.", ["state"], registry=registry)
        self.spaces_told = Gauge("indexer_spaces_told", "Spaces whose hosts tell of writes.", registry=registry)
        self.space_repos = Gauge("indexer_space_repos", "Repos in Spaces.", ["state"], registry=registry)
        self.space_pulls_waiting = Gauge(
            "indexer_space_pulls_waiting", "Repos in Spaces that are to be pulled.", registry=registry
        )
        self.space_pull_wait_seconds = Gauge(
            "indexer_space_pull_wait_seconds", "For how long the first of them could have been.", registry=registry
        )
        self.space_notes_waiting = Gauge(
            "indexer_space_notes_waiting",
            "Notifications, and Spaces that were opened, that nobody has acted upon.",
            registry=registry,
        )
        self.space_note_wait_seconds = Gauge(
            "indexer_space_note_wait_seconds", "For how long the first of them has waited.", registry=registry
        )
        self.space_sweep_seconds = Gauge(
            "indexer_space_sweep_seconds",
            "Since when not all Spaces were listed, of those that can be.",
            registry=registry,
        )
        self.space_listings = Counter(
            "indexer_space_listings", "Spaces whose authors were listed, or were not.", ["outcome"], registry=registry
        )
        self.space_pulls = Counter(
            "indexer_space_pulls", "Repos in Spaces that were pulled, or were not.", ["outcome"], registry=registry
        )
        self.space_registrations = Counter(
            "indexer_space_registrations",
            "Hosts of Spaces that were asked to tell of writes.",
            ["outcome"],
            registry=registry,
        )
        self.space_purges = Counter(
            "indexer_space_purges", "Spaces of which all was deleted here.", ["reason"], registry=registry
        )
        self.embeddings_waiting = Gauge(
            "indexer_embeddings_waiting", "Memories that wait for a vector.", ["model"], registry=registry
        )
        self.parked_commits = Gauge(
            "indexer_parked_commits", "Commits that wait for a key, or for the end of a fetch.", registry=registry
        )
        self.quarantined_frames = Gauge("indexer_quarantined_frames", "Bytes that are no frame.", registry=registry)
        self.fetches_without_disk = Gauge(
            "indexer_fetches_without_disk",
            "Repos that found no room on disk while they were fetched.",
            registry=registry,
        )
        self.open_requests = Gauge("indexer_open_requests", "What waits to be asked.", ["kind"], registry=registry)
        self.look_ups = Counter("indexer_identity_look_ups", "Identities asked for.", ["outcome"], registry=registry)
