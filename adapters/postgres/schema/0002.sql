-- semel's tables, schema 2: keys with versions, journals of steps, the operators' trail. This part alone brings a database
-- of schema 1 up to date; put it into one transaction.
--
-- Workers of schema 1 that are running may run on: what they call is still there and takes the same parameters. Records
-- with versions they cannot read (see semel_row), so that they neither run nor acknowledge messages of such keys.
UPDATE semel_schema SET version = 2;

-- NULL: the key has no versions. Else how far it came, as driver.AppendWatermark writes it.
ALTER TABLE semel_record ADD COLUMN watermark bytea;

-- The version of the message; NULL: none.
ALTER TABLE semel_letter ADD COLUMN version bytea;

-- A record as the program reads it, in binary form. With a watermark it has one field more, which a program of schema 1
-- refuses to read.
CREATE OR REPLACE FUNCTION semel_row(r semel_record) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN r.watermark IS NULL THEN
    record_send(ROW(r.token, r.state, r.generation, r.nonce, r.lease_until, r.lease, r.beat, r.takeover, r.unknown,
      r.updated_at, r.completed_at, r.retain_until, r.result, r.reason, r.consumer, r.tenant, r.key, r.fingerprint, r.body_digest,
      r.epoch, r.spent, r.attempt, r.failures, r.takeovers, r.uncertainty, r.disposed, r.retry_at, r.created_at, r.deliveries,
      r.ended))
  ELSE
    record_send(ROW(r.token, r.state, r.generation, r.nonce, r.lease_until, r.lease, r.beat, r.takeover, r.unknown,
      r.updated_at, r.completed_at, r.retain_until, r.result, r.reason, r.consumer, r.tenant, r.key, r.fingerprint, r.body_digest,
      r.epoch, r.spent, r.attempt, r.failures, r.takeovers, r.uncertainty, r.disposed, r.retry_at, r.created_at, r.deliveries,
      r.ended, r.watermark))
  END
$$;

-- semel_claim for calls in which some claims have versions: watermarks are those of the records to be made, NULL for
-- claims without. The records are IN_PROGRESS.
CREATE FUNCTION semel_claim_versions(hashes uuid[], nonces uuid[], leases bigint[], takeovers smallint[], consumers bytea[],
  tenants bytea[], keys bytea[], fingerprints bytea[], deliveries bytea[], watermarks bytea[], wait int,
  digests bigint[])
RETURNS TABLE (of uuid, drawn bigint, at timestamptz, found bytea)
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
    INSERT INTO semel_record AS r (hash, token, nonce, lease, lease_until, created_at, updated_at, state, takeover,
      consumer, tenant, key, fingerprint, deliveries, watermark, body_digest)
    SELECT u.hash, nextval('semel_token'), u.nonce, u.lease, t + u.lease * us, t, t, 1, u.takeover, u.consumer, u.tenant, u.key,
      u.fingerprint, u.delivery, u.watermark, u.digest
    FROM (SELECT unnest(hashes) AS hash, unnest(nonces) AS nonce, unnest(leases) AS lease, unnest(takeovers) AS takeover,
      unnest(consumers) AS consumer, unnest(tenants) AS tenant, unnest(keys) AS key, unnest(fingerprints) AS fingerprint,
      unnest(deliveries) AS delivery, unnest(watermarks) AS watermark, unnest(digests) AS digest) u
    ON CONFLICT (hash) DO NOTHING
    RETURNING r.hash, r.token, r.created_at, NULL::bytea;
  GET DIAGNOSTICS n = ROW_COUNT;
  -- As in semel_claim.
  IF EXISTS (SELECT FROM semel_floor f WHERE f.purged >= low) AND EXISTS (
    SELECT FROM semel_record r, semel_floor f
    WHERE r.hash = ANY (hashes) AND r.nonce = ANY (nonces) AND r.token BETWEEN low AND f.purged) THEN
    RAISE EXCEPTION 'a record was purged after a token was drawn for its key' USING ERRCODE = 'SEM02';
  END IF;
  IF n < cardinality(hashes) THEN
    RETURN QUERY SELECT r.hash, r.token, clock_timestamp(), semel_row(r) FROM semel_record r
      WHERE r.hash = ANY (hashes) AND r.xmin <> pg_current_xact_id()::xid;
  END IF;
