-- Uids and digests are 16-byte blobs; times are milliseconds since the epoch; `revision` and `seq` come from one counter (meta).

CREATE TABLE meta (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    revision INTEGER NOT NULL,
    -- When the last commit was, so that a clock that was set back is noticed at the next start.
    seen_ms  INTEGER NOT NULL DEFAULT 0,
    -- Filled and emptied again to find out whether the disk takes writes.
    probe    BLOB
) STRICT;
INSERT INTO meta (one, revision) VALUES (1, 0);

CREATE TABLE manifest (
    kind       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    policy     TEXT NOT NULL,
    doc        BLOB NOT NULL,
    edits      INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    revision   INTEGER NOT NULL,
    PRIMARY KEY (kind, version)
) STRICT;

CREATE TABLE pair (
    kind           TEXT NOT NULL,
    version        INTEGER NOT NULL,
    inflight       INTEGER NOT NULL,
    turns          TEXT NOT NULL,
    since          TEXT NOT NULL,
    default_config BLOB NOT NULL,
    resources      INTEGER NOT NULL,
    PRIMARY KEY (kind, version)
) STRICT, WITHOUT ROWID;

-- How many resources of a pair are in a phase; kept by the writer in the transaction that moves them.
CREATE TABLE phase_count (
    kind    TEXT NOT NULL,
    version INTEGER NOT NULL,
    phase   TEXT NOT NULL,
    n       INTEGER NOT NULL,
    PRIMARY KEY (kind, version, phase)
) STRICT, WITHOUT ROWID;

