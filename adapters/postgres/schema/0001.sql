-- semel's tables. They may be read by anybody; the views semel_records, semel_messages and semel_dead_letters are for people. Names are
-- not qualified: they live in the first schema of the search_path of the connection URL.

-- One row: the version of this schema.
CREATE TABLE semel_schema (
  one     int PRIMARY KEY CHECK (one = 1),
  version int NOT NULL
);
INSERT INTO semel_schema (one, version) VALUES (1, 1);

-- Fencing tokens: never handed out twice. CACHE 1, because a session that hands out cached numbers goes backwards.
CREATE SEQUENCE semel_token AS bigint CACHE 1;

-- One idempotency record per key, for all modes. Nothing that changes when an attempt ends is indexed, so that the end
-- of an attempt stays in its page (HOT).
--
-- A column that has the value of nearly all records is NULL, which takes no room: semel_row and the program know the value.
-- Columns are in the order of their alignment. A record of a key of 16 bytes that was completed at the first attempt takes
-- 132 bytes, and 41 in the index.
--
-- fillfactor leaves room in the page for the end of the attempt. 200,000 ordered keys, 1000 at a time in progress, and a
-- VACUUM after each 20,000, take this room, and this much WAL from claim to completion:
--   fillfactor       50     60     70     90    100
--   HOT updates    100%    78%    62%    20%     0%
--   bytes a record  314    271    266    242    229
--   bytes of WAL    426    474    518    607    647
-- 50: what is written counts for more than what is stored, and the index has one entry for each record, not two.
CREATE TABLE semel_record (
  token        bigint      NOT NULL,     -- of the latest attempt: the fence
  created_at   timestamptz NOT NULL,
  updated_at   timestamptz NOT NULL,
  lease_until  timestamptz,              -- NULL when it does not matter any more
  retain_until timestamptz,              -- NULL: never purged (IN_PROGRESS, UNCERTAIN). EXPIRED: end of the long-term period
  body_digest  bigint,                   -- of the latest run's message (driver.BodyDigest); NULL: not known
  lease        bigint,                   -- that was asked for, in microseconds; NULL: lease_until - updated_at
  completed_at timestamptz,              -- NULL in a COMPLETED record: updated_at
  retry_at     timestamptz,
  nonce        uuid,                     -- who owns the latest attempt; NULL: EXPIRED
  generation   int,                      -- raised by a redrive; NULL: 1
  epoch        int,                      -- deliberate re-runs of a completed key; NULL: 0, as in all that follow
  beat         int,                      -- extensions of the lease
  attempt      int,                      -- runs in this generation; NULL: 1, and 0 in an EXPIRED record
  failures     int,                      -- recorded failed runs in this generation
  takeovers    int,                      -- expired runs in a row
  uncertainty  int,                      -- moments when nobody could know the outcome
  state        smallint    NOT NULL,     -- 1 IN_PROGRESS 2 RELEASED 3 COMPLETED 4 FAILED 5 UNCERTAIN 6 EXPIRED
  takeover     smallint,                 -- 0 resume 1 probe 2 once
  ended        smallint,                 -- the state before an EXPIRED record expired; NULL in every other state
  unknown      boolean,                  -- an earlier run may have had its effect; NULL: false, as in all that follow
  spent        boolean,                  -- the nonce was released
  disposed     boolean,                  -- a person discarded the dead letter
  place        bytea       PRIMARY KEY,  -- rowstore.PlaceOf: in the order of keys
  consumer     bytea       NOT NULL,     -- bytes as they came, as in place and rest: keys are compared byte by byte
  rest         bytea,                    -- tenant and key, if the place is too short for them (rowstore.Place.Rest)
  fingerprint  bytea,
  deliveries   bytea,                    -- ids of deliveries that acquired the key, each after its length; 0: the key
  result       bytea,
  reason       bytea,
  watermark    bytea                     -- NULL: no versions. Else how far the key came (driver.AppendWatermark)
) WITH (fillfactor = 50);

-- The records that need a person: UNCERTAIN, or FAILED and not discarded. It is a table of its own because an index on
-- semel_record.state, even a partial one, would take the end of every attempt out of its page.
CREATE TABLE semel_case (
  place    bytea       PRIMARY KEY,
  consumer bytea       NOT NULL,
  state    smallint    NOT NULL,                     -- 4 FAILED 5 UNCERTAIN
  since    timestamptz NOT NULL                      -- updated_at of the record
);
CREATE INDEX semel_case_since ON semel_case (state, since, place);
CREATE INDEX semel_case_consumer ON semel_case (consumer, state, since, place);

-- The first n words of some bytes, each of which comes after its length (uvarint), and the bytes behind them. Behind the 6
-- bytes of the consumer, a place has one word, the tenant, and the key. So has rest.
CREATE FUNCTION semel_words(b bytea, skip int, n int) RETURNS bytea[] LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  size bigint;
  shift int;
  octet int;
  words bytea[] := '{}';
BEGIN
  FOR i IN 1..n LOOP
    size := 0;
    shift := 0;
    LOOP
      octet := get_byte(b, skip);
      skip := skip + 1;
      size := size + ((octet & 127)::bigint << shift);
      shift := shift + 7;
      EXIT WHEN octet < 128;
    END LOOP;
    words := words || substring(b FROM skip + 1 FOR size::int);
    skip := skip + size::int;
  END LOOP;
  RETURN words || substring(b FROM skip + 1);
END
$$;

-- Records in words. Bytes that are no ASCII are escaped. WITH keeps the view from being written to.
CREATE VIEW semel_records AS WITH r AS (
  SELECT *, semel_words(coalesce(rest, substring(place FROM 7)), 0, 1) AS parts, semel_words(watermark, 2, 2) AS versions
  FROM semel_record)
SELECT encode(consumer, 'escape') AS consumer, encode(parts[1], 'escape') AS tenant, encode(parts[2], 'escape') AS key,
  (ARRAY['IN_PROGRESS', 'RELEASED', 'COMPLETED', 'FAILED', 'UNCERTAIN', 'EXPIRED'])[state] AS state,
  (ARRAY['resume', 'probe', 'once'])[coalesce(takeover, 0) + 1] AS takeover,
  coalesce(attempt, CASE WHEN state <> 6 THEN 1 END) AS attempt, coalesce(failures, 0) AS failures,
  coalesce(takeovers, 0) AS takeovers, coalesce(uncertainty, 0) AS uncertainty, coalesce(unknown, false) AS unknown,
  coalesce(disposed, false) AS disposed, coalesce(generation, 1) AS generation, coalesce(epoch, 0) AS epoch, token,
  encode(reason, 'escape') AS reason, encode(result, 'escape') AS result, created_at, updated_at, lease_until, retry_at,
  CASE WHEN state = 3 THEN coalesce(completed_at, updated_at) ELSE completed_at END AS completed_at, retain_until,
  encode(versions[1], 'escape') AS running, nullif(encode(versions[2], 'escape'), '') AS applied,
  (ARRAY['IN_PROGRESS', 'RELEASED', 'COMPLETED', 'FAILED'])[ended] AS ended
FROM r;

-- For how long the records of a consumer stay EXPIRED after their retention. Every sweep obeys it.
CREATE TABLE semel_long_term (
  consumer bytea  PRIMARY KEY,
  period   bigint NOT NULL               -- microseconds
);

-- What each running worker reports about itself, every ten seconds at most, best effort.
CREATE TABLE semel_worker (
  id       bytea       PRIMARY KEY,
  seen     timestamptz NOT NULL,
  queue    bytea       NOT NULL,
  consumer bytea       NOT NULL,
  report   bytea       NOT NULL              -- JSON
);

-- What a sweep knows of a stretch of semel_record's pages: nothing in it can be purged or parked before due.
CREATE TABLE semel_sweep (
  stretch bigint      PRIMARY KEY,                   -- page number / pages of a stretch
  due     timestamptz NOT NULL,
  again   interval    NOT NULL                       -- look again after so long, whatever is in it: room is used again
);

-- One row: the greatest token of a purged record. A claim that drew a smaller one before the purge, and inserts its
-- record after it, would hand out a token twice (see semel_claim).
CREATE TABLE semel_floor (
  one    int    PRIMARY KEY CHECK (one = 1),
  purged bigint NOT NULL
);
INSERT INTO semel_floor (one, purged) VALUES (1, 0);

