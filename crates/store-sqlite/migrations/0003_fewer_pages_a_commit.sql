-- A commit writes every page it changes, and an index more is a page more. What changes together lies together here.

-- What changes with nearly every commit: the counters of pairs, and the store's own in the row of kind '' and version 0.
CREATE TABLE tally (
    kind           TEXT NOT NULL,
    version        INTEGER NOT NULL,
    -- The last number given out, and when: a clock that was set back is noticed by it.
    revision       INTEGER,
    at_ms          INTEGER,
    -- Of a pair. How many of its resources are in which phase is kept by the writer in the transaction that moves them.
    inflight       INTEGER,
    turns          TEXT,
    since          TEXT,
    default_config BLOB,
    resources      INTEGER,
    phases         TEXT,
    PRIMARY KEY (kind, version)
) STRICT, WITHOUT ROWID;
INSERT INTO tally (kind, version, revision, at_ms) SELECT '', 0, revision, seen_ms FROM meta;
INSERT INTO tally (kind, version, inflight, turns, since, default_config, resources, phases)
    SELECT kind, version, inflight, turns, since, default_config, resources,
        (SELECT json_group_object(phase, n) FROM phase_count AS counted
            WHERE counted.kind = pair.kind AND counted.version = pair.version AND n > 0)
    FROM pair;
DROP TABLE phase_count;
DROP TABLE pair;
DROP TABLE meta;

-- Filled and emptied again to find out whether the disk takes writes.
CREATE TABLE probe (filler BLOB) STRICT;

-- What happened to a resource: its events (what = 0, n = seq) and its authored states (what = 1, n = generation).
CREATE TABLE past (
    uid        BLOB NOT NULL,
    what       INTEGER NOT NULL,
    n          INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    who        TEXT,
    -- Of an event.
    event      TEXT,
    generation INTEGER,
    reaction   TEXT,
    message    TEXT,
    count      INTEGER,
    -- Of an authored state. A large spec is in `big`: a search compares with rows of this table, and reads them whole for it.
    spec       BLOB,
    big        INTEGER,
    labels     TEXT,
    kind       TEXT,
    version    INTEGER,
    config_ref TEXT,
    PRIMARY KEY (uid, what, n)
) STRICT, WITHOUT ROWID;
INSERT INTO past (uid, what, n, at_ms, who, event, generation, reaction, message, count)
    SELECT uid, 0, seq, at_ms, who, kind, generation, reaction, message, count FROM event;
CREATE TABLE big (
    id    INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;
CREATE TABLE numbered AS
    SELECT uid, generation, row_number() OVER (ORDER BY uid, generation) AS id FROM history WHERE length(spec) > 512;
INSERT INTO big (id, bytes) SELECT id, spec FROM numbered JOIN history USING (uid, generation);
INSERT INTO past (uid, what, n, at_ms, who, spec, big, labels, kind, version, config_ref)
    SELECT uid, 1, generation, at_ms, who, iif(id IS NULL, spec, NULL), id, labels, kind, version, config_ref
    FROM history LEFT JOIN numbered USING (uid, generation);
DROP TABLE numbered;
DROP TABLE event;
DROP TABLE history;

-- Resources that nobody owns lie apart from those that are owned, each half by name: lists of either walk no row of the other.
-- That no name is in both halves is looked after by the writer: a trigger would have SQLite copy every page the insertion touches.
DROP INDEX resource_name;
DROP INDEX resource_top;
CREATE UNIQUE INDEX resource_name ON resource (owner IS NULL, kind, name);

-- A resource without owner is its own root and needs no entry to be found by it.
DROP INDEX resource_root;
CREATE INDEX resource_root ON resource (root) WHERE root <> uid;

-- From waiting to running is a step within one index.
DROP INDEX resource_ready;
DROP INDEX resource_claimed;
CREATE INDEX resource_queue ON resource (claimed, ready_kind, ready_version, ready_class, ready_turn, ready_since_ms, uid)
    WHERE claimed = 1 OR ready_class IS NOT NULL;
