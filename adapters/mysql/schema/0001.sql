-- Tables of semel on MariaDB and MySQL. Times are microseconds since 1970 in UTC. Text is stored as the bytes that came, so
-- that keys are compared byte by byte. Each statement ends with a semicolon at the end of a line.

-- One idempotency record for each key, for all modes, in the order of the keys. NULL takes no room: a key that is completed
-- in its first run has few values.
CREATE TABLE IF NOT EXISTS semel_record (
  place        VARBINARY(255) NOT NULL PRIMARY KEY, -- of the key: 6 bytes of the SHA-256 of consumer, length of tenant, tenant, key
  rest         LONGBLOB,                            -- length of tenant, tenant, key, where place has 255 bytes and ends with a hash
  consumer     VARBINARY(2048) NOT NULL,
  token        BIGINT NOT NULL,                     -- of the latest attempt: the fence
  state        TINYINT NOT NULL,                    -- 1 IN_PROGRESS 2 RELEASED 3 COMPLETED 4 FAILED 5 UNCERTAIN 6 EXPIRED
  bits         TINYINT NOT NULL,                    -- takeover (0 resume 1 probe 2 once) | 4 unknown: an earlier run may have had
                                                    -- its effect | 8 spent: the nonce was released | 16 disposed: a person
                                                    -- discarded the dead letter
  ended        TINYINT,                             -- the state before an EXPIRED record expired
  nonce        BINARY(16) NOT NULL,                 -- of the owner of the latest attempt
  created_at   BIGINT NOT NULL,
  updated_at   BIGINT NOT NULL,
  lease_until  BIGINT,                              -- NULL: no lease
  retain_until BIGINT,                              -- NULL: never purged (IN_PROGRESS, UNCERTAIN). EXPIRED: end of the long-term period
  completed_at BIGINT,
  retry_at     BIGINT,
  lease        BIGINT,                              -- that was asked for, in microseconds
  body_digest  BIGINT,                              -- of the latest run's message (driver.BodyDigest); NULL: unknown
  generation   INT,                                 -- raised by a redrive; NULL: 1
  epoch        INT,                                 -- deliberate re-runs of a completed key; NULL: 0, as in all that follow
  attempt      INT,                                 -- runs in this generation
  failures     INT,                                 -- recorded failed runs in this generation
  takeovers    INT,                                 -- expired runs in a row
  uncertainty  INT,                                 -- moments at which the outcome became unknown
  beat         INT,                                 -- extensions of the lease
  deliveries   BLOB,                                -- ids of deliveries that acquired the key, each after its length; '' is the key
  fingerprint  BLOB,
  watermark    BLOB,                                -- NULL: no versions. Else the progress of the key (driver.AppendWatermark)
  result       LONGBLOB,
  reason       LONGBLOB,
  KEY semel_record_due (state, retain_until)        -- for sweeps; records IN_PROGRESS are few
) ENGINE = InnoDB;

-- The records that need a person: UNCERTAIN, or FAILED and not discarded.
CREATE TABLE IF NOT EXISTS semel_case (
  place    VARBINARY(255) NOT NULL PRIMARY KEY,     -- of the record
  consumer VARBINARY(2048) NOT NULL,
  state    TINYINT NOT NULL,                        -- 4 FAILED 5 UNCERTAIN
  since    BIGINT NOT NULL,                         -- updated_at of the record
  KEY semel_case_since (state, since, place),
  KEY semel_case_consumer (consumer, state, since, place)
) ENGINE = InnoDB;

