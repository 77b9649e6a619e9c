-- Times are microseconds since 1970 in UTC; 0 = never.

-- One row: the numbers that are never handed out twice, and the clock at the last write.
CREATE TABLE semel_state (
  one    INTEGER PRIMARY KEY CHECK (one = 1),
  schema INTEGER NOT NULL,   -- version of this schema
  token  INTEGER NOT NULL,   -- the last token that was drawn; survives every purge
  clock  INTEGER NOT NULL,   -- a later reading below it means that the clock stepped back
  swept  INTEGER NOT NULL,   -- blocks of tokens below it have a row in semel_block
  purged INTEGER NOT NULL    -- the greatest token of a purged record
) STRICT;
INSERT INTO semel_state (one, schema, token, clock, swept, purged) VALUES (1, 1, 0, 0, 0, 0);

-- One idempotency record per key, for all modes. Rows are in the order of their tokens, and the index is in the order of the
-- keys. A column takes a byte of each row, and NULL, 0 and 1 take no further one: a key that is completed in its first run has
-- few other values. A row is not longer when it is COMPLETED than it was IN_PROGRESS, so that full pages stay so.
-- With its index entry, such a record of a key of 16 bytes takes 130 bytes.
CREATE TABLE semel_record (
  token        INTEGER PRIMARY KEY,      -- of the latest attempt: the fence
  place        BLOB    NOT NULL,         -- of the key: 6 bytes of the SHA-256 of consumer, length of tenant, tenant, key
  rest         BLOB,                     -- length of tenant, tenant, key, where place has 255 bytes and ends with a hash
  consumer     TEXT    NOT NULL,
  state        INTEGER NOT NULL,         -- 1 IN_PROGRESS 2 RELEASED 3 COMPLETED 4 FAILED 5 UNCERTAIN 6 EXPIRED
  bits         INTEGER NOT NULL,         -- takeover (0 resume 1 probe 2 once) | 4 unknown: an earlier run may have had its effect
                                         -- | 8 spent: the nonce was released | 16 disposed: a person discarded the dead letter
                                         -- | 32 * the state before an EXPIRED record expired
  nonce        BLOB    NOT NULL,         -- 16 bytes: who owns the latest attempt
  created_at   INTEGER NOT NULL,         -- in milliseconds
  age          INTEGER NOT NULL,         -- microseconds from created_at to the latest change
  until        INTEGER,                  -- from created_at to the end of the lease, in nanoseconds (IN_PROGRESS), or to that of the
                                         -- retention or the long-term period, in milliseconds. NULL: never purged
  body_digest  INTEGER NOT NULL,         -- of the body of the latest run's message, as driver.BodyDigest; 0: not known
  deliveries   BLOB,                     -- ids of deliveries that acquired the key, each after its length; '' is the key itself
  fingerprint  BLOB,
  watermark    BLOB,                     -- NULL: no versions. Else how far the key came (driver.AppendWatermark)
  result       BLOB,
  reason       TEXT,
  more         TEXT CHECK (json_valid(more)), -- JSON object of what few records have:
                                         -- generation  raised by a redrive; else 1
                                         -- epoch       deliberate re-runs of a completed key
                                         -- attempt     runs in this generation; else 1, or 0 if EXPIRED
                                         -- failures    recorded failed runs in this generation
                                         -- takeovers   expired runs in a row
                                         -- uncertainty moments when nobody could know the outcome
                                         -- beat        extensions of the lease
                                         -- lease       that was asked for, in nanoseconds; else until - 1000 * age
                                         -- retry_at, completed_at (of an older version): microseconds from created_at

  updated_at   INTEGER AS (1000 * created_at + age) VIRTUAL,
  lease_until  INTEGER AS (CASE state WHEN 1 THEN 1000 * created_at + until / 1000 END) VIRTUAL,
  retain_until INTEGER AS (CASE WHEN state <> 1 THEN 1000 * (created_at + until) END) VIRTUAL,
  completed_at INTEGER AS (1000 * created_at + CASE state WHEN 3 THEN age ELSE more ->> 'completed_at' END) VIRTUAL
) STRICT;
CREATE UNIQUE INDEX semel_record_place ON semel_record (place);