-- Journals of steps (mode E): what the run of a key wrote down of its progress. Every write is guarded by the record, whose
-- lock it holds. epoch and version name the run.
CREATE TABLE semel_step (
  place      bytea       NOT NULL,                   -- of the record
  epoch      int         NOT NULL,
  version    bytea       NOT NULL,
  name       bytea       NOT NULL,                   -- '' is the run's own row
  seq        int         NOT NULL,                   -- the order in which the rows were made, from 1
  state      smallint    NOT NULL,                   -- 1 REGISTERED 2 STARTED 3 DONE 4 COMP_STARTED 5 COMP_DONE 6 COMPENSATING
  undo       boolean     NOT NULL,                   -- it has a compensation
  failures   int         NOT NULL,                   -- failed compensations
  token      bigint      NOT NULL,
  nonce      uuid        NOT NULL,                   -- token and nonce of the attempt that wrote the row last
  updated_at timestamptz NOT NULL,
  result     bytea,
  reason     bytea,
  PRIMARY KEY (place, epoch, version, name)
) WITH (fillfactor = 70);

-- The audit entries of operators: who did what to which record, and what it was before. Lines are only added; they go with their
-- record when it is purged.
CREATE TABLE semel_audit (
  seq        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  place      bytea       NOT NULL,                   -- of the record
  at         timestamptz NOT NULL,
  who        bytea       NOT NULL,
  kind       smallint    NOT NULL,                   -- 1 resolve 2 redrive 3 discard 4 release 5 reopen 6 erase 7 refuse
  was        smallint    NOT NULL,                   -- states as in semel_record
  became     smallint    NOT NULL,
  generation int         NOT NULL,
  verified   boolean     NOT NULL,                   -- the effect certainly had not happened
  renewed    boolean     NOT NULL,                   -- a completed key was to run again
  token      bigint      NOT NULL,
  consumer   bytea       NOT NULL,
  tenant     bytea       NOT NULL,
  key        bytea       NOT NULL,
  reason     bytea
);
CREATE INDEX semel_audit_place ON semel_audit (place);

-- The newest duplicates of each key: deliveries that were settled without a run. Written outside of the messages'
-- transactions, best effort; they go with their record.
CREATE TABLE semel_duplicate (
  place    bytea       NOT NULL,             -- of the record
  nr       bigint      NOT NULL,             -- counts the duplicates of the key, from 1; the last one is how many there were
  at       timestamptz NOT NULL,
  message  bytea       NOT NULL,             -- its id
  worker   bytea       NOT NULL,
  queue    bytea       NOT NULL,
  delivery int         NOT NULL,             -- the broker's delivery count; 0: unknown
  decision bytea       NOT NULL,
  cause    bytea       NOT NULL,
  PRIMARY KEY (place, nr)
);

-- The functions below are the guarded writes of the plain cases, and the locks for all others, which the program decides
-- by its table. They are functions because a plan that a session made while the tables were empty reads them from end
-- to end for as long as the session lasts: the settings hold the plans to the primary key, and only theirs. jit is off with
-- them: a node that is switched off is priced like hours of work, and the server would compile the claim for 60 ms each
-- time. Arrays come sorted by place, so that writers of the same keys lock them in one order. Where many rows pass, they
-- are unnested in a SELECT list: in FROM each of them would be written to a store of its own first.

-- A record as the program reads it, in binary form.
CREATE FUNCTION semel_row(r semel_record) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT record_send(ROW(r.place, r.rest, r.consumer, r.token, r.state, r.generation, r.nonce, r.lease_until, r.lease, r.beat,
    r.takeover, r.unknown, r.updated_at, r.completed_at, r.retain_until, r.result, r.reason, r.fingerprint, r.body_digest,
    r.epoch, r.spent, r.attempt, r.failures, r.takeovers, r.uncertainty, r.disposed, r.retry_at, r.created_at, r.deliveries,
    r.ended, r.watermark))
$$;

-- Claims keys that have no record, and returns the records of the others as they are.
--   keep  NULL: the new records are IN_PROGRESS. Else they are COMPLETED and kept for so long (microseconds), for a
--         transaction that completes them before anybody else can see them.
--   wait  how long to wait for another transaction that claims the key, in milliseconds; then lock_not_available.
-- found is NULL for a record that was made. SEM02: a record was purged whose token is not smaller than one that was
-- drawn here; nothing is claimed, and drawing again fixes it.
CREATE FUNCTION semel_claim(places bytea[], nonces uuid[], leases bigint[], takeovers smallint[], consumers bytea[],
  rests bytea[], fingerprints bytea[], deliveries bytea[], keep bigint, wait int, digests bigint[])
RETURNS TABLE (of bytea, drawn bigint, at timestamptz, found bytea)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = 0
AS $$
DECLARE
  t timestamptz := clock_timestamp();
  us CONSTANT interval := interval '1 microsecond';
  low bigint; -- no token that is drawn here is smaller
  n int;
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true); -- until the function returns
  SELECT s.last_value INTO low FROM semel_token s;
  RETURN QUERY
    INSERT INTO semel_record AS r (place, token, nonce, lease_until, created_at, updated_at, retain_until, state, takeover,
      consumer, rest, fingerprint, deliveries, body_digest)
    SELECT u.place, nextval('semel_token'), u.nonce, CASE WHEN keep IS NULL THEN t + u.lease * us END, t, t, t + keep * us,
      CASE WHEN keep IS NULL THEN 1 ELSE 3 END, nullif(u.takeover, 0), u.consumer, u.rest, u.fingerprint, u.delivery,
      nullif(u.digest, 0)
    FROM (SELECT unnest(places) AS place, unnest(nonces) AS nonce, unnest(leases) AS lease, unnest(takeovers) AS takeover,
      unnest(consumers) AS consumer, unnest(rests) AS rest, unnest(fingerprints) AS fingerprint,
      unnest(deliveries) AS delivery, unnest(digests) AS digest) u
    ON CONFLICT (place) DO NOTHING
    RETURNING r.place, r.token, r.created_at, NULL::bytea;
  GET DIAGNOSTICS n = ROW_COUNT;
  -- 1. A draws a token for a key. 2. B claims the same key with the next token, and completes it. 3. A sweep purges the
  -- record. 4. A inserts: the key's tokens went backwards. Here 4 has ended, so that it sees what 3 wrote.
  IF EXISTS (SELECT FROM semel_floor f WHERE f.purged >= low) AND EXISTS (
    SELECT FROM semel_record r, semel_floor f
    WHERE r.place = ANY (places) AND r.nonce = ANY (nonces) AND r.token BETWEEN low AND f.purged) THEN
    RAISE EXCEPTION 'a record was purged after a token was drawn for its key' USING ERRCODE = 'SEM02';
  END IF;
  IF n < cardinality(places) THEN
    RETURN QUERY SELECT r.place, r.token, clock_timestamp(), semel_row(r) FROM semel_record r
      WHERE r.place = ANY (places) AND r.xmin <> pg_current_xact_id()::xid;
  END IF;
END
$$;

-- The same for one claim: who comes alone pays for no arrays.
CREATE FUNCTION semel_claim_one(place bytea, nonce uuid, lease bigint, takeover smallint, consumer bytea, rest bytea,
  fingerprint bytea, delivery bytea, wait int, digest bigint)
RETURNS TABLE (of bytea, drawn bigint, at timestamptz, found bytea)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET lock_timeout = 0
AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true);
  of := semel_claim_one.place;
  at := clock_timestamp();
  INSERT INTO semel_record AS r (place, token, nonce, lease_until, created_at, updated_at, state, takeover, consumer, rest,
    fingerprint, deliveries, body_digest)
  VALUES (of, nextval('semel_token'), semel_claim_one.nonce, at + semel_claim_one.lease * interval '1 microsecond', at, at, 1,
    nullif(semel_claim_one.takeover, 0), semel_claim_one.consumer, semel_claim_one.rest, semel_claim_one.fingerprint, delivery,
    nullif(digest, 0))
  ON CONFLICT (place) DO NOTHING RETURNING r.token INTO drawn;
  IF NOT FOUND THEN
    RETURN QUERY SELECT r.place, r.token, clock_timestamp(), semel_row(r) FROM semel_record r WHERE r.place = of;
    RETURN;
  END IF;
  IF EXISTS (SELECT FROM semel_floor f WHERE f.purged >= drawn) THEN
    RAISE EXCEPTION 'a record was purged after a token was drawn for its key' USING ERRCODE = 'SEM02';
  END IF;
  RETURN NEXT;
END
$$;

-- The records of keys, as they are, without a lock. The columns are those of semel_claim.
CREATE FUNCTION semel_look(places bytea[])
RETURNS TABLE (of bytea, drawn bigint, at timestamptz, found bytea)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
  RETURN QUERY SELECT r.place, r.token, clock_timestamp(), semel_row(r) FROM semel_record r WHERE r.place = ANY (places);
END
$$;

-- Inserts completed records of attempts that were not claimed before: DecideInsert for keys without a record. One that is
-- there is unique_violation, and nothing that follows in the transaction counts. SEM02 as in semel_claim.
CREATE FUNCTION semel_insert(places bytea[], nonces uuid[], takeovers smallint[], consumers bytea[], rests bytea[],
  fingerprints bytea[], deliveries bytea[], digests bigint[], keeps bigint[], results bytea[], reasons bytea[], wait int)
RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = 0
AS $$
DECLARE
  t timestamptz := clock_timestamp();
  us CONSTANT interval := interval '1 microsecond';
  low bigint; -- no token that is drawn here is smaller
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true);
  SELECT s.last_value INTO low FROM semel_token s;
  INSERT INTO semel_record (place, token, nonce, created_at, updated_at, retain_until, state, takeover, consumer, rest,
    fingerprint, deliveries, body_digest, result, reason)
  SELECT u.place, nextval('semel_token'), u.nonce, t, t, t + u.keep * us, 3, nullif(u.takeover, 0), u.consumer, u.rest,
    u.fingerprint, u.delivery, nullif(u.digest, 0), u.result, u.reason
  FROM (SELECT unnest(places) AS place, unnest(nonces) AS nonce, unnest(takeovers) AS takeover, unnest(consumers) AS consumer,
    unnest(rests) AS rest, unnest(fingerprints) AS fingerprint, unnest(deliveries) AS delivery, unnest(digests) AS digest,
    unnest(keeps) AS keep, unnest(results) AS result, unnest(reasons) AS reason) u;
  IF EXISTS (SELECT FROM semel_floor f WHERE f.purged >= low) AND EXISTS (
    SELECT FROM semel_record r, semel_floor f
    WHERE r.place = ANY (places) AND r.nonce = ANY (nonces) AND r.token BETWEEN low AND f.purged) THEN
    RAISE EXCEPTION 'a record was purged after a token was drawn for its key' USING ERRCODE = 'SEM02';
  END IF;
END
$$;

-- semel_claim for calls in which some claims have versions: watermarks are those of the records to be made, NULL for
-- claims without. The records are IN_PROGRESS.
CREATE FUNCTION semel_claim_versions(places bytea[], nonces uuid[], leases bigint[], takeovers smallint[], consumers bytea[],
  rests bytea[], fingerprints bytea[], deliveries bytea[], watermarks bytea[], wait int, digests bigint[])
RETURNS TABLE (of bytea, drawn bigint, at timestamptz, found bytea)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = 0
AS $$
DECLARE
  t timestamptz := clock_timestamp();
  us CONSTANT interval := interval '1 microsecond';
  low bigint; -- no token that is drawn here is smaller
  n int;
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true); -- until the function returns
  SELECT s.last_value INTO low FROM semel_token s;
  RETURN QUERY
    INSERT INTO semel_record AS r (place, token, nonce, lease_until, created_at, updated_at, state, takeover, consumer, rest,
      fingerprint, deliveries, watermark, body_digest)
    SELECT u.place, nextval('semel_token'), u.nonce, t + u.lease * us, t, t, 1, nullif(u.takeover, 0), u.consumer, u.rest,
      u.fingerprint, u.delivery, u.watermark, nullif(u.digest, 0)
    FROM (SELECT unnest(places) AS place, unnest(nonces) AS nonce, unnest(leases) AS lease, unnest(takeovers) AS takeover,
      unnest(consumers) AS consumer, unnest(rests) AS rest, unnest(fingerprints) AS fingerprint,
      unnest(deliveries) AS delivery, unnest(watermarks) AS watermark, unnest(digests) AS digest) u
    ON CONFLICT (place) DO NOTHING
    RETURNING r.place, r.token, r.created_at, NULL::bytea;
  GET DIAGNOSTICS n = ROW_COUNT;
  -- As in semel_claim.
  IF EXISTS (SELECT FROM semel_floor f WHERE f.purged >= low) AND EXISTS (
    SELECT FROM semel_record r, semel_floor f
    WHERE r.place = ANY (places) AND r.nonce = ANY (nonces) AND r.token BETWEEN low AND f.purged) THEN
    RAISE EXCEPTION 'a record was purged after a token was drawn for its key' USING ERRCODE = 'SEM02';
  END IF;
  IF n < cardinality(places) THEN
    RETURN QUERY SELECT r.place, r.token, clock_timestamp(), semel_row(r) FROM semel_record r
      WHERE r.place = ANY (places) AND r.xmin <> pg_current_xact_id()::xid;
  END IF;
END
$$;

-- Locks records and returns them, each with the time and a token that were taken after its lock: a number drawn before
-- it could be smaller than that of the transaction that was waited for.
--   skip  leave out what somebody else has locked. Else wait for it, in milliseconds.
CREATE FUNCTION semel_lock(places bytea[], skip boolean, wait int)
RETURNS TABLE (of bytea, found bytea, at timestamptz, drawn bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET lock_timeout = 0
AS $$
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true);
  IF skip THEN
    RETURN QUERY WITH l AS MATERIALIZED (
      SELECT r.place AS h, semel_row(r) AS b FROM semel_record r WHERE r.place = ANY (places) ORDER BY r.place FOR UPDATE SKIP LOCKED)
      SELECT l.h, l.b, clock_timestamp(), nextval('semel_token') FROM l;
  ELSE
    RETURN QUERY WITH l AS MATERIALIZED (
      SELECT r.place AS h, semel_row(r) AS b FROM semel_record r WHERE r.place = ANY (places) ORDER BY r.place FOR UPDATE)
      SELECT l.h, l.b, clock_timestamp(), nextval('semel_token') FROM l;
  END IF;
END
$$;

-- Completes attempts: DecideFinish for the plain case, in which the record has no versions (completing one moves its
-- watermark) and has the state was (1 IN_PROGRESS; 3 in the
-- transaction that claimed it) and this very attempt. Returns those that it completed.
--   must  all have to be: else SEM01, so that nothing that follows in the transaction counts; returns nothing.
CREATE FUNCTION semel_complete(places bytea[], tokens bigint[], nonces uuid[], generations int[], keeps bigint[],
  results bytea[], reasons bytea[], was smallint, must boolean, wait int)
RETURNS SETOF bytea
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = 0
AS $$
DECLARE
  t timestamptz := clock_timestamp();
  us CONSTANT interval := interval '1 microsecond';
  n int;
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true);
  IF NOT must THEN
    RETURN QUERY
      UPDATE semel_record r SET state = 3, updated_at = t, completed_at = NULL, retain_until = t + u.keep * us, lease_until = NULL,
        lease = NULL, result = u.result, reason = u.reason, unknown = NULL
      FROM (SELECT unnest(places) AS place, unnest(tokens) AS token, unnest(nonces) AS nonce,
        unnest(generations) AS generation, unnest(keeps) AS keep, unnest(results) AS result, unnest(reasons) AS reason) u
      WHERE r.place = u.place AND r.state = was AND r.token = u.token AND r.nonce = u.nonce
        AND coalesce(r.generation, 1) = u.generation AND r.watermark IS NULL
      RETURNING r.place;
    RETURN;
  END IF;
  UPDATE semel_record r SET state = 3, updated_at = t, completed_at = NULL, retain_until = t + u.keep * us, lease_until = NULL,
    lease = NULL, result = u.result, reason = u.reason, unknown = NULL
  FROM (SELECT unnest(places) AS place, unnest(tokens) AS token, unnest(nonces) AS nonce,
    unnest(generations) AS generation, unnest(keeps) AS keep, unnest(results) AS result, unnest(reasons) AS reason) u
  WHERE r.place = u.place AND r.state = was AND r.token = u.token AND r.nonce = u.nonce
    AND coalesce(r.generation, 1) = u.generation AND r.watermark IS NULL;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n <> cardinality(places) THEN
    RAISE EXCEPTION '% of % attempts hold their records', n, cardinality(places) USING ERRCODE = 'SEM01';
  END IF;
END
$$;

-- The same for one attempt, which does not have to be.
CREATE FUNCTION semel_complete_one(place bytea, token bigint, nonce uuid, generation int, keep bigint, result bytea,
  reason bytea, was smallint, wait int)
RETURNS SETOF bytea
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET lock_timeout = 0
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true);
  UPDATE semel_record r SET state = 3, updated_at = t, completed_at = NULL, retain_until = t + keep * interval '1 microsecond',
    lease_until = NULL, lease = NULL, result = semel_complete_one.result, reason = semel_complete_one.reason, unknown = NULL
  WHERE r.place = semel_complete_one.place AND r.state = was AND r.token = semel_complete_one.token
    AND r.nonce = semel_complete_one.nonce AND coalesce(r.generation, 1) = semel_complete_one.generation
    AND r.watermark IS NULL;
  IF FOUND THEN
    RETURN NEXT place;
  END IF;
END
$$;

-- Keeps semel_case when semel_store writes records. Nothing else makes a case of a record, or ends one, but its removal.
CREATE FUNCTION semel_store_case(places bytea[], states smallint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM semel_case) THEN -- often there are none, and one look is cheaper than one for each record
    DELETE FROM semel_case c WHERE c.place = ANY (places);
  END IF;
  IF 4 = ANY (states) OR 5 = ANY (states) THEN
    INSERT INTO semel_case (place, consumer, state, since)
    SELECT r.place, r.consumer, r.state, r.updated_at FROM semel_record r
    WHERE r.place = ANY (places) AND (r.state = 5 OR r.state = 4 AND r.disposed IS NULL);
  END IF;