-- One row: the greatest token of a purged record. Tokens follow the server's clock; if that steps back, they go on behind it.
CREATE TABLE IF NOT EXISTS semel_floor (
  one    TINYINT NOT NULL PRIMARY KEY,
  purged BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO semel_floor (one, purged) VALUES (1, 0);

-- Journals of steps (mode E): the progress of the run of a key. epoch and version name the run.
CREATE TABLE IF NOT EXISTS semel_step (
  place      VARBINARY(255) NOT NULL,               -- of the record
  epoch      INT NOT NULL,
  version    VARBINARY(1024) NOT NULL,
  name       VARBINARY(1024) NOT NULL,              -- '' is the run's own row
  seq        INT NOT NULL,                          -- the order in which the rows were made, from 1
  state      TINYINT NOT NULL,                      -- 1 REGISTERED 2 STARTED 3 DONE 4 COMP_STARTED 5 COMP_DONE 6 COMPENSATING
  `undo`     TINYINT NOT NULL,                      -- 1: it has a compensation
  failures   INT NOT NULL,                          -- failed compensations
  token      BIGINT NOT NULL,
  nonce      BINARY(16) NOT NULL,                   -- token and nonce of the attempt that wrote the row last
  updated_at BIGINT NOT NULL,
  result     LONGBLOB,
  reason     LONGBLOB,
  PRIMARY KEY (place, epoch, version, name)
) ENGINE = InnoDB;

-- The audit entries of operators: who did what to which record, and what it was before. They are only added.
CREATE TABLE IF NOT EXISTS semel_audit (
  seq        BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  place      VARBINARY(255) NOT NULL,               -- of the record
  at         BIGINT NOT NULL,
  who        LONGBLOB NOT NULL,
  kind       TINYINT NOT NULL,                      -- 1 resolve 2 redrive 3 discard 4 release 5 reopen 6 erase 7 refuse
  was        TINYINT NOT NULL,                      -- states as in semel_record
  became     TINYINT NOT NULL,
  generation INT NOT NULL,
  token      BIGINT NOT NULL,
  verified   TINYINT NOT NULL,                      -- 1: the effect certainly had not happened
  renewed    TINYINT NOT NULL,                      -- 1: a completed key was to run again
  consumer   VARBINARY(2048) NOT NULL,
  tenant     LONGBLOB NOT NULL,
  `key`      LONGBLOB NOT NULL,
  reason     LONGBLOB,
  KEY semel_audit_place (place)
) ENGINE = InnoDB;

-- The newest duplicates of each key: deliveries that were settled without a run. Written outside of the messages'
-- transactions, best effort.
CREATE TABLE IF NOT EXISTS semel_duplicate (
  place    VARBINARY(255) NOT NULL,                 -- of the record
  nr       BIGINT NOT NULL,                         -- counts the duplicates of the key, from 1
  at       BIGINT NOT NULL,
  message  LONGBLOB NOT NULL,                       -- its id
  worker   LONGBLOB NOT NULL,
  queue    LONGBLOB NOT NULL,
  delivery INT NOT NULL,                            -- the broker's delivery count; 0: unknown
  decision LONGBLOB NOT NULL,
  cause    LONGBLOB NOT NULL,
  PRIMARY KEY (place, nr)
) ENGINE = InnoDB;

-- For how long the records of a consumer stay EXPIRED after their retention. Every sweep obeys it.
CREATE TABLE IF NOT EXISTS semel_long_term (
  consumer VARBINARY(2048) NOT NULL PRIMARY KEY,
  period   BIGINT NOT NULL                          -- microseconds
) ENGINE = InnoDB;

-- Reports of running workers, every ten seconds at most, best effort.
CREATE TABLE IF NOT EXISTS semel_worker (
  id       VARBINARY(1024) NOT NULL PRIMARY KEY,
  seen     BIGINT NOT NULL,
  queue    VARBINARY(1024) NOT NULL,
  consumer VARBINARY(2048) NOT NULL,
  report   LONGBLOB NOT NULL                        -- JSON
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS semel_queue (
  id   INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(1024) NOT NULL,
  UNIQUE KEY semel_queue_name (name)
) ENGINE = InnoDB;

-- Messages that are not settled.
CREATE TABLE IF NOT EXISTS semel_message (
  pos     BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue   INT NOT NULL,
  waits   TINYINT NOT NULL,                         -- 1: an earlier message of its group is not settled
  due_at  BIGINT NOT NULL,                          -- deliverable from then on, in this order
  hold    BIGINT NOT NULL,                          -- the delay or visibility that was asked for, in microseconds
  held    TINYINT NOT NULL DEFAULT 0,               -- 1: delivered, due_at is the end of its visibility
  count   INT NOT NULL DEFAULT 0,                   -- deliveries so far
  nonce   BINARY(16),                               -- of the latest delivery, random; NULL: none, or it was returned
  sent_at BIGINT NOT NULL,
  id      LONGBLOB NOT NULL,
  grp     VARBINARY(1024),                          -- ordered group
  headers LONGBLOB,                                 -- JSON object
  body    LONGBLOB NOT NULL,
  KEY semel_message_due (queue, waits, due_at, pos),
  KEY semel_message_group (queue, grp, pos)
) ENGINE = InnoDB;

-- Ordered groups. A transaction that sends to a group or removes its messages locks its row.
CREATE TABLE IF NOT EXISTS semel_group (
  queue INT NOT NULL,
  grp   VARBINARY(1024) NOT NULL,
  PRIMARY KEY (queue, grp)
) ENGINE = InnoDB;

-- Messages set aside for a person. A dead letter is self-contained.
CREATE TABLE IF NOT EXISTS semel_dead_letter (
  seq            BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue          INT NOT NULL,
  id             VARBINARY(1024) NOT NULL,
  kind           VARBINARY(255) NOT NULL,           -- failed, mismatch, uncertain, busy, late
  reason         LONGBLOB NOT NULL,
  consumer       VARBINARY(2048) NOT NULL,
  tenant         LONGBLOB NOT NULL,
  `key`          LONGBLOB NOT NULL,
  generation     INT NOT NULL,
  token          BIGINT NOT NULL,
  attempts       INT NOT NULL,
  first_received BIGINT,
  dead_at        BIGINT NOT NULL,
  msg_id         LONGBLOB NOT NULL,
  msg_queue      VARBINARY(1024) NOT NULL,
  grp            VARBINARY(1024),
  sent_at        BIGINT,
  headers        LONGBLOB,                          -- JSON object
  body           LONGBLOB,
  version        LONGBLOB,                          -- of the message; NULL: none
  UNIQUE KEY semel_dead_letter_id (queue, id),
  KEY semel_dead_letter_seq (queue, seq)
) ENGINE = InnoDB;

-- One row: the version of this schema. It is made last. Sweeps lock it against changes of semel_long_term.
CREATE TABLE IF NOT EXISTS semel_schema (
  one     TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL
) ENGINE = InnoDB;
INSERT INTO semel_schema (one, version) VALUES (1, 1) ON DUPLICATE KEY UPDATE version = 1;