-- The records that need a person: UNCERTAIN, or FAILED and not discarded. A table of its own, because an index of semel_record
-- on them would be looked at whenever a record changes.
CREATE TABLE semel_case (
  place    BLOB    PRIMARY KEY,          -- of the record
  consumer TEXT    NOT NULL,
  state    INTEGER NOT NULL,             -- 4 FAILED 5 UNCERTAIN
  since    INTEGER NOT NULL              -- updated_at of the record
) STRICT, WITHOUT ROWID;
CREATE INDEX semel_case_since ON semel_case (state, since, place);
CREATE INDEX semel_case_consumer ON semel_case (consumer, state, since, place);

-- What a sweep knows of a block of 4096 tokens: nothing in it can be purged or parked before due.
CREATE TABLE semel_block (
  block INTEGER PRIMARY KEY,             -- token / 4096
  due   INTEGER NOT NULL
) STRICT;

CREATE TABLE semel_queue (
  id    INTEGER PRIMARY KEY,
  name  TEXT    NOT NULL UNIQUE,
  next  INTEGER NOT NULL,                -- position of the next message
  taken INTEGER NOT NULL                 -- messages of semel_stream up to this position were handed out
) STRICT;

-- Messages that come in order and have never been returned. They are handed out in runs, see semel_flight, so that
-- neither handing out nor settling a run writes to each message.
CREATE TABLE semel_stream (
  pos     INTEGER PRIMARY KEY,           -- queue id << 44 | position in the queue
  id      TEXT    NOT NULL,
  sent_at INTEGER NOT NULL,
  size    INTEGER NOT NULL,              -- bytes of the body
  headers TEXT,                          -- JSON object
  body    BLOB                           -- NULL: in semel_body
) STRICT;

-- A run of semel_stream that was handed out and is not settled yet.
CREATE TABLE semel_flight (
  hand   INTEGER PRIMARY KEY,            -- queue id << 44 | number of the delivery, random
  first  INTEGER NOT NULL,
  last   INTEGER NOT NULL,               -- positions, inclusive
  rest   INTEGER NOT NULL,               -- messages of the run that are still in semel_stream
  parted INTEGER NOT NULL,               -- 1: some were returned or extended singly, and are in semel_timed
  until  INTEGER NOT NULL,               -- visible to others after it
  hold   INTEGER NOT NULL                -- the visibility that was asked for
) STRICT;

-- Messages with a time of their own: delayed, returned, extended, or of an ordered group.
CREATE TABLE semel_timed (
  pos     INTEGER PRIMARY KEY,           -- as in semel_stream
  queue   INTEGER NOT NULL,
  waits   INTEGER NOT NULL,              -- 1: an earlier message of its group is not settled
  until   INTEGER NOT NULL,              -- deliverable from then on
  hold    INTEGER NOT NULL,              -- the delay or visibility that was asked for
  held    INTEGER NOT NULL,              -- 1: handed out, until is the end of its visibility
  hand    INTEGER NOT NULL,              -- the latest delivery; 0 = none that could still settle it
  count   INTEGER NOT NULL,              -- deliveries so far
  grp     TEXT,                          -- ordered group
  id      TEXT    NOT NULL,
  sent_at INTEGER NOT NULL,
  size    INTEGER NOT NULL,
  headers TEXT,
  body    BLOB
) STRICT;
CREATE INDEX semel_timed_due ON semel_timed (queue, until) WHERE waits = 0;
CREATE INDEX semel_timed_group ON semel_timed (queue, grp, pos) WHERE grp IS NOT NULL;

-- Bodies that are too long to be moved about with their message.
CREATE TABLE semel_body (
  pos  INTEGER PRIMARY KEY,
  body BLOB NOT NULL
) STRICT;