END
$$;

-- Completes attempts, as before. A record with a watermark is not the plain case: completing it moves the watermark.
CREATE OR REPLACE FUNCTION semel_complete(hashes uuid[], tokens bigint[], nonces uuid[], generations int[], keeps bigint[],
  results bytea[], reasons bytea[], was smallint, must boolean, wait int)
RETURNS SETOF uuid
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
      UPDATE semel_record r SET state = 3, updated_at = t, completed_at = t, retain_until = t + u.keep * us,
        result = u.result, reason = u.reason, unknown = false
      FROM (SELECT unnest(hashes) AS hash, unnest(tokens) AS token, unnest(nonces) AS nonce,
        unnest(generations) AS generation, unnest(keeps) AS keep, unnest(results) AS result, unnest(reasons) AS reason) u
      WHERE r.hash = u.hash AND r.state = was AND r.token = u.token AND r.nonce = u.nonce AND r.generation = u.generation
        AND r.watermark IS NULL
      RETURNING r.hash;
    RETURN;
  END IF;
  UPDATE semel_record r SET state = 3, updated_at = t, completed_at = t, retain_until = t + u.keep * us,
    result = u.result, reason = u.reason, unknown = false
  FROM (SELECT unnest(hashes) AS hash, unnest(tokens) AS token, unnest(nonces) AS nonce,
    unnest(generations) AS generation, unnest(keeps) AS keep, unnest(results) AS result, unnest(reasons) AS reason) u
  WHERE r.hash = u.hash AND r.state = was AND r.token = u.token AND r.nonce = u.nonce AND r.generation = u.generation
    AND r.watermark IS NULL;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n <> cardinality(hashes) THEN
    RAISE EXCEPTION '% of % attempts hold their records', n, cardinality(hashes) USING ERRCODE = 'SEM01';
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION semel_complete_one(hash uuid, token bigint, nonce uuid, generation int, keep bigint, result bytea,
  reason bytea, was smallint, wait int)
RETURNS SETOF uuid
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET lock_timeout = 0
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := clock_timestamp();
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true);
  UPDATE semel_record r SET state = 3, updated_at = t, completed_at = t, retain_until = t + keep * interval '1 microsecond',
    result = semel_complete_one.result, reason = semel_complete_one.reason, unknown = false
  WHERE r.hash = semel_complete_one.hash AND r.state = was AND r.token = semel_complete_one.token
    AND r.nonce = semel_complete_one.nonce AND r.generation = semel_complete_one.generation AND r.watermark IS NULL;
  IF FOUND THEN
    RETURN NEXT hash;
  END IF;
END
$$;