END
$$;

-- Writes back records that semel_lock locked in this transaction. SEM01 when one is not there.
CREATE FUNCTION semel_store(places bytea[], tokens bigint[], nonces uuid[], leases bigint[], lease_untils timestamptz[],
  updated timestamptz[], completed timestamptz[], retries timestamptz[], retains timestamptz[], generations int[],
  epochs int[], beats int[], attempts int[], failed int[], taken int[], uncertain int[], states smallint[],
  policies smallint[], flags smallint[], fingerprints bytea[], delivered bytea[], results bytea[], reasons bytea[],
  watermarks bytea[], digests bigint[], endings smallint[])
RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  n int;
BEGIN
  UPDATE semel_record r SET token = u.token, nonce = u.nonce, lease_until = u.lease_until,
    lease = nullif(u.lease, coalesce((extract(epoch FROM u.lease_until - u.updated_at) * 1000000)::bigint, 0)),
    updated_at = u.updated_at, completed_at = CASE WHEN u.state <> 3 OR u.completed_at <> u.updated_at THEN u.completed_at END,
    retry_at = u.retry_at, retain_until = u.retain_until, generation = nullif(u.generation, 1), epoch = nullif(u.epoch, 0),
    beat = nullif(u.beat, 0), attempt = nullif(u.attempt, CASE u.state WHEN 6 THEN 0 ELSE 1 END),
    failures = nullif(u.failures, 0), takeovers = nullif(u.takeovers, 0), uncertainty = nullif(u.uncertainty, 0),
    state = u.state, takeover = nullif(u.takeover, 0), unknown = nullif(u.flags & 1 <> 0, false),
    spent = nullif(u.flags & 2 <> 0, false), disposed = nullif(u.flags & 4 <> 0, false), fingerprint = u.fingerprint,
    deliveries = u.deliveries, result = u.result, reason = u.reason, watermark = u.watermark,
    body_digest = nullif(u.body_digest, 0), ended = nullif(u.ended, 0)
  FROM unnest(places, tokens, nonces, leases, lease_untils, updated, completed, retries, retains, generations, epochs,
      beats, attempts, failed, taken, uncertain, states, policies, flags, fingerprints, delivered, results, reasons,
      watermarks, digests, endings)
    AS u (place, token, nonce, lease, lease_until, updated_at, completed_at, retry_at, retain_until, generation, epoch,
      beat, attempt, failures, takeovers, uncertainty, state, takeover, flags, fingerprint, deliveries, result, reason,
      watermark, body_digest, ended)
  WHERE r.place = u.place;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n <> cardinality(places) THEN
    RAISE EXCEPTION '% of % records are there', n, cardinality(places) USING ERRCODE = 'SEM01';
  END IF;
  PERFORM semel_store_case(places, states);
END
$$;

-- Takes back the records that a transaction inserted for claims whose items failed or did not run.
CREATE FUNCTION semel_unclaim(places bytea[], tokens bigint[], nonces uuid[]) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  n int;
BEGIN
  DELETE FROM semel_record r USING unnest(places, tokens, nonces) AS u (place, token, nonce)
  WHERE r.place = u.place AND r.token = u.token AND r.nonce = u.nonce;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n <> cardinality(places) THEN
    RAISE EXCEPTION '% of % claims are there to be taken back', n, cardinality(places) USING ERRCODE = 'SEM01';
  END IF;
END
$$;

-- DecideSteps for the plain cases of a run that goes forward: a step is registered (kind 1) that has no row, started (2)
-- that has not begun, finished (3) that is not done. SEM01 in all others, which the table decides.
CREATE FUNCTION semel_journal_step(of bytea, tok bigint, non uuid, gen int, run int, ver bytea, kind smallint, step bytea,
  undoes boolean, outcome bytea, wait int)
RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET lock_timeout = 0
AS $$
DECLARE
  nr int;
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true);
  PERFORM FROM semel_record r
    WHERE r.place = of AND r.state = 1 AND r.token = tok AND r.nonce = non AND coalesce(r.generation, 1) = gen
      AND coalesce(r.epoch, 0) = run FOR UPDATE;
  IF FOUND AND NOT EXISTS (
    SELECT FROM semel_step s WHERE s.place = of AND s.epoch = run AND s.version = ver AND s.name = '') THEN
    IF ver <> '' THEN
      DELETE FROM semel_step s WHERE s.place = of AND s.version < ver;
    END IF;
    UPDATE semel_step s SET state = kind, token = tok, nonce = non, updated_at = clock_timestamp(),
      result = CASE kind WHEN 3 THEN outcome ELSE s.result END
    WHERE s.place = of AND s.epoch = run AND s.version = ver AND s.name = step AND s.state < kind;
    IF FOUND THEN
      RETURN;
    END IF;
    SELECT coalesce(max(s.seq), 0) + 1 INTO nr FROM semel_step s WHERE s.place = of AND s.epoch = run AND s.version = ver;
    INSERT INTO semel_step (place, epoch, version, name, seq, state, undo, failures, token, nonce, updated_at, result)
    VALUES (of, run, ver, step, nr, kind, undoes, 0, tok, non, clock_timestamp(), outcome) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  RAISE EXCEPTION 'the journal needs a closer look' USING ERRCODE = 'SEM01';
END
$$;

-- Adds duplicates of keys that have a record, and removes all but the newest kept of each key. The advisory lock keeps two
-- workers from using one number, and sweeps from purging a record at the same time: they share it. Nothing else waits for it.
CREATE FUNCTION semel_add_duplicates(places bytea[], ats timestamptz[], messages bytea[], workers bytea[], queues bytea[],
  deliveries int[], decisions bytea[], causes bytea[], kept int)
RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET lock_timeout = '200ms'
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock('semel_duplicate'::regclass::oid::bigint);
  INSERT INTO semel_duplicate (place, nr, at, message, worker, queue, delivery, decision, cause)
    SELECT x.place, coalesce((SELECT max(d.nr) FROM semel_duplicate d WHERE d.place = x.place), 0)
        + row_number() OVER (PARTITION BY x.place ORDER BY x.turn),
      x.at, x.message, x.worker, x.queue, x.delivery, x.decision, x.cause
    FROM unnest(places, ats, messages, workers, queues, deliveries, decisions, causes)
      WITH ORDINALITY AS x (place, at, message, worker, queue, delivery, decision, cause, turn)
    WHERE EXISTS (SELECT FROM semel_record r WHERE r.place = x.place);
  DELETE FROM semel_duplicate d
    USING (SELECT o.place, max(o.nr) - kept AS old FROM semel_duplicate o WHERE o.place = ANY (places) GROUP BY o.place) t
    WHERE d.place = t.place AND d.nr <= t.old;
END
$$;

-- One step of a sweep in one stretch of pages: purges what is past its retention, or makes it EXPIRED where its consumer has
-- a long-term period (driver.DecideSweep), and locks and returns abandoned claims there, for the program to park. It locks
-- nothing else and waits for nobody; processes that sweep at once take different stretches. Without an index on the
-- retention, which every completion would have to move.
--   first      the stretch to begin with
--   pages      of a stretch; the same forever
--   small      a table with at most this many stretches is looked at as a whole each time
--   most       how many records to purge, to expire and to return
--   horizon    claims are abandoned whose lease ended so long ago; NULL: none are
--   consumers  whose abandoned claims are returned: the horizon is theirs. NULL: everybody's
-- The last row has found NULL: the stretch, how many were purged and expired, and whether that was all. No row: no stretch is
-- due.
CREATE FUNCTION semel_sweep_step(first bigint, pages int, small int, most int, horizon interval, consumers bytea[])
RETURNS TABLE (of bigint, purged bigint, expired bigint, whole boolean, found bytea, at timestamptz)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  t timestamptz := clock_timestamp();
  us CONSTANT interval := interval '1 microsecond';
  n bigint := ceil(pg_relation_size('semel_record') / current_setting('block_size')::numeric / pages);
  s semel_sweep%ROWTYPE;
  low tid;
  high tid;
  gone bigint;
  lapsed bigint := 0;
  token bigint;
  kept interval;
  next timestamptz;
  abandoned bigint := 0;
  tids tid[];
  places bytea[];
  belongings bigint;
  bound CONSTANT int := 5000; -- steps and audit entries that one transaction removes
  cut boolean := false;
