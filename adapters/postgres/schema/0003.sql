-- semel's tables, schema 3: digests of keys whose records are gone, and guards against the SQL of handlers. This part alone
-- brings a database of schema 2 up to date; put it into one transaction.
--
-- Workers of schema 2 that are running may run on: the step of a sweep that they call is the one below.
UPDATE semel_schema SET version = 3;

-- Whose records leave a digest, and for how long it is kept.
CREATE TABLE semel_remember (
  consumer bytea    PRIMARY KEY,
  keep     interval NOT NULL
);

-- What is remembered of a key whose record is gone. 16 bytes and two numbers are all that fits into the smallest row.
CREATE TABLE semel_digest (
  hash  uuid PRIMARY KEY,                -- as in semel_record
  ended int  NOT NULL,                   -- (0 completed, 1 failed, 2 released with a doubt) << 20 | hours since 2020
  day   int  NOT NULL                    -- until when it is kept, in days since 2020
);

-- Announcements: digests of records that are still there, and go some minutes later.
CREATE TABLE semel_digest_young (
  hash uuid        PRIMARY KEY,
  at   timestamptz NOT NULL,             -- when it was announced
  day  int         NOT NULL
);

-- Where the look for digests that are over goes on: a page of semel_digest.
CREATE TABLE semel_digest_sweep (
  one  int    PRIMARY KEY CHECK (one = 1),
  page bigint NOT NULL
);
INSERT INTO semel_digest_sweep (one, page) VALUES (1, 0);

-- A record that leaves a digest when it goes.
CREATE FUNCTION semel_digested(state smallint, unknown boolean) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT state IN (3, 4) OR state = 2 AND unknown
$$;

-- Days since 2020, at the beginning of the day after.
CREATE FUNCTION semel_digest_day(at timestamptz) RETURNS int LANGUAGE sql IMMUTABLE AS $$
  SELECT least(greatest(ceil((extract(epoch FROM at) - 1577836800) / 86400), 0), 65535)::int
$$;