-- Writes back records that semel_lock locked in this transaction, with their watermarks. SEM01 when one is not there.
CREATE FUNCTION semel_store(hashes uuid[], tokens bigint[], nonces uuid[], leases bigint[], lease_untils timestamptz[],
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
  UPDATE semel_record r SET token = u.token, nonce = u.nonce, lease = u.lease, lease_until = u.lease_until,
    updated_at = u.updated_at, completed_at = u.completed_at, retry_at = u.retry_at, retain_until = u.retain_until,
    generation = u.generation, epoch = u.epoch, beat = u.beat, attempt = u.attempt, failures = u.failures,
    takeovers = u.takeovers, uncertainty = u.uncertainty, state = u.state, takeover = u.takeover,
    unknown = u.flags & 1 <> 0, spent = u.flags & 2 <> 0, disposed = u.flags & 4 <> 0, fingerprint = u.fingerprint,
    deliveries = u.deliveries, result = u.result, reason = u.reason, watermark = u.watermark,
    body_digest = u.body_digest, ended = nullif(u.ended, 0)
  FROM unnest(hashes, tokens, nonces, leases, lease_untils, updated, completed, retries, retains, generations, epochs,
      beats, attempts, failed, taken, uncertain, states, policies, flags, fingerprints, delivered, results, reasons,
      watermarks, digests, endings)
    AS u (hash, token, nonce, lease, lease_until, updated_at, completed_at, retry_at, retain_until, generation, epoch,
      beat, attempt, failures, takeovers, uncertainty, state, takeover, flags, fingerprint, deliveries, result, reason,
      watermark, body_digest, ended)
  WHERE r.hash = u.hash;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n <> cardinality(hashes) THEN
    RAISE EXCEPTION '% of % records are there', n, cardinality(hashes) USING ERRCODE = 'SEM01';
  END IF;
  PERFORM semel_store_uncertain(hashes, states);
END
$$;

-- The records that are UNCERTAIN, oldest first; reads no others. consumer NULL = of all; most NULL = no limit
CREATE FUNCTION semel_list_uncertain(consumer bytea, most bigint) RETURNS SETOF bytea
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
  RETURN QUERY SELECT semel_row(r) FROM semel_uncertain u JOIN semel_record r ON r.hash = u.hash
    WHERE r.state = 5 AND (semel_list_uncertain.consumer IS NULL OR r.consumer = semel_list_uncertain.consumer)
    ORDER BY u.created_at, r.token LIMIT most;
END
$$;

-- Journals of steps (mode E): what the run of a key wrote down of its progress. Every write is guarded by the record, whose
-- lock it holds. epoch and version name the run.
CREATE TABLE semel_step (
  hash       uuid        NOT NULL,                   -- of the record
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
  PRIMARY KEY (hash, epoch, version, name)
) WITH (fillfactor = 70);

-- DecideSteps for the plain cases of a run that goes forward: a step is registered (kind 1) that has no row, started (2)
-- that has not begun, finished (3) that is not done. SEM01 in all others, which the table decides.
CREATE FUNCTION semel_journal_step(of uuid, tok bigint, non uuid, gen int, run int, ver bytea, kind smallint, step bytea,
  undoes boolean, outcome bytea, wait int)
RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET lock_timeout = 0
AS $$
DECLARE
  nr int;
BEGIN
  PERFORM set_config('lock_timeout', wait::text, true);
  PERFORM FROM semel_record r
    WHERE r.hash = of AND r.state = 1 AND r.token = tok AND r.nonce = non AND r.generation = gen AND r.epoch = run FOR UPDATE;
  IF FOUND AND NOT EXISTS (
    SELECT FROM semel_step s WHERE s.hash = of AND s.epoch = run AND s.version = ver AND s.name = '') THEN
    IF ver <> '' THEN
      DELETE FROM semel_step s WHERE s.hash = of AND s.version < ver;
    END IF;
    UPDATE semel_step s SET state = kind, token = tok, nonce = non, updated_at = clock_timestamp(),
      result = CASE kind WHEN 3 THEN outcome ELSE s.result END
    WHERE s.hash = of AND s.epoch = run AND s.version = ver AND s.name = step AND s.state < kind;
    IF FOUND THEN
      RETURN;
    END IF;
    SELECT coalesce(max(s.seq), 0) + 1 INTO nr FROM semel_step s WHERE s.hash = of AND s.epoch = run AND s.version = ver;
    INSERT INTO semel_step (hash, epoch, version, name, seq, state, undo, failures, token, nonce, updated_at, result)
    VALUES (of, run, ver, step, nr, kind, undoes, 0, tok, non, clock_timestamp(), outcome) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  RAISE EXCEPTION 'the journal needs a closer look' USING ERRCODE = 'SEM01';
END
$$;

-- The trail of operators: who did what to which record, and what it was before. Lines are only added; they go with their
-- record when it is purged.
CREATE TABLE semel_audit (
  seq        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  hash       uuid        NOT NULL,                   -- of the record
  at         timestamptz NOT NULL,
  who        bytea       NOT NULL,
  kind       smallint    NOT NULL,                   -- 1 resolve 2 redrive 3 discard 4 release 5 reopen 6 erase
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
CREATE INDEX semel_audit_hash ON semel_audit (hash);

-- The first two words of a watermark: the version that ran last and the one that was applied last.
CREATE FUNCTION semel_watermark(b bytea) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  place int := 2; -- behind form and flags
  size bigint;
  shift int;
  octet int;
  words text[] := '{}';
BEGIN
  FOR i IN 1..2 LOOP
    size := 0;
    shift := 0;
    LOOP
      octet := get_byte(b, place);
      place := place + 1;
      size := size + ((octet & 127)::bigint << shift);
      shift := shift + 7;
      EXIT WHEN octet < 128;
    END LOOP;
    words := words || encode(substring(b FROM place + 1 FOR size::int), 'escape');
    place := place + size::int;
  END LOOP;
  RETURN words;
END
$$;

-- The views for people get the new columns at their ends.
CREATE OR REPLACE VIEW semel_records AS WITH r AS (SELECT * FROM semel_record)
SELECT encode(consumer, 'escape') AS consumer, encode(tenant, 'escape') AS tenant, encode(key, 'escape') AS key,
  (ARRAY['IN_PROGRESS', 'RELEASED', 'COMPLETED', 'FAILED', 'UNCERTAIN', 'EXPIRED'])[state] AS state,
  (ARRAY['resume', 'probe', 'once'])[takeover + 1] AS takeover, attempt, failures, takeovers, uncertainty, unknown,
  disposed, generation, epoch, token, encode(reason, 'escape') AS reason, encode(result, 'escape') AS result, created_at,
  updated_at, lease_until, retry_at, completed_at, retain_until, (semel_watermark(watermark))[1] AS running,
  nullif((semel_watermark(watermark))[2], '') AS applied,
  (ARRAY['IN_PROGRESS', 'RELEASED', 'COMPLETED', 'FAILED'])[ended] AS ended
FROM r;

CREATE OR REPLACE VIEW semel_letters AS
SELECT q.name AS queue, l.id, l.kind, encode(l.reason, 'escape') AS reason, encode(l.consumer, 'escape') AS consumer,
  encode(l.tenant, 'escape') AS tenant, encode(l.key, 'escape') AS key, l.generation, l.token, l.attempts, l.first_received,
  l.dead_at, encode(l.msg_id, 'escape') AS msg_id, l.msg_queue, encode(l.grp, 'escape') AS grp, l.sent_at,
  encode(l.headers, 'escape') AS headers, octet_length(l.body) AS size, encode(substring(l.body FOR 1024), 'escape') AS body,
  encode(l.version, 'escape') AS version
FROM semel_letter l JOIN semel_queue q ON q.id = l.queue;

CREATE VIEW semel_steps AS
SELECT encode(r.consumer, 'escape') AS consumer, encode(r.tenant, 'escape') AS tenant, encode(r.key, 'escape') AS key,
  s.epoch, encode(s.version, 'escape') AS version, s.seq, encode(s.name, 'escape') AS name,
  (ARRAY['REGISTERED', 'STARTED', 'DONE', 'COMP_STARTED', 'COMP_DONE', 'COMPENSATING'])[s.state] AS state, s.undo,
  s.failures, encode(s.reason, 'escape') AS reason, encode(s.result, 'escape') AS result, s.token, s.updated_at
FROM semel_step s JOIN semel_record r ON r.hash = s.hash;

CREATE VIEW semel_audits AS WITH a AS (SELECT * FROM semel_audit)
SELECT at, encode(who, 'escape') AS who, (ARRAY['resolve', 'redrive', 'discard', 'release', 'reopen', 'erase'])[kind] AS kind,
  encode(consumer, 'escape') AS consumer, encode(tenant, 'escape') AS tenant, encode(key, 'escape') AS key, generation, token,
  (ARRAY['IN_PROGRESS', 'RELEASED', 'COMPLETED', 'FAILED', 'UNCERTAIN', 'EXPIRED'])[was] AS was,
  coalesce((ARRAY['IN_PROGRESS', 'RELEASED', 'COMPLETED', 'FAILED', 'UNCERTAIN', 'EXPIRED'])[became], 'ABSENT') AS became,
  encode(reason, 'escape') AS reason, verified, renewed
FROM a ORDER BY seq;

-- Who may use the tables and views of schema 1 may use the new ones: a worker's sweep removes steps with their records.
DO $$
DECLARE
  g record;
BEGIN
  FOR g IN SELECT n.name, a.privilege_type AS may,
      CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS role
    FROM (VALUES ('semel_step', 'semel_record'), ('semel_audit', 'semel_record'), ('semel_steps', 'semel_records'),
        ('semel_audits', 'semel_records')) AS n (name, of)
      JOIN pg_class c ON c.oid = n.of::regclass, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
    WHERE a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') AND a.grantee <> current_user::regrole
  LOOP
    EXECUTE format('GRANT %s ON %I TO %s', g.may, g.name, g.role);
  END LOOP;
END
$$;