BEGIN
  INSERT INTO semel_sweep AS w (stretch, due, again)
    SELECT g, '-infinity', interval '1 hour'
    FROM generate_series((SELECT coalesce(max(w.stretch) + 1, 0) FROM semel_sweep w), n - 1) g ON CONFLICT DO NOTHING;
  SELECT w.* INTO s FROM semel_sweep w WHERE w.stretch >= first AND w.stretch < n AND (w.due <= t OR n <= small)
    ORDER BY w.stretch LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  low := format('(%s,0)', s.stretch * pages);
  high := format('(%s,0)', (s.stretch + 1) * pages);
  SELECT array_agg(c.tid), array_agg(c.place) INTO tids, places FROM (
    SELECT o.ctid AS tid, o.place FROM semel_record o
    WHERE o.ctid >= low AND o.ctid < high AND o.state IN (2, 3, 4, 6) AND o.retain_until < t LIMIT most
    FOR UPDATE SKIP LOCKED) c;
  -- What belongs to a record goes with it, or with its payload: a new run of the key must not find its old steps done. Where
  -- there are very many rows, fewer records go at once.
  LOOP
    SELECT (SELECT count(*) FROM (SELECT FROM semel_step j WHERE j.place = ANY (places) LIMIT bound + 1) x) +
      (SELECT count(*) FROM (SELECT FROM semel_audit a WHERE a.place = ANY (places) LIMIT bound + 1) x) INTO belongings;
    EXIT WHEN belongings <= bound OR cardinality(tids) = 1;
    cut := true;
    tids := tids[1:cardinality(tids) / 2];
    places := places[1:cardinality(places) / 2];
  END LOOP;
  IF belongings > 0 THEN
    DELETE FROM semel_step j WHERE j.place = ANY (places);
    DELETE FROM semel_audit a WHERE a.place = ANY (places);
  END IF;
  IF cardinality(places) > 0 THEN
    PERFORM pg_advisory_xact_lock_shared('semel_duplicate'::regclass::oid::bigint);
    IF EXISTS (SELECT FROM semel_duplicate) THEN
      DELETE FROM semel_duplicate d WHERE d.place = ANY (places);
    END IF;
    IF EXISTS (SELECT FROM semel_case) THEN
      DELETE FROM semel_case c WHERE c.place = ANY (places);
    END IF;
  END IF;
  -- The records are locked, and both statements look at state and time again. A row that expires gets another place.
  IF EXISTS (SELECT FROM semel_long_term) THEN
    UPDATE semel_record r SET state = 6, ended = r.state, retain_until = r.retain_until + m.period * us, nonce = NULL,
      lease = NULL, lease_until = NULL, completed_at = NULL, retry_at = NULL, body_digest = NULL, beat = NULL, attempt = NULL,
      failures = NULL, takeovers = NULL, spent = NULL, fingerprint = NULL, deliveries = NULL, result = NULL, reason = NULL
    FROM semel_long_term m
    WHERE r.ctid = ANY (tids) AND m.consumer = r.consumer AND (r.state IN (3, 4) OR r.state = 2 AND r.unknown)
      AND r.watermark IS NULL AND r.retain_until < t AND r.retain_until + m.period * us >= t;
    GET DIAGNOSTICS lapsed = ROW_COUNT;
  END IF;
  WITH gone AS (
    DELETE FROM semel_record r WHERE r.ctid = ANY (tids) AND r.state IN (2, 3, 4, 6) AND r.retain_until < t
    RETURNING r.token, r.retain_until - r.updated_at AS kept)
  SELECT count(*), max(gone.token), min(gone.kept) INTO gone, token, kept FROM gone;
  IF gone > 0 THEN
    UPDATE semel_floor f SET purged = greatest(f.purged, token);
  END IF;
  IF gone + lapsed < most AND NOT cut AND horizon IS NOT NULL THEN
    RETURN QUERY SELECT s.stretch, NULL::bigint, NULL::bigint, NULL::boolean, semel_row(r), t FROM semel_record r
      WHERE r.ctid >= low AND r.ctid < high AND r.state = 1 AND r.lease_until + horizon < t
        AND (consumers IS NULL OR r.consumer = ANY (consumers)) LIMIT most - gone - lapsed
      FOR UPDATE SKIP LOCKED;
    GET DIAGNOSTICS abandoned = ROW_COUNT;
  END IF;
  IF gone + lapsed + abandoned < most AND NOT cut THEN
    SELECT min(r.retain_until), least(kept, min(r.retain_until - r.updated_at)) INTO next, kept FROM semel_record r
      WHERE isfinite(r.retain_until) AND r.ctid >= low AND r.ctid < high AND r.state IN (2, 3, 4, 6);
    kept := least(greatest(coalesce(kept, s.again), interval '10 seconds'), interval '1 hour');
    UPDATE semel_sweep w SET due = least(next, t + kept), again = kept WHERE w.stretch = s.stretch;
  END IF;
  RETURN QUERY SELECT s.stretch, gone, lapsed, gone + lapsed + abandoned < most AND NOT cut, NULL::bytea, t;
END
$$;

-- Removes a record that semel_lock locked in this transaction, with what belongs to it, for an operator.
CREATE FUNCTION semel_erase(of bytea) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  token bigint;
BEGIN
  DELETE FROM semel_step j WHERE j.place = of;
  DELETE FROM semel_audit a WHERE a.place = of;
  PERFORM pg_advisory_xact_lock_shared('semel_duplicate'::regclass::oid::bigint);
  DELETE FROM semel_duplicate d WHERE d.place = of;
  DELETE FROM semel_case c WHERE c.place = of;
  DELETE FROM semel_record r WHERE r.place = of RETURNING r.token INTO token;
  UPDATE semel_floor f SET purged = greatest(f.purged, token);
END
$$;

-- Open transactions of modes B and C that hold records in the state in which they are to be committed. It never keeps a
-- row: the deferred trigger of one that was inserted and deleted is what it is for.
CREATE TABLE semel_open (
  xid bigint NOT NULL
);

CREATE FUNCTION semel_sealed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('semel.sealed', true) IS DISTINCT FROM NEW.xid::text THEN
    RAISE EXCEPTION 'the transaction holds records of messages that did not run yet' USING ERRCODE = 'SEM03',
      HINT = 'semel commits it. SET CONSTRAINTS must name its constraints here.';
  END IF;
  RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER semel_open_sealed AFTER INSERT ON semel_open DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION semel_sealed();

