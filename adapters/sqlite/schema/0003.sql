-- Schema 3: digests of keys whose records are gone. This part alone brings a file of schema 2 up to date; put it into one
-- transaction.
--
-- Workers of schema 2 that are running may run on. What their sweeps purge leaves its digest too, and is announced only
-- with that (see the trigger).
UPDATE semel_state SET schema = 3 WHERE one = 1;

-- Whose records leave a digest, and for how long it is kept: seconds.
CREATE TABLE semel_remember (
  consumer TEXT    PRIMARY KEY,
  keep     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What is remembered of a key whose record is gone, in one number: how it ended (0 completed, 1 failed, 2 released with a
-- doubt) << 36 | when, in hours since 2020 << 16 | until when the digest is kept, in days since 2020.
CREATE TABLE semel_digest (
  hash BLOB    PRIMARY KEY,              -- as in semel_record
  meta INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Announcements: digests of records that are still there, and go some minutes later, or that went unannounced.
CREATE TABLE semel_digest_young (
  hash BLOB    PRIMARY KEY,
  at   INTEGER NOT NULL,                 -- when it was announced
  day  INTEGER NOT NULL                  -- until when the digest is kept, in days since 2020
) STRICT, WITHOUT ROWID;

-- A record leaves its digest in the statement that removes it, whichever program sends that.
CREATE TRIGGER semel_record_remembered AFTER DELETE ON semel_record
WHEN OLD.state IN (3, 4) OR OLD.state = 2 AND OLD.unknown = 1 BEGIN
  INSERT INTO semel_digest (hash, meta)
    SELECT OLD.hash,
        (CASE OLD.state WHEN 3 THEN 0 WHEN 4 THEN 1 ELSE 2 END << 36)
      | (max(CASE OLD.state WHEN 3 THEN OLD.completed_at ELSE OLD.updated_at END / 3600000000 - 438288, 0) << 16)
      | coalesce((SELECT day FROM semel_digest_young WHERE hash = OLD.hash),
          min((max(OLD.retain_until, (SELECT clock FROM semel_state)) / 1000000 + m.keep - 1577836800 + 86399) / 86400, 65535))
    FROM semel_remember m WHERE m.consumer = OLD.consumer
    ON CONFLICT (hash) DO UPDATE SET meta = excluded.meta;
  -- Nobody announced it: filters that are filled already read it here. What was announced, the sweep removes.
  INSERT INTO semel_digest_young (hash, at, day)
    SELECT OLD.hash, unixepoch() * 1000000, meta & 65535 FROM semel_digest
    WHERE hash = OLD.hash AND EXISTS (SELECT 1 FROM semel_remember WHERE consumer = OLD.consumer)
    ON CONFLICT (hash) DO NOTHING;
END;

-- For people.
CREATE VIEW semel_digests AS
SELECT lower(hex(hash)) AS hash, CASE meta >> 36 WHEN 0 THEN 'COMPLETED' WHEN 1 THEN 'FAILED' ELSE 'RELEASED' END AS state,
       datetime(1577836800 + (meta >> 16 & 1048575) * 3600, 'unixepoch') AS at,
       date(1577836800 + (meta & 65535) * 86400, 'unixepoch') AS until
  FROM semel_digest;
