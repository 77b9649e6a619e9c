-- The effects of the handler of --simulate.
CREATE TABLE IF NOT EXISTS ledger (
  effect_key TEXT, message_key TEXT, message_id TEXT, attempt INT, token BIGINT, pid INT, at TIMESTAMPTZ
);