CREATE TABLE resource (
    id                INTEGER PRIMARY KEY,
    uid               BLOB NOT NULL,
    kind              TEXT NOT NULL,
    name              TEXT NOT NULL,
    version           INTEGER NOT NULL,
    owner             BLOB,
    root              BLOB NOT NULL,
    depth             INTEGER NOT NULL,
    position          INTEGER NOT NULL,
    config_ref        TEXT,
    finalizer_version INTEGER,
    created_ms        INTEGER NOT NULL,
    phase             TEXT NOT NULL,
    claimed           INTEGER NOT NULL,
    -- Set together: the task may be claimed now, as this pair.
    ready_kind        TEXT,
    ready_version     INTEGER,
    ready_class       INTEGER,
    ready_turn        INTEGER,
    ready_since_ms    INTEGER,
    held_on           BLOB,
    wake_ms           INTEGER,
    generation        INTEGER NOT NULL,
    synced_gen        INTEGER NOT NULL,
    updated_ms        INTEGER NOT NULL,
    quarantined       INTEGER NOT NULL,
    by_hand           INTEGER NOT NULL,
    epoch             INTEGER NOT NULL,
    not_before_ms     INTEGER,
    resync_ms         INTEGER,
    rollup_ms         INTEGER,
    flows_pending     INTEGER NOT NULL,
    flows_gone        INTEGER NOT NULL,
    children          INTEGER NOT NULL,
    own_version       INTEGER NOT NULL,
    flowed_version    INTEGER NOT NULL,
    transitions       INTEGER NOT NULL,
    synced            INTEGER NOT NULL,
    settled           INTEGER NOT NULL,
    counted           INTEGER NOT NULL,
    revision          INTEGER NOT NULL,
    -- Labels, claim, marks, failures, conditions: whatever nothing is searched by.
    body              TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX resource_uid ON resource (uid);
CREATE UNIQUE INDEX resource_name ON resource (kind, name);
CREATE INDEX resource_pair ON resource (kind, version, uid);
CREATE INDEX resource_root ON resource (root);
CREATE INDEX resource_top ON resource (kind, name) WHERE owner IS NULL;
CREATE INDEX resource_owner ON resource (owner, position, uid) WHERE owner IS NOT NULL;
CREATE INDEX resource_config ON resource (config_ref, uid) WHERE config_ref IS NOT NULL;
CREATE INDEX resource_finalizer ON resource (kind, finalizer_version) WHERE finalizer_version IS NOT NULL;
CREATE INDEX resource_ready ON resource (ready_kind, ready_version, ready_class, ready_turn, ready_since_ms, uid)
    WHERE ready_class IS NOT NULL;
CREATE INDEX resource_turn ON resource (ready_kind, ready_version, ready_class, root, ready_turn)
    WHERE ready_class IS NOT NULL AND root <> uid;
CREATE INDEX resource_held ON resource (held_on, uid) WHERE held_on IS NOT NULL;
CREATE INDEX resource_wake ON resource (wake_ms, uid) WHERE wake_ms IS NOT NULL;
CREATE INDEX resource_claimed ON resource (uid) WHERE claimed = 1;
-- The two phases every reconcile passes through are left out, so that it touches no index for them.
CREATE INDEX resource_phase ON resource (phase, kind, name) WHERE phase NOT IN ('Reconciling', 'Ready');

-- Documents, verbatim. The key is resource.id * 8 + slot: one small key, and the documents of a resource lie together.
CREATE TABLE doc (
    key   INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE label (
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    uid   BLOB NOT NULL,
    PRIMARY KEY (key, value, uid)
) STRICT, WITHOUT ROWID;

-- Which kinds would cure the failure of which resource.
CREATE TABLE cure (
    kind TEXT NOT NULL,
    uid  BLOB NOT NULL,
    PRIMARY KEY (kind, uid)
) STRICT, WITHOUT ROWID;

CREATE TABLE edge (
    from_uid BLOB NOT NULL,
    to_uid   BLOB NOT NULL,
    owner    BLOB NOT NULL,
    position INTEGER NOT NULL,
    former   INTEGER NOT NULL,
    flows    TEXT NOT NULL,
    PRIMARY KEY (from_uid, to_uid)
) STRICT;
CREATE INDEX edge_to ON edge (to_uid, position, from_uid);
CREATE INDEX edge_owner ON edge (owner, from_uid, to_uid);

CREATE TABLE config (
    name          TEXT PRIMARY KEY,
    kind          TEXT NOT NULL,
    version       INTEGER NOT NULL,
    is_default    INTEGER NOT NULL,
    spec          BLOB NOT NULL,
    bundle_bytes  INTEGER NOT NULL,
    bundle_digest BLOB NOT NULL,
    effective     BLOB NOT NULL,
    broken        TEXT,
    owner         BLOB,
    created_ms    INTEGER NOT NULL,
    updated_ms    INTEGER NOT NULL,
    revision      INTEGER NOT NULL
) STRICT;
CREATE INDEX config_pair ON config (kind, version, is_default, name);
CREATE INDEX config_owner ON config (owner, name) WHERE owner IS NOT NULL;

CREATE TABLE bundle (
    name  TEXT PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;

-- No config and no position are empty values, so that an equal sweep is found to be there already.
CREATE TABLE sweep (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    kind       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    config_ref TEXT NOT NULL,
    after      BLOB NOT NULL,
    UNIQUE (kind, version, config_ref, after)
) STRICT;

CREATE TABLE event (
    uid        BLOB NOT NULL,
    seq        INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    generation INTEGER NOT NULL,
    reaction   TEXT,
    message    TEXT NOT NULL,
    count      INTEGER NOT NULL,
    who        TEXT,
    PRIMARY KEY (uid, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE history (
    uid        BLOB NOT NULL,
    generation INTEGER NOT NULL,
    spec       BLOB NOT NULL,
    labels     TEXT NOT NULL,
    kind       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    config_ref TEXT,
    at_ms      INTEGER NOT NULL,
    who        TEXT,
    PRIMARY KEY (uid, generation)
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstone (
    uid        BLOB PRIMARY KEY,
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    owner      BLOB,
    removed_ms INTEGER NOT NULL,
    revision   INTEGER NOT NULL
) STRICT;
CREATE INDEX tombstone_name ON tombstone (kind, name, revision);
CREATE INDEX tombstone_removed ON tombstone (removed_ms);