-- One step of a sweep, as before. Records of consumers that are remembered are announced first; they go when that is
-- ten minutes old (driver.DigestOverlap), and leave their digest in the same statement. announced counts those that were
-- announced. An announcement that is older than a day is made anew (driver.DigestStale).
--   consumers  whose abandoned claims are answered: the horizon is theirs. NULL: everybody's
CREATE FUNCTION semel_sweep_digests(first bigint, pages int, small int, most int, horizon interval, consumers bytea[])
RETURNS TABLE (of bigint, purged bigint, whole boolean, found bytea, at timestamptz, announced bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  t timestamptz := clock_timestamp();
  n bigint := ceil(pg_relation_size('semel_record') / current_setting('block_size')::numeric / pages);
  s semel_sweep%ROWTYPE;
  low tid;
  high tid;
  gone bigint;
  token bigint;
  kept interval;
  next timestamptz;
  stranded bigint := 0;
  places tid[];
  hashes uuid[];
  belongings bigint;
  bound CONSTANT int := 5000; -- steps and lines of the trail that one transaction removes
  cut boolean := false;
  remembers CONSTANT boolean := EXISTS (SELECT FROM semel_remember);
  overlap CONSTANT interval := interval '10 minutes';
  stale CONSTANT interval := interval '24 hours';
  told bigint := 0;
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
  IF NOT remembers THEN
    SELECT array_agg(c.place), array_agg(c.hash) INTO places, hashes FROM (
      SELECT o.ctid AS place, o.hash FROM semel_record o
      WHERE o.ctid >= low AND o.ctid < high AND o.state IN (2, 3, 4) AND o.retain_until < t LIMIT most
      FOR UPDATE SKIP LOCKED) c;
  ELSE
    INSERT INTO semel_digest_young AS y (hash, at, day)
      SELECT o.hash, t, semel_digest_day(t + m.keep)
      FROM semel_record o JOIN semel_remember m ON m.consumer = o.consumer LEFT JOIN semel_digest_young y ON y.hash = o.hash
      WHERE o.ctid >= low AND o.ctid < high AND o.state IN (2, 3, 4) AND o.retain_until < t
        AND semel_digested(o.state, o.unknown) AND (y.at IS NULL OR y.at > t OR y.at < t - stale) LIMIT most
    ON CONFLICT (hash) DO UPDATE SET at = excluded.at, day = excluded.day;
    GET DIAGNOSTICS told = ROW_COUNT;
    SELECT array_agg(c.place), array_agg(c.hash) INTO places, hashes FROM (
      SELECT o.ctid AS place, o.hash FROM semel_record o LEFT JOIN semel_remember m ON m.consumer = o.consumer
        LEFT JOIN semel_digest_young y ON y.hash = o.hash
      WHERE o.ctid >= low AND o.ctid < high AND o.state IN (2, 3, 4) AND o.retain_until < t
        AND (m.consumer IS NULL OR NOT semel_digested(o.state, o.unknown) OR y.at < t - overlap AND y.at >= t - stale)
      LIMIT most - told FOR UPDATE OF o SKIP LOCKED) c;
  END IF;
  -- A record's steps and trail go with it: a key that came back would find its old steps done. Where there are very many
  -- of them, fewer records go at once.
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
  -- The records are locked, and the rows that were locked are those that were looked at: nobody registered and nobody
  -- reopened one since. A consumer that is registered at this moment may still lose records without a digest, as it did
  -- before.
  WITH gone AS (
    DELETE FROM semel_record r WHERE r.ctid = ANY (places) AND r.state IN (2, 3, 4) AND r.retain_until < t
    RETURNING r.hash, r.state, r.unknown, r.consumer, r.token, r.retain_until - r.updated_at AS kept,
      CASE r.state WHEN 3 THEN r.completed_at ELSE r.updated_at END AS ended
  ), digests AS (
    INSERT INTO semel_digest AS d (hash, ended, day)
      SELECT g.hash, CASE g.state WHEN 3 THEN 0 WHEN 4 THEN 1 ELSE 2 END << 20
          | least(greatest(floor((extract(epoch FROM g.ended) - 1577836800) / 3600), 0), 1048575)::int,
        semel_digest_day(t + m.keep)
      FROM gone g JOIN semel_remember m ON m.consumer = g.consumer
      WHERE remembers AND semel_digested(g.state, g.unknown) ORDER BY g.hash
    ON CONFLICT (hash) DO UPDATE SET ended = excluded.ended, day = excluded.day
  )
  SELECT count(*), max(g.token), min(g.kept) INTO gone, token, kept FROM gone g;
  IF remembers THEN
    DELETE FROM semel_digest_young y WHERE y.hash = ANY (hashes);
  END IF;
  IF gone > 0 THEN
    UPDATE semel_floor f SET purged = greatest(f.purged, token);
  END IF;
  IF gone + told < most AND NOT cut AND horizon IS NOT NULL THEN
    RETURN QUERY SELECT s.stretch, NULL::bigint, NULL::boolean, semel_row(r), t, NULL::bigint FROM semel_record r
      WHERE r.ctid >= low AND r.ctid < high AND r.state = 1 AND r.lease_until + horizon < t
        AND (consumers IS NULL OR r.consumer = ANY (consumers)) LIMIT most - gone - told
      FOR UPDATE SKIP LOCKED;
    GET DIAGNOSTICS stranded = ROW_COUNT;
  END IF;
  IF gone + told + stranded < most AND NOT cut THEN
    -- What was announced is due when that is old enough.
    SELECT min(CASE WHEN remembers AND r.retain_until < t
        THEN coalesce((SELECT y.at + overlap FROM semel_digest_young y WHERE y.hash = r.hash), r.retain_until)
        ELSE r.retain_until END), least(kept, min(r.retain_until - r.updated_at)) INTO next, kept FROM semel_record r
      WHERE isfinite(r.retain_until) AND r.ctid >= low AND r.ctid < high AND r.state IN (2, 3, 4);
    kept := least(greatest(coalesce(kept, s.again), interval '10 seconds'), interval '1 hour');
    UPDATE semel_sweep w SET due = least(next, t + kept), again = kept WHERE w.stretch = s.stretch;
  END IF;
  RETURN QUERY SELECT s.stretch, gone, gone + told + stranded < most AND NOT cut, NULL::bytea, t, told;
END
$$;

-- What workers of schema 2 call: the same.
CREATE OR REPLACE FUNCTION semel_sweep_step(first bigint, pages int, small int, most int, horizon interval)
RETURNS TABLE (of bigint, purged bigint, whole boolean, found bytea, at timestamptz)
LANGUAGE sql AS $$
  SELECT s.of, s.purged, s.whole, s.found, s.at FROM semel_sweep_digests(first, pages, small, most, horizon, NULL) s
$$;

-- Removes digests that are over in the next pages, and announcements that are nobody's. Does nothing while another process
-- does it.
--   pages  how many pages of semel_digest are looked at
CREATE FUNCTION semel_digest_purge(pages int) RETURNS bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  n bigint := pg_relation_size('semel_digest') / current_setting('block_size')::int;
  today int := floor((extract(epoch FROM clock_timestamp()) - 1577836800) / 86400);
  s semel_digest_sweep%ROWTYPE;
  low tid;
  high tid;
  gone bigint;
BEGIN
  SELECT w.* INTO s FROM semel_digest_sweep w FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  DELETE FROM semel_digest_young y WHERE y.hash = ANY (ARRAY (SELECT o.hash FROM semel_digest_young o
    WHERE o.at < clock_timestamp() - interval '24 hours' LIMIT 5000 FOR UPDATE SKIP LOCKED));
  low := format('(%s,0)', s.page);
  high := format('(%s,0)', s.page + pages);
  DELETE FROM semel_digest d WHERE d.ctid >= low AND d.ctid < high AND d.day <= today;
  GET DIAGNOSTICS gone = ROW_COUNT;
  IF n > pages THEN
    UPDATE semel_digest_sweep w SET page = CASE WHEN s.page + pages < n THEN s.page + pages ELSE 0 END;
  END IF;
  RETURN gone;
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

-- Looks digests up: a session's plan of a statement can be one of when the table was empty.
CREATE FUNCTION semel_remembered(hashes uuid[]) RETURNS TABLE (of uuid, ended int, day int)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
BEGIN
  RETURN QUERY SELECT d.hash, d.ended, d.day FROM semel_digest d WHERE d.hash = ANY (hashes)
    AND d.day > floor((extract(epoch FROM clock_timestamp()) - 1577836800) / 86400);
END
$$;

-- For people.
CREATE VIEW semel_digests AS
SELECT hash, CASE ended >> 20 WHEN 0 THEN 'COMPLETED' WHEN 1 THEN 'FAILED' ELSE 'RELEASED' END AS state,
       to_timestamp(1577836800 + (ended & 1048575) * 3600::bigint) AS at, date '2020-01-01' + day AS until
  FROM semel_digest;

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
        AND (l.lanname = 'plpgsql' AND p.proname NOT IN ('semel_guard', 'semel_watermark', 'semel_next') OR p.proname IN ('semel_intact', 'semel_sweep_step')) LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', f, s);
  END LOOP;
END
$$;
