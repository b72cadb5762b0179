-- Tables whose defaults change from one moment to the next, or from row to row.
-- engines: postgres

CREATE TABLE stamps (
  k bigint PRIMARY KEY, a integer, made timestamptz DEFAULT now(), day date DEFAULT CURRENT_DATE, utc timestamp DEFAULT timezone('utc', now()),
  long text DEFAULT ('at ' || CURRENT_TIMESTAMP), code uuid DEFAULT gen_random_uuid()
) WITH (cleave.shard_key = 'k');
