-- Schema 3: long-term periods.
UPDATE semel_state SET schema = 3 WHERE one = 1;

-- For how long the records of a consumer stay EXPIRED after their retention. Every sweep obeys it.
CREATE TABLE semel_long_term (
  consumer TEXT    PRIMARY KEY,
  period   INTEGER NOT NULL              -- microseconds
) STRICT, WITHOUT ROWID;