-- Opens a transaction that lends itself to handlers, and returns its id.
--   idle    the server ends it when nothing happens in it for this long, in milliseconds
--   sealed  it cannot be committed without semel_within
CREATE FUNCTION semel_begin(idle int, sealed boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  id bigint := pg_current_xact_id()::text::bigint;
  at tid;
BEGIN
  PERFORM set_config('idle_in_transaction_session_timeout', idle::text, true);
  IF sealed THEN
    INSERT INTO semel_open (xid) VALUES (id) RETURNING ctid INTO at;
    DELETE FROM semel_open WHERE ctid = at;
  END IF;
  RETURN id;
END
$$;

-- Fails with SEM03 unless the transaction is the one that semel_begin opened: a handler can have ended that. Lets it
-- be committed.
CREATE FUNCTION semel_within(id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF pg_current_xact_id_if_assigned()::text::bigint IS DISTINCT FROM id THEN
    RAISE EXCEPTION 'the transaction was ended by its handler' USING ERRCODE = 'SEM03';
  END IF;
  PERFORM set_config('semel.sealed', id::text, true);
END
$$;

CREATE TABLE semel_queue (
  id   int  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE
);

-- The ids of queues, in the order of their names. SEM04: one is not there. Programs remember names, never ids: a failover
-- to a standby that had not received the row gives its id to another queue.
CREATE FUNCTION semel_queue_ids(names text[]) RETURNS int[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  ids int[] := ARRAY (SELECT (SELECT q.id FROM semel_queue q WHERE q.name = n.name)
    FROM unnest(names) WITH ORDINALITY AS n (name, nr) ORDER BY n.nr);
BEGIN
  IF array_position(ids, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'queue "%" is not there', names[array_position(ids, NULL)] USING ERRCODE = 'SEM04',
      HINT = 'repeat the transaction: semel creates the queue before it';
  END IF;
  RETURN ids;
END
$$;

-- The timeline of the server's log, which a promotion and a restore from an archive change; 0 where the server does not
-- tell.
CREATE FUNCTION semel_timeline() RETURNS int LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int;
EXCEPTION WHEN OTHERS THEN
  RETURN 0;
END
$$;

-- Messages that are not settled. Handing out and extending change nothing that is indexed, so that they stay in their
-- page (HOT); fillfactor leaves the room for it. A message therefore keeps its place in semel_message_due while it is in
-- flight, and those who look for others pass by it (semel_receive).
CREATE TABLE semel_message (
  pos        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue      int         NOT NULL,
  due_at     timestamptz NOT NULL,                   -- deliverable from then on, in this order
  until      timestamptz,                            -- NULL: nobody has it. Else kept from others until then
  hold       bigint      NOT NULL DEFAULT 0,         -- the delay or visibility that was asked for, in microseconds
  sent_at    timestamptz NOT NULL,
  count      int         NOT NULL DEFAULT 0,         -- deliveries so far
  timeline   int         NOT NULL DEFAULT 0,         -- of the server at the latest delivery
  nonce      uuid,                                   -- of the latest delivery, random; NULL: none, or it was returned
  waits      boolean     NOT NULL DEFAULT false,     -- an earlier message of its group is not settled
  id         bytea       NOT NULL,
  grp        bytea,                                  -- ordered group
  headers    bytea,                                  -- JSON
  body       bytea       NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX semel_message_due ON semel_message (queue, due_at, pos) WHERE NOT waits;
CREATE INDEX semel_message_group ON semel_message (queue, grp, pos) WHERE grp IS NOT NULL;

-- Messages in words. Text that came as bytes is escaped where it is not ASCII; a body is so up to its first kilobyte.
CREATE VIEW semel_messages AS
SELECT q.name AS queue, m.pos, encode(m.id, 'escape') AS id, encode(m.grp, 'escape') AS grp,
  CASE WHEN m.waits THEN 'waits for its group' WHEN m.until > clock_timestamp() THEN 'in flight'
    WHEN m.due_at > clock_timestamp() THEN 'delayed' ELSE 'ready' END AS state,
  m.count, m.sent_at, m.due_at, m.until, encode(m.headers, 'escape') AS headers,
  octet_length(m.body) AS size, encode(substring(m.body FOR 1024), 'escape') AS body
FROM semel_message m JOIN semel_queue q ON q.id = m.queue;

-- The functions below write messages. They are functions for the same reason as those of records. A delivery is named by
-- position, count and nonce, and counts only on the timeline on which it was made:
--
--  1. A worker holds a message. The server fails over to a standby that lags behind.
--  2. The sequence of positions goes back with it: a new message gets the position of one that the standby never had. Only
--     the nonce tells the old delivery from the new one.
--  3. A delivery that the standby has was decided by records that it does not have: its acknowledgement must not count.
--
-- A nonce of zeros names a message that this transaction has locked (semel_fetch).

-- Fails unless each statement sees what was committed before it: with an older snapshot a lock does not help.
CREATE FUNCTION semel_committed() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION 'messages of ordered groups need a transaction of isolation level read committed'
      USING ERRCODE = 'feature_not_supported';
  END IF;
END
$$;

-- Accepts messages of ordered groups, whose advisory locks the transaction holds.
--   delays  after sent, in microseconds; 0 = none
--   firsts  no earlier message of the same call is of its group
--   names   of queues; queues are places in it, from 1
CREATE FUNCTION semel_send(names text[], queues int[], delays bigint[], sent timestamptz[], ids bytea[], headers bytea[], bodies bytea[],
  groups bytea[], firsts boolean[])
RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
  SET enable_mergejoin = off
AS $$
DECLARE
  t timestamptz := clock_timestamp();
  target int[] := semel_queue_ids(names);
BEGIN
  PERFORM semel_committed();
  INSERT INTO semel_message (queue, due_at, hold, sent_at, id, headers, body, grp, waits)
  SELECT target[u.queue], d.due, (extract(epoch FROM d.due - t) * 1000000)::bigint, coalesce(u.sent_at, t),
    u.id, u.headers, u.body, u.grp,
    NOT u.first OR EXISTS (SELECT FROM semel_message m WHERE m.queue = target[u.queue] AND m.grp = u.grp)
  FROM unnest(queues, delays, sent, ids, headers, bodies, groups, firsts)
      AS u (queue, delay, sent_at, id, headers, body, grp, first),
    LATERAL (SELECT CASE u.delay WHEN 0 THEN t
      ELSE greatest(t, coalesce(u.sent_at, t) + u.delay * interval '1 microsecond') END AS due) d;
END
$$;

-- Hands out messages, the longest due first, and returns them with the time and when the server was started.
--   visible  how long to keep them from others, in microseconds
--   after    look only behind this place of semel_message_due; NULL: from its beginning
--   room     bound of the bodies, in bytes; one message always fits
--   nonce    of these deliveries
-- When there is none it returns one row without pos; due_at is when there will be one by itself, NULL = not known.
CREATE FUNCTION semel_receive(name text, most int, visible bigint, after timestamptz, after_pos bigint, room bigint,
  nonce uuid)
RETURNS TABLE (at timestamptz, started timestamptz, pos bigint, due_at timestamptz, count int, sent_at timestamptz, id bytea,
  grp bytea, headers bytea, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET enable_bitmapscan = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := clock_timestamp();
  up timestamptz := pg_postmaster_start_time();
  line int := semel_timeline();
  of int := (SELECT q.id FROM semel_queue q WHERE q.name = semel_receive.name);
  next timestamptz;
BEGIN
  RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT m.ctid AS place, octet_length(m.body) AS size FROM semel_message m
      WHERE m.queue = of AND NOT m.waits AND m.due_at <= t AND (m.until IS NULL OR m.until <= t)
        AND (m.due_at, m.pos) > (coalesce(after, '-infinity'), coalesce(after_pos, 0))
      ORDER BY m.due_at, m.pos LIMIT most FOR UPDATE SKIP LOCKED),
    fits AS (
      SELECT f.place FROM (
        SELECT place, size, row_number() OVER w AS nr, sum(size) OVER w AS total FROM found
        WINDOW w AS (ROWS UNBOUNDED PRECEDING)) f
      WHERE f.nr = 1 OR f.total <= room)
    UPDATE semel_message m SET until = t + visible * interval '1 microsecond', hold = visible,
      nonce = semel_receive.nonce, timeline = line, count = m.count + 1
    FROM fits WHERE m.ctid = fits.place
    RETURNING t, up, m.pos, m.due_at, m.count, m.sent_at, m.id, m.grp, m.headers, m.body;
  IF FOUND THEN
    RETURN;
  END IF;
  IF after IS NULL THEN
    SELECT least(
        (SELECT m.due_at FROM semel_message m WHERE m.queue = of AND NOT m.waits AND m.due_at > t
          ORDER BY m.due_at LIMIT 1),
        (SELECT min(m.until) FROM semel_message m WHERE m.queue = of AND NOT m.waits AND m.due_at <= t AND m.until > t))
      INTO next;
  END IF;
  RETURN QUERY SELECT t, up, NULL::bigint, next, NULL::int, NULL::timestamptz, NULL::bytea, NULL::bytea, NULL::bytea,
    NULL::bytea;
END
$$;

-- One step of shortening holds that end later than they were asked to, because the server's clock stepped back. It looks at
-- most messages behind a place of semel_message_due and returns the place to go on behind; no row: that was all.
--   flying  false: what is due later, the latest first. True: what is in flight, from the beginning of the index, where it
--           mostly is; a step that finds none in flight is the last.
CREATE FUNCTION semel_shorten(name text, flying boolean, after timestamptz, after_pos bigint, most int)
RETURNS TABLE (due_at timestamptz, pos bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := clock_timestamp();
  us CONSTANT interval := interval '1 microsecond';
  of int := (SELECT q.id FROM semel_queue q WHERE q.name = semel_shorten.name);
  m record;
  seen int := 0;
  flies boolean := false;
BEGIN
  FOR m IN SELECT w.ctid AS place, w.* FROM semel_message w
    WHERE NOT flying AND w.queue = of AND NOT w.waits AND w.due_at > t
      AND (w.due_at, w.pos) < (coalesce(after, 'infinity'), coalesce(after_pos, 0))
    ORDER BY w.due_at DESC, w.pos DESC LIMIT most
  LOOP
    seen := seen + 1;
    due_at := m.due_at;
    pos := m.pos;
    IF m.until IS NOT NULL OR m.due_at > t + m.hold * us THEN
      UPDATE semel_message s SET until = CASE WHEN s.until IS NOT NULL THEN least(s.until, t + s.hold * us) END,
        due_at = CASE WHEN s.until IS NULL THEN t + s.hold * us ELSE t END
      WHERE s.ctid = (SELECT l.ctid FROM semel_message l WHERE l.ctid = m.place FOR UPDATE SKIP LOCKED);
    END IF;
  END LOOP;
  FOR m IN SELECT w.ctid AS place, w.* FROM semel_message w
    WHERE flying AND w.queue = of AND NOT w.waits AND w.due_at <= t
      AND (w.due_at, w.pos) > (coalesce(after, '-infinity'), coalesce(after_pos, 0))
    ORDER BY w.due_at, w.pos LIMIT most
  LOOP
    seen := seen + 1;
    due_at := m.due_at;
    pos := m.pos;
    flies := flies OR m.until IS NOT NULL;
    IF m.until > t + m.hold * us THEN
      UPDATE semel_message s SET until = t + s.hold * us
      WHERE s.ctid = (SELECT l.ctid FROM semel_message l WHERE l.ctid = m.place FOR UPDATE SKIP LOCKED);
    END IF;
  END LOOP;
  IF seen = most AND (flies OR NOT flying) THEN
    RETURN NEXT;
  END IF;
END
$$;

-- Locks messages until the end of the transaction without handing them out, the longest due first.
--   room  as in semel_receive
CREATE FUNCTION semel_fetch(name text, most int, room bigint)
RETURNS TABLE (pos bigint, count int, sent_at timestamptz, id bytea, grp bytea, headers bytea, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  SET enable_bitmapscan = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := clock_timestamp();
  of int := (SELECT q.id FROM semel_queue q WHERE q.name = semel_fetch.name);
BEGIN
  RETURN QUERY
    WITH found AS MATERIALIZED (
      SELECT m.* FROM semel_message m
      WHERE m.queue = of AND NOT m.waits AND m.due_at <= t AND (m.until IS NULL OR m.until <= t)
      ORDER BY m.due_at, m.pos LIMIT most FOR UPDATE SKIP LOCKED)
    SELECT f.pos, f.count, f.sent_at, f.id, f.grp, f.headers, f.body FROM (
      SELECT found.*, row_number() OVER w AS nr, sum(octet_length(found.body)) OVER w AS total FROM found
      WINDOW w AS (ROWS UNBOUNDED PRECEDING)) f
    WHERE f.nr = 1 OR f.total <= room;
END
$$;

-- Whether a delivery still has its message.
CREATE FUNCTION semel_mine(m semel_message, count int, nonce uuid, line int) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT m.count = count AND (m.nonce = nonce AND m.timeline = line OR nonce = '00000000-0000-0000-0000-000000000000')
$$;

-- Takes messages away for good, and lets the next of each group go, whose advisory locks the transaction holds. Returns
-- the positions of those that the delivery still had.
CREATE FUNCTION semel_remove(positions bigint[], counts int[], nonces uuid[], name text, groups bytea[])
RETURNS SETOF bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
  SET enable_mergejoin = off
AS $$
DECLARE
  line int := semel_timeline();
BEGIN
  RETURN QUERY
    DELETE FROM semel_message m
    USING (SELECT unnest(positions) AS pos, unnest(counts) AS count, unnest(nonces) AS nonce) u
    WHERE m.pos = u.pos AND semel_mine(m, u.count, u.nonce, line) RETURNING m.pos;
  IF cardinality(groups) > 0 THEN
    PERFORM semel_committed();
    -- It takes its place among those that are due now: receivers look there first.
    UPDATE semel_message m SET waits = false, due_at = greatest(m.due_at, clock_timestamp())
    FROM semel_queue q, unnest(groups) AS g (grp),
      LATERAL (SELECT h.pos FROM semel_message h WHERE h.queue = q.id AND h.grp = g.grp ORDER BY h.pos LIMIT 1) AS head
    WHERE q.name = semel_remove.name AND m.pos = head.pos AND m.waits;
  END IF;
END
$$;

-- Returns messages to the queue, deliverable after a while in microseconds. Returns what semel_remove does.
CREATE FUNCTION semel_return(positions bigint[], counts int[], nonces uuid[], afters bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
  SET enable_mergejoin = off
AS $$
DECLARE
  t timestamptz := clock_timestamp();
  line int := semel_timeline();
BEGIN
  RETURN QUERY
    UPDATE semel_message m SET due_at = t + u.after * interval '1 microsecond', hold = u.after, nonce = NULL, until = NULL
    FROM unnest(positions, counts, nonces, afters) AS u (pos, count, nonce, after)
    WHERE m.pos = u.pos AND semel_mine(m, u.count, u.nonce, line) RETURNING m.pos;
END
$$;

-- Keeps messages from others for a while from now, in microseconds. Returns what semel_remove does.
CREATE FUNCTION semel_keep(positions bigint[], counts int[], nonces uuid[], visible bigint)
RETURNS SETOF bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
  SET enable_mergejoin = off
AS $$
DECLARE
  t timestamptz := clock_timestamp();
  line int := semel_timeline();
BEGIN
  RETURN QUERY
    UPDATE semel_message m SET until = t + visible * interval '1 microsecond', hold = visible
    FROM unnest(positions, counts, nonces) AS u (pos, count, nonce)
    WHERE m.pos = u.pos AND m.until IS NOT NULL AND semel_mine(m, u.count, u.nonce, line) RETURNING m.pos;
END
$$;

-- Messages set aside for a person. A dead letter is self-contained.
CREATE TABLE semel_dead_letter (
  seq            bigint      GENERATED ALWAYS AS IDENTITY,
  queue          int         NOT NULL,
  id             text        NOT NULL,
  kind           text        NOT NULL,               -- failed, mismatch, uncertain, busy, late
  reason         bytea       NOT NULL,
  consumer       bytea       NOT NULL,
  tenant         bytea       NOT NULL,
  key            bytea       NOT NULL,
  generation     int         NOT NULL,
  token          bigint      NOT NULL,
  attempts       int         NOT NULL,
  first_received timestamptz,
  dead_at        timestamptz NOT NULL,
  msg_id         bytea       NOT NULL,
  msg_queue      text        NOT NULL,
  grp            bytea,
  sent_at        timestamptz,
  headers        bytea,                              -- JSON
  body           bytea       NOT NULL,
  version        bytea,                              -- of the message; NULL: none
  PRIMARY KEY (queue, seq),                          -- pages are read in its order
  UNIQUE (queue, id)
);

-- Dead letters in words, as semel_messages.
CREATE VIEW semel_dead_letters AS
SELECT q.name AS queue, l.id, l.kind, encode(l.reason, 'escape') AS reason, encode(l.consumer, 'escape') AS consumer,
  encode(l.tenant, 'escape') AS tenant, encode(l.key, 'escape') AS key, l.generation, l.token, l.attempts, l.first_received,
  l.dead_at, encode(l.msg_id, 'escape') AS msg_id, l.msg_queue, encode(l.grp, 'escape') AS grp, l.sent_at,
  encode(l.headers, 'escape') AS headers, octet_length(l.body) AS size, encode(substring(l.body FOR 1024), 'escape') AS body,
  encode(l.version, 'escape') AS version
FROM semel_dead_letter l JOIN semel_queue q ON q.id = l.queue;

CREATE VIEW semel_steps AS
SELECT encode(r.consumer, 'escape') AS consumer, encode(k.parts[1], 'escape') AS tenant, encode(k.parts[2], 'escape') AS key,
  s.epoch, encode(s.version, 'escape') AS version, s.seq, encode(s.name, 'escape') AS name,
  (ARRAY['REGISTERED', 'STARTED', 'DONE', 'COMP_STARTED', 'COMP_DONE', 'COMPENSATING'])[s.state] AS state, s.undo,
  s.failures, encode(s.reason, 'escape') AS reason, encode(s.result, 'escape') AS result, s.token, s.updated_at
FROM semel_step s JOIN semel_record r ON r.place = s.place,
  LATERAL (SELECT semel_words(coalesce(r.rest, substring(r.place FROM 7)), 0, 1) AS parts) k;

CREATE VIEW semel_audits AS WITH a AS (SELECT * FROM semel_audit)
SELECT at, encode(who, 'escape') AS who, (ARRAY['resolve', 'redrive', 'discard', 'release', 'reopen', 'erase', 'refuse'])[kind] AS kind,
  encode(consumer, 'escape') AS consumer, encode(tenant, 'escape') AS tenant, encode(key, 'escape') AS key, generation, token,
  (ARRAY['IN_PROGRESS', 'RELEASED', 'COMPLETED', 'FAILED', 'UNCERTAIN', 'EXPIRED'])[was] AS was,
  coalesce((ARRAY['IN_PROGRESS', 'RELEASED', 'COMPLETED', 'FAILED', 'UNCERTAIN', 'EXPIRED'])[became], 'ABSENT') AS became,
  encode(reason, 'escape') AS reason, verified, renewed
FROM a ORDER BY seq;

CREATE VIEW semel_duplicates AS
SELECT encode(r.consumer, 'escape') AS consumer, encode(k.parts[1], 'escape') AS tenant, encode(k.parts[2], 'escape') AS key,
  d.nr, d.at, encode(d.message, 'escape') AS message, encode(d.worker, 'escape') AS worker, encode(d.queue, 'escape') AS queue, d.delivery,
  encode(d.decision, 'escape') AS decision, encode(d.cause, 'escape') AS cause
FROM semel_duplicate d JOIN semel_record r ON r.place = d.place,
  LATERAL (SELECT semel_words(coalesce(r.rest, substring(r.place FROM 7)), 0, 1) AS parts) k;

-- What messages' effects and handlers must not do. SEM05 refuses it; the program makes that the failure of the message.

-- The trigger of all of semel's tables. It tells the statements of handlers by the text that the client sent, which no SQL can
-- change: functions, DO, rules and triggers that it runs do not show there. Effects that are data come behind a comment. In
-- a transaction that handlers have (semel_lend) it is semel's statements that come behind one. Names are qualified: a
-- handler may have another search_path.
CREATE FUNCTION semel_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF pg_catalog.starts_with(pg_catalog.current_query(), '/* semel: effect */')
    OR pg_catalog.current_setting('semel.lent', true) OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text
      AND NOT pg_catalog.starts_with(pg_catalog.current_query(), '/* semel */') THEN
    RAISE EXCEPTION 'refused: a handler''s SQL must not write to semel''s table %; Try: tables of your own', TG_TABLE_NAME
      USING ERRCODE = 'SEM05';
  END IF;
  RETURN NULL;
END
$$;

-- Ends the SQL of messages, in their transaction: refuses what it must not have done, and sets the session back to what
-- it was, so that neither later messages nor semel work with its role, search_path or tenant.
--   lent         handlers have the transaction: they may make temporary tables, but none that hides one of semel's
--   last         the SQL of the last message: deferred triggers run here and not in COMMIT, after which nobody looks
--   whom         the connection's user: another one is set back. NULL: role and user are set back in any case
--   deep         it was more than INSERT, UPDATE, DELETE and MERGE: there may be cursors and prepared statements
--   idle         idle_in_transaction_session_timeout of the transaction, in milliseconds
--   names, vals  settings that the connection did not come with: a pooler's connect_query
CREATE FUNCTION semel_end(lent boolean, last boolean, deep boolean, whom text, idle int, names text[], vals text[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF last THEN
    SET CONSTRAINTS ALL IMMEDIATE;
  END IF;
  -- Only a transaction that wrote to the catalogs pays for a look at them. Without track_counts every one does.
  IF current_setting('track_counts') <> 'on'
    OR pg_stat_get_xact_tuples_inserted('pg_class'::regclass) + pg_stat_get_xact_tuples_updated('pg_class'::regclass)
      + pg_stat_get_xact_tuples_deleted('pg_class'::regclass) + pg_stat_get_xact_tuples_inserted('pg_proc'::regclass)
      + pg_stat_get_xact_tuples_updated('pg_proc'::regclass) + pg_stat_get_xact_tuples_deleted('pg_proc'::regclass)
      + pg_stat_get_xact_tuples_inserted('pg_trigger'::regclass) + pg_stat_get_xact_tuples_updated('pg_trigger'::regclass)
      + pg_stat_get_xact_tuples_deleted('pg_trigger'::regclass)
      + pg_stat_get_xact_tuples_inserted('pg_rewrite'::regclass) + pg_stat_get_xact_tuples_updated('pg_rewrite'::regclass)
      + pg_stat_get_xact_tuples_inserted('pg_policy'::regclass) + pg_stat_get_xact_tuples_inserted('pg_constraint'::regclass)
      + pg_stat_get_xact_tuples_updated('pg_attribute'::regclass) + pg_stat_get_xact_tuples_updated('pg_namespace'::regclass) > 0
  THEN
    IF EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = pg_my_temp_schema() AND c.relkind IN ('r', 'v', 'S', 'p')
        AND (NOT lent OR c.relname LIKE 'semel\_%')) THEN
      RAISE EXCEPTION 'refused: a temporary table hides tables from what follows; Try: WITH, or a table of your own'
        USING ERRCODE = 'SEM05';
    END IF;
    IF NOT semel_intact() THEN
      RAISE EXCEPTION 'refused: a handler''s SQL must not change, lock or drop semel''s tables and functions; Try: tables of your own'
        USING ERRCODE = 'SEM05';
    END IF;
  END IF;
  PERFORM pg_advisory_unlock_all();
  UNLISTEN *;
  DISCARD SEQUENCES;
  IF deep THEN
    PERFORM semel_close();
  END IF;
  IF current_user = whom AND session_user = whom THEN
    NULL;
  ELSE
    RESET SESSION AUTHORIZATION;
    RESET ROLE;
  END IF;
  RESET ALL;
  FOR i IN 1..cardinality(names) LOOP
    PERFORM set_config(names[i], vals[i], false);
  END LOOP;
  PERFORM set_config('idle_in_transaction_session_timeout', idle::text, true);
END
$$;

-- Sets settings back between the statements of two messages, and bounds those of the next.
CREATE FUNCTION semel_next(statement text, lock text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RESET ALL;
  PERFORM pg_catalog.set_config('statement_timeout', statement, true), pg_catalog.set_config('lock_timeout', lock, true);
END
$$;

-- Closes the cursors and prepared statements that SQL made. The program's own prepared statements stay.
CREATE FUNCTION semel_close() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  n text;
BEGIN
  FOR n IN SELECT c.name FROM pg_cursors c WHERE c.is_holdable LOOP
    EXECUTE format('CLOSE %I', n);
  END LOOP;
  FOR n IN SELECT p.name FROM pg_prepared_statements p WHERE p.from_sql LOOP
    EXECUTE format('DEALLOCATE %I', n);
  END LOOP;
END
$$;

-- Takes back what the SQL of handlers left in the session, after its transaction: a refused one leaves locks and prepared
-- statements, one that handlers had what its deferred triggers and temporary tables leave.
CREATE FUNCTION semel_clean(names text[], vals text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DISCARD TEMP;
  PERFORM semel_end(true, false, true, NULL, 0, names, vals);
END
$$;

-- semel_begin for a transaction in which handlers run their own SQL: marks it (semel_guard).
CREATE FUNCTION semel_lend(idle int, sealed boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  id bigint := semel_begin(idle, sealed);
BEGIN
  PERFORM set_config('semel.lent', id::text, true);
  RETURN id;
END
$$;

-- semel_within, and semel_end, for such a transaction: it is semel's again. The mark stays, for deferred triggers.
CREATE FUNCTION semel_take(id bigint, idle int, names text[], vals text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM semel_within(id);
  IF current_setting('semel.lent', true) IS DISTINCT FROM id::text THEN
    RAISE EXCEPTION 'refused: a handler reset all settings of the transaction; Try: RESET of those that it set' USING ERRCODE = 'SEM05';
  END IF;
  PERFORM semel_end(true, false, true, NULL, idle, names, vals);
  PERFORM set_config('semel.lent', id::text, true), set_config('semel.sealed', id::text, true);
END
$$;

-- Every table gets the trigger, which fires in each session_replication_role. Functions get the schema that they are in,
-- and what is temporary last: no table of the session and no search_path of a handler comes before semel's tables. Those
-- that name no table are left as they are, so that they can be inlined.
DO $$
DECLARE
  s CONSTANT name := current_schema();
  n name;
  f regprocedure;
BEGIN
  FOR n IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = s::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'semel\_%' LOOP
    EXECUTE format('CREATE TRIGGER semel_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %I EXECUTE FUNCTION semel_guard()', n);
    EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER semel_guard', n);
  END LOOP;
  -- Reports whether semel's tables and functions are those that were made: none is missing, and this transaction did
  -- not touch any. What changes a table locks it.
  EXECUTE format($f$
    CREATE FUNCTION semel_intact() RETURNS boolean LANGUAGE sql AS $i$
      SELECT (SELECT count(*) >= %2$s FROM pg_class c WHERE c.relnamespace = %1$L::regnamespace AND c.relname LIKE 'semel\_%%')
        AND (SELECT count(*) >= %3$s FROM pg_trigger g WHERE g.tgfoid = 'semel_guard'::regproc AND g.tgenabled = 'A')
        AND (SELECT count(*) >= %4$s AND NOT bool_or(age(p.xmin) <= age(pg_current_xact_id()::xid)) FROM pg_proc p
          WHERE p.pronamespace = %1$L::regnamespace AND p.proname LIKE 'semel\_%%')
        AND NOT EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
          WHERE l.pid = pg_backend_pid() AND c.relnamespace = %1$L::regnamespace AND c.relname LIKE 'semel\_%%'
            AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock'))
    $i$
  $f$, s, (SELECT count(*) FROM pg_class c WHERE c.relnamespace = s::regnamespace AND c.relname LIKE 'semel\_%'),
    (SELECT count(*) FROM pg_trigger g WHERE g.tgfoid = 'semel_guard'::regproc),
    (SELECT count(*) + 1 FROM pg_proc p WHERE p.pronamespace = s::regnamespace AND p.proname LIKE 'semel\_%'));
  FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
      WHERE p.pronamespace = s::regnamespace AND p.proname LIKE 'semel\_%'
        AND (l.lanname = 'plpgsql' AND p.proname NOT IN ('semel_guard', 'semel_words', 'semel_next') OR p.proname = 'semel_intact') LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', f, s);
  END LOOP;
END
$$;