-- Messages set aside for a person. A dead letter is self-contained.
CREATE TABLE semel_dead_letter (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  queue          INTEGER NOT NULL,
  id             TEXT    NOT NULL,
  kind           TEXT    NOT NULL,       -- failed, mismatch, uncertain, busy, late
  reason         TEXT    NOT NULL,
  consumer       TEXT    NOT NULL,
  tenant         TEXT    NOT NULL,
  key            TEXT    NOT NULL,
  generation     INTEGER NOT NULL,
  token          INTEGER NOT NULL,
  attempts       INTEGER NOT NULL,
  first_received INTEGER NOT NULL,
  dead_at        INTEGER NOT NULL,
  msg_id         TEXT    NOT NULL,
  msg_queue      TEXT    NOT NULL,
  grp            TEXT    NOT NULL,
  sent_at        INTEGER NOT NULL,
  headers        TEXT,
  body           BLOB,
  version        BLOB                    -- of the message; NULL: none
) STRICT;
CREATE UNIQUE INDEX semel_dead_letter_id ON semel_dead_letter (queue, id);
CREATE INDEX semel_dead_letter_seq ON semel_dead_letter (queue, seq);

-- Journals of steps (mode E): what the run of a key wrote down of its progress. epoch and version name the run.
CREATE TABLE semel_step (
  place      BLOB    NOT NULL,           -- of the record
  epoch      INTEGER NOT NULL,
  version    BLOB    NOT NULL,
  name       TEXT    NOT NULL,           -- '' is the run's own row
  seq        INTEGER NOT NULL,           -- the order in which the rows were made, from 1
  state      INTEGER NOT NULL,           -- 1 REGISTERED 2 STARTED 3 DONE 4 COMP_STARTED 5 COMP_DONE 6 COMPENSATING
  undo       INTEGER NOT NULL,           -- 1: it has a compensation
  failures   INTEGER NOT NULL,           -- failed compensations
  token      INTEGER NOT NULL,
  nonce      BLOB    NOT NULL,           -- token and nonce of the attempt that wrote the row last
  updated_at INTEGER NOT NULL,
  result     BLOB,
  reason     TEXT    NOT NULL,
  PRIMARY KEY (place, epoch, version, name)
) STRICT;

-- The audit entries of operators: who did what to which record, and what it was before. They are only added.
CREATE TABLE semel_audit (
  seq        INTEGER PRIMARY KEY,
  place      BLOB    NOT NULL,           -- of the record
  at         INTEGER NOT NULL,
  who        TEXT    NOT NULL,
  kind       INTEGER NOT NULL,           -- 1 resolve 2 redrive 3 discard 4 release 5 reopen 6 erase 7 refuse
  was        INTEGER NOT NULL,           -- states as in semel_record
  became     INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  token      INTEGER NOT NULL,
  verified   INTEGER NOT NULL,           -- 1: the effect certainly had not happened
  renewed    INTEGER NOT NULL,           -- 1: a completed key was to run again
  consumer   TEXT    NOT NULL,
  tenant     TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  reason     TEXT    NOT NULL
) STRICT;
CREATE INDEX semel_audit_place ON semel_audit (place);

-- The newest duplicates of each key: deliveries that were settled without a run. Written outside of the messages'
-- transactions, best effort.
CREATE TABLE semel_duplicate (
  place    BLOB    NOT NULL,             -- of the record
  nr       INTEGER NOT NULL,             -- counts the duplicates of the key, from 1; the last one is how many there were
  at       INTEGER NOT NULL,
  message  TEXT    NOT NULL,             -- its id
  worker   TEXT    NOT NULL,
  queue    TEXT    NOT NULL,
  delivery INTEGER NOT NULL,             -- the broker's delivery count; 0: unknown
  decision TEXT    NOT NULL,
  cause    TEXT    NOT NULL,
  PRIMARY KEY (place, nr)
) STRICT, WITHOUT ROWID;

-- A record's steps, audit entries and duplicates go with it. A new run of the key must not find its old steps done.
CREATE TRIGGER semel_record_gone AFTER DELETE ON semel_record BEGIN
  DELETE FROM semel_step WHERE place = OLD.place;
  DELETE FROM semel_audit WHERE place = OLD.place;
  DELETE FROM semel_duplicate WHERE place = OLD.place;
  DELETE FROM semel_case WHERE place = OLD.place;
END;

-- For how long the records of a consumer stay EXPIRED after their retention. Every sweep obeys it.
CREATE TABLE semel_long_term (
  consumer TEXT    PRIMARY KEY,
  period   INTEGER NOT NULL              -- microseconds
) STRICT, WITHOUT ROWID;

