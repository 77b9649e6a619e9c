-- semel's tables, schema 3: long-term periods, and guards against the SQL of handlers. This part alone brings a database of
-- schema 2 up to date; put it into one transaction.
UPDATE semel_schema SET version = 3;

-- For how long the records of a consumer stay EXPIRED after their retention. Every sweep obeys it.
CREATE TABLE semel_long_term (
  consumer bytea  PRIMARY KEY,
  period   bigint NOT NULL               -- microseconds
);

-- One step of a sweep in one stretch of pages: purges what is past its retention, or makes it EXPIRED where its consumer has
-- a long-term period (driver.DecideSweep), and locks and returns abandoned claims there, for the program to park. It locks
-- nothing else and waits for nobody; processes that sweep at once take different stretches. Without an index on the
-- retention, which every completion would have to move.
--   first      the stretch to begin with
--   pages      of a stretch; the same for ever
--   small      a table of so many stretches is looked at as a whole each time
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
  stranded bigint := 0;
  places tid[];
  hashes uuid[];
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
  SELECT array_agg(c.place), array_agg(c.hash) INTO places, hashes FROM (
    SELECT o.ctid AS place, o.hash FROM semel_record o
    WHERE o.ctid >= low AND o.ctid < high AND o.state IN (2, 3, 4, 6) AND o.retain_until < t LIMIT most
    FOR UPDATE SKIP LOCKED) c;
  -- What belongs to a record goes with it, or with its payload: a key that came back would find its old steps done. Where
  -- there are very many rows, fewer records go at once.
  LOOP
    SELECT (SELECT count(*) FROM (SELECT FROM semel_step j WHERE j.hash = ANY (hashes) LIMIT bound + 1) x) +
      (SELECT count(*) FROM (SELECT FROM semel_audit a WHERE a.hash = ANY (hashes) LIMIT bound + 1) x) INTO belongings;
    EXIT WHEN belongings <= bound OR cardinality(places) = 1;
    cut := true;
    places := places[1:cardinality(places) / 2];
    hashes := hashes[1:cardinality(hashes) / 2];
  END LOOP;
  IF belongings > 0 THEN
    DELETE FROM semel_step j WHERE j.hash = ANY (hashes);
    DELETE FROM semel_audit a WHERE a.hash = ANY (hashes);
  END IF;
  IF cardinality(hashes) > 0 THEN
    PERFORM pg_advisory_xact_lock_shared('semel_duplicate'::regclass::oid::bigint);
    IF EXISTS (SELECT FROM semel_duplicate) THEN
      DELETE FROM semel_duplicate d WHERE d.hash = ANY (hashes);
    END IF;
  END IF;
  -- The records are locked, and both statements look at state and time again. A row that expires gets another place.
  IF EXISTS (SELECT FROM semel_long_term) THEN
    UPDATE semel_record r SET state = 6, ended = r.state, retain_until = r.retain_until + m.period * us, nonce = NULL,
      lease = NULL, lease_until = NULL, completed_at = NULL, retry_at = NULL, body_digest = NULL, beat = NULL, attempt = NULL,
      failures = NULL, takeovers = NULL, spent = false, fingerprint = NULL, deliveries = NULL, result = NULL, reason = NULL
    FROM semel_long_term m
    WHERE r.ctid = ANY (places) AND m.consumer = r.consumer AND (r.state IN (3, 4) OR r.state = 2 AND r.unknown)
      AND r.watermark IS NULL AND r.retain_until < t AND r.retain_until + m.period * us >= t;
    GET DIAGNOSTICS lapsed = ROW_COUNT;
  END IF;
  WITH gone AS (
    DELETE FROM semel_record r WHERE r.ctid = ANY (places) AND r.state IN (2, 3, 4, 6) AND r.retain_until < t
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
    GET DIAGNOSTICS stranded = ROW_COUNT;
  END IF;
  IF gone + lapsed + stranded < most AND NOT cut THEN
    SELECT min(r.retain_until), least(kept, min(r.retain_until - r.updated_at)) INTO next, kept FROM semel_record r
      WHERE isfinite(r.retain_until) AND r.ctid >= low AND r.ctid < high AND r.state IN (2, 3, 4, 6);
    kept := least(greatest(coalesce(kept, s.again), interval '10 seconds'), interval '1 hour');
    UPDATE semel_sweep w SET due = least(next, t + kept), again = kept WHERE w.stretch = s.stretch;
  END IF;
  RETURN QUERY SELECT s.stretch, gone, lapsed, gone + lapsed + stranded < most AND NOT cut, NULL::bytea, t;
END
$$;

-- The newest duplicates of each key: deliveries that were settled without a run. Written outside of the messages'
-- transactions, best effort; they go with their record.
CREATE TABLE semel_duplicate (
  hash     uuid        NOT NULL,             -- of the record
  nr       bigint      NOT NULL,             -- counts the duplicates of the key, from 1; the last one is how many there were
  at       timestamptz NOT NULL,
  message  bytea       NOT NULL,             -- its id
  worker   bytea       NOT NULL,
  queue    bytea       NOT NULL,
  delivery int         NOT NULL,             -- the broker's delivery count; 0: unknown
  decision bytea       NOT NULL,
  cause    bytea       NOT NULL,
  PRIMARY KEY (hash, nr)
);

-- Adds duplicates of keys that have a record, and removes all but the newest kept of each key. The advisory lock keeps two
-- workers from using one number, and sweeps from purging a record at the same time: they share it. Nothing else waits for it.
CREATE FUNCTION semel_add_duplicates(hashes uuid[], ats timestamptz[], messages bytea[], workers bytea[], queues bytea[],
  deliveries int[], decisions bytea[], causes bytea[], kept int)
RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET lock_timeout = '200ms'
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock('semel_duplicate'::regclass::oid::bigint);
  INSERT INTO semel_duplicate (hash, nr, at, message, worker, queue, delivery, decision, cause)
    SELECT x.hash, coalesce((SELECT max(d.nr) FROM semel_duplicate d WHERE d.hash = x.hash), 0)
        + row_number() OVER (PARTITION BY x.hash ORDER BY x.place),
      x.at, x.message, x.worker, x.queue, x.delivery, x.decision, x.cause
    FROM unnest(hashes, ats, messages, workers, queues, deliveries, decisions, causes)
      WITH ORDINALITY AS x (hash, at, message, worker, queue, delivery, decision, cause, place)
    WHERE EXISTS (SELECT FROM semel_record r WHERE r.hash = x.hash);
  DELETE FROM semel_duplicate d
    USING (SELECT o.hash, max(o.nr) - kept AS old FROM semel_duplicate o WHERE o.hash = ANY (hashes) GROUP BY o.hash) t
    WHERE d.hash = t.hash AND d.nr <= t.old;
END
$$;

CREATE VIEW semel_duplicates AS
SELECT encode(r.consumer, 'escape') AS consumer, encode(r.tenant, 'escape') AS tenant, encode(r.key, 'escape') AS key, d.nr, d.at,
  encode(d.message, 'escape') AS message, encode(d.worker, 'escape') AS worker, encode(d.queue, 'escape') AS queue, d.delivery,
  encode(d.decision, 'escape') AS decision, encode(d.cause, 'escape') AS cause
FROM semel_duplicate d JOIN semel_record r ON r.hash = d.hash;

-- Removes a record that semel_lock locked in this transaction, with what belongs to it, for an operator.
CREATE FUNCTION semel_erase(of uuid) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  token bigint;
BEGIN
  DELETE FROM semel_step j WHERE j.hash = of;
  DELETE FROM semel_audit a WHERE a.hash = of;
  PERFORM pg_advisory_xact_lock_shared('semel_duplicate'::regclass::oid::bigint);
  DELETE FROM semel_duplicate d WHERE d.hash = of;
  DELETE FROM semel_uncertain u WHERE u.hash = of;
  DELETE FROM semel_record r WHERE r.hash = of RETURNING r.token INTO token;
  UPDATE semel_floor f SET purged = greatest(f.purged, token);
END
$$;

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
        AND (l.lanname = 'plpgsql' AND p.proname NOT IN ('semel_guard', 'semel_watermark', 'semel_next') OR p.proname = 'semel_intact') LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', f, s);
  END LOOP;
END
$$;
