-- Schema 2: keys with versions, journals of steps, the operators' trail. This part alone brings a file of schema 1 up to
-- date; put it into one transaction.
--
-- Workers of schema 1 that are running may run on. Records with versions they cannot read (see deliveries), so that they
-- neither run nor acknowledge messages of such keys.
UPDATE semel_state SET schema = 2 WHERE one = 1;

-- NULL: the key has no versions. Else how far it came, as driver.AppendWatermark writes it, and deliveries begins with the
-- word versions, at which a program of schema 1 stumbles.
ALTER TABLE semel_record ADD COLUMN watermark BLOB;

-- The version of the message; NULL: none.
ALTER TABLE semel_letter ADD COLUMN version BLOB;

-- Journals of steps (mode E): what the run of a key wrote down of its progress. epoch and version name the run.
CREATE TABLE semel_step (
  hash       BLOB    NOT NULL,           -- of the record
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
  PRIMARY KEY (hash, epoch, version, name)
) STRICT;

-- The trail of operators: who did what to which record, and what it was before. Lines are only added.
CREATE TABLE semel_audit (
  seq        INTEGER PRIMARY KEY,
  hash       BLOB    NOT NULL,           -- of the record
  at         INTEGER NOT NULL,
  who        TEXT    NOT NULL,
  kind       INTEGER NOT NULL,           -- 1 resolve 2 redrive 3 discard 4 release 5 reopen 6 erase
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
CREATE INDEX semel_audit_hash ON semel_audit (hash);

-- The newest duplicates of each key: deliveries that were settled without a run. Written outside of the messages'
-- transactions, best effort.
CREATE TABLE semel_duplicate (
  hash     BLOB    NOT NULL,             -- of the record
  nr       INTEGER NOT NULL,             -- counts the duplicates of the key, from 1; the last one is how many there were
  at       INTEGER NOT NULL,
  message  TEXT    NOT NULL,             -- its id
  worker   TEXT    NOT NULL,
  queue    TEXT    NOT NULL,
  delivery INTEGER NOT NULL,             -- the broker's delivery count; 0: unknown
  decision TEXT    NOT NULL,
  cause    TEXT    NOT NULL,
  PRIMARY KEY (hash, nr)
) STRICT, WITHOUT ROWID;

-- A record's steps, trail and duplicates go with it: a key that came back would find its old steps done. It is a trigger because a
-- sweep of a program of schema 1 does not know of them.
CREATE TRIGGER semel_record_gone AFTER DELETE ON semel_record BEGIN
  DELETE FROM semel_step WHERE hash = OLD.hash;
  DELETE FROM semel_audit WHERE hash = OLD.hash;
  DELETE FROM semel_duplicate WHERE hash = OLD.hash;
END;

-- For people.
CREATE VIEW semel_letters AS
SELECT q.name AS queue, l.id, l.kind, l.reason, l.consumer, l.tenant, l.key, l.generation, l.token, l.attempts,
       datetime(nullif(l.first_received, 0) / 1000000, 'unixepoch') AS first_received, datetime(nullif(l.dead_at, 0) / 1000000, 'unixepoch') AS dead_at,
       l.msg_id, l.msg_queue, l.grp, datetime(nullif(l.sent_at, 0) / 1000000, 'unixepoch') AS sent_at, l.headers,
       length(l.body) AS size, CAST(substr(l.body, 1, 1024) AS TEXT) AS body, CAST(l.version AS TEXT) AS version
  FROM semel_letter l JOIN semel_queue q ON q.id = l.queue;

CREATE VIEW semel_steps AS
SELECT r.consumer, r.tenant, r.key, s.epoch, s.version, s.seq, s.name,
       CASE s.state WHEN 1 THEN 'REGISTERED' WHEN 2 THEN 'STARTED' WHEN 3 THEN 'DONE' WHEN 4 THEN 'COMP_STARTED'
         WHEN 5 THEN 'COMP_DONE' WHEN 6 THEN 'COMPENSATING' END AS state,
       s.undo, s.failures, s.reason, s.result, s.token, datetime(s.updated_at / 1000000, 'unixepoch') AS updated_at
  FROM semel_step s JOIN semel_record r ON r.hash = s.hash;

CREATE VIEW semel_audits AS
SELECT datetime(at / 1000000, 'unixepoch') AS at, who,
       CASE kind WHEN 1 THEN 'resolve' WHEN 2 THEN 'redrive' WHEN 3 THEN 'discard' WHEN 4 THEN 'release'
         WHEN 5 THEN 'reopen' WHEN 6 THEN 'erase' END AS kind,
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
  FROM semel_duplicate d JOIN semel_record r ON r.hash = d.hash;