-- What each running worker reports about itself, every ten seconds at most, best effort.
CREATE TABLE semel_worker (
  id       TEXT    PRIMARY KEY,
  seen     INTEGER NOT NULL,
  queue    TEXT    NOT NULL,
  consumer TEXT    NOT NULL,
  report   BLOB    NOT NULL              -- JSON
) STRICT, WITHOUT ROWID;

-- The tenant and the key of each record, which are in its place. k is the length of the tenant, as uvarint, then both.
CREATE VIEW semel_key AS
SELECT token, place, consumer, CAST(substr(k, at, size) AS TEXT) AS tenant, CAST(substr(k, at + size) AS TEXT) AS key
  FROM (SELECT *, CASE WHEN a < 128 THEN a ELSE a - 128 + 128 * b END AS size, CASE WHEN a < 128 THEN 2 ELSE 3 END AS at
    FROM (SELECT *, 16 * instr('123456789ABCDEF', substr(h, 1, 1)) + instr('123456789ABCDEF', substr(h, 2, 1)) AS a,
        16 * instr('123456789ABCDEF', substr(h, 3, 1)) + instr('123456789ABCDEF', substr(h, 4, 1)) AS b
      FROM (SELECT *, hex(substr(k, 1, 2)) AS h
        FROM (SELECT token, place, consumer, coalesce(rest, substr(place, 7)) AS k FROM semel_record))));

-- For people, with the names that the views have on PostgreSQL too. Times are text, in UTC, to the second.
CREATE VIEW semel_records AS
SELECT k.consumer, k.tenant, k.key,
       CASE state WHEN 1 THEN 'IN_PROGRESS' WHEN 2 THEN 'RELEASED' WHEN 3 THEN 'COMPLETED' WHEN 4 THEN 'FAILED'
         WHEN 5 THEN 'UNCERTAIN' WHEN 6 THEN 'EXPIRED' END AS state,
       CASE bits & 3 WHEN 0 THEN 'resume' WHEN 1 THEN 'probe' WHEN 2 THEN 'once' END AS takeover,
       coalesce(more ->> 'attempt', state <> 6) AS attempt, coalesce(more ->> 'failures', 0) AS failures,
       coalesce(more ->> 'takeovers', 0) AS takeovers, coalesce(more ->> 'uncertainty', 0) AS uncertainty,
       (bits >> 2) & 1 AS unknown, (bits >> 4) & 1 AS disposed, coalesce(more ->> 'generation', 1) AS generation,
       coalesce(more ->> 'epoch', 0) AS epoch, token, coalesce(reason, '') AS reason, CAST(result AS TEXT) AS result,
       datetime(created_at / 1000, 'unixepoch') AS created_at, datetime(updated_at / 1000000, 'unixepoch') AS updated_at,
       datetime(lease_until / 1000000, 'unixepoch') AS lease_until,
       datetime((1000 * created_at + (more ->> 'retry_at')) / 1000000, 'unixepoch') AS retry_at,
       datetime(completed_at / 1000000, 'unixepoch') AS completed_at, datetime(retain_until / 1000000, 'unixepoch') AS retain_until,
       CASE bits >> 5 WHEN 2 THEN 'RELEASED' WHEN 3 THEN 'COMPLETED' WHEN 4 THEN 'FAILED' END AS ended
  FROM semel_record JOIN semel_key k USING (token);

-- Every message, whichever table holds it.
CREATE VIEW semel_messages AS
SELECT q.name AS queue, m.pos & 17592186044415 AS pos, m.id, NULL AS grp,
       CASE WHEN f.until > unixepoch() * 1000000 THEN 'in flight' ELSE 'ready' END AS state,
       f.hand IS NOT NULL AS count, datetime(nullif(m.sent_at, 0) / 1000000, 'unixepoch') AS sent_at, datetime(nullif(m.sent_at, 0) / 1000000, 'unixepoch') AS due_at,
       datetime(nullif(f.until, 0) / 1000000, 'unixepoch') AS until, m.headers, m.size,
       CAST(substr(coalesce(m.body, (SELECT b.body FROM semel_body b WHERE b.pos = m.pos)), 1, 1024) AS TEXT) AS body
  FROM semel_stream m JOIN semel_queue q ON q.id = m.pos >> 44
  LEFT JOIN semel_flight f ON m.pos BETWEEN f.first AND f.last
UNION ALL
SELECT q.name, t.pos & 17592186044415, t.id, t.grp,
       CASE WHEN t.waits = 1 THEN 'waits for its group' WHEN t.until < (unixepoch() + 1) * 1000000 THEN 'ready'
         WHEN t.held = 1 THEN 'in flight' ELSE 'delayed' END,
       t.count, datetime(nullif(t.sent_at, 0) / 1000000, 'unixepoch'),
       datetime(nullif(iif(t.held, t.sent_at, t.until), 0) / 1000000, 'unixepoch'), datetime(nullif(iif(t.held, t.until, 0), 0) / 1000000, 'unixepoch'),
       t.headers, t.size,
       CAST(substr(coalesce(t.body, (SELECT b.body FROM semel_body b WHERE b.pos = t.pos)), 1, 1024) AS TEXT)
  FROM semel_timed t JOIN semel_queue q ON q.id = t.queue;

CREATE VIEW semel_dead_letters AS
SELECT q.name AS queue, l.id, l.kind, l.reason, l.consumer, l.tenant, l.key, l.generation, l.token, l.attempts,
       datetime(nullif(l.first_received, 0) / 1000000, 'unixepoch') AS first_received, datetime(nullif(l.dead_at, 0) / 1000000, 'unixepoch') AS dead_at,
       l.msg_id, l.msg_queue, l.grp, datetime(nullif(l.sent_at, 0) / 1000000, 'unixepoch') AS sent_at, l.headers,
       length(l.body) AS size, CAST(substr(l.body, 1, 1024) AS TEXT) AS body, CAST(l.version AS TEXT) AS version
  FROM semel_dead_letter l JOIN semel_queue q ON q.id = l.queue;

CREATE VIEW semel_steps AS
SELECT r.consumer, r.tenant, r.key, s.epoch, s.version, s.seq, s.name,
       CASE s.state WHEN 1 THEN 'REGISTERED' WHEN 2 THEN 'STARTED' WHEN 3 THEN 'DONE' WHEN 4 THEN 'COMP_STARTED'
         WHEN 5 THEN 'COMP_DONE' WHEN 6 THEN 'COMPENSATING' END AS state,
       s.undo, s.failures, s.reason, s.result, s.token, datetime(s.updated_at / 1000000, 'unixepoch') AS updated_at
  FROM semel_step s JOIN semel_key r ON r.place = s.place;

CREATE VIEW semel_audits AS
SELECT datetime(at / 1000000, 'unixepoch') AS at, who,
       CASE kind WHEN 1 THEN 'resolve' WHEN 2 THEN 'redrive' WHEN 3 THEN 'discard' WHEN 4 THEN 'release'
         WHEN 5 THEN 'reopen' WHEN 6 THEN 'erase' WHEN 7 THEN 'refuse' END AS kind,
       consumer, tenant, key, generation, token,
       CASE was WHEN 1 THEN 'IN_PROGRESS' WHEN 2 THEN 'RELEASED' WHEN 3 THEN 'COMPLETED' WHEN 4 THEN 'FAILED'
         WHEN 5 THEN 'UNCERTAIN' WHEN 6 THEN 'EXPIRED' END AS was,
       CASE became WHEN 0 THEN 'ABSENT' WHEN 1 THEN 'IN_PROGRESS' WHEN 2 THEN 'RELEASED' WHEN 3 THEN 'COMPLETED' WHEN 4 THEN 'FAILED'
         WHEN 5 THEN 'UNCERTAIN' WHEN 6 THEN 'EXPIRED' END AS became,
       reason, verified, renewed
  FROM semel_audit ORDER BY seq;

CREATE VIEW semel_duplicates AS
SELECT r.consumer, r.tenant, r.key, d.nr, datetime(d.at / 1000000, 'unixepoch') AS at, d.message, d.worker, d.queue, d.delivery,
       d.decision, d.cause
  FROM semel_duplicate d JOIN semel_key r ON r.place = d.place;
