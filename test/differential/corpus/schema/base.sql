-- The tables of most topics: small, with NULLs and many equal values.

SELECT cleave.create_keyspace('by_sensor', 'range', 'integer', bounds => ARRAY['4', '9', '14', '20']);
SELECT cleave.create_keyspace('by_time', 'range', 'timestamp', bounds => ARRAY['2024-02-01 00:00:00', '2024-03-01 00:00:00', '2024-04-15 12:00:00']);
SELECT cleave.create_keyspace('by_class', 'list', 'text', listed => ARRAY['a=shard-0', 'b=shard-1', 'c=shard-0', 'd=shard-1']);

-- orders and items are colocated: hash of a bigint.
CREATE TABLE orders (
  tenant_id bigint NOT NULL, id integer NOT NULL, status text, qty integer, price numeric(10,2), day date, at timestamp, paid boolean, note text,
  PRIMARY KEY (tenant_id, id)
) WITH (cleave.shard_key = 'tenant_id');

CREATE TABLE items (
  tenant_id bigint NOT NULL, order_id integer, id integer NOT NULL, sku text, n integer, amount numeric(12,3),
  PRIMARY KEY (tenant_id, id)
) WITH (cleave.shard_key = 'tenant_id');

-- hash of a text
CREATE TABLE customers (
  email text PRIMARY KEY, name text, tenant bigint, country integer, age integer, balance numeric
) WITH (cleave.shard_key = 'email');

-- hash of a uuid
CREATE TABLE devices (
  id uuid PRIMARY KEY, owner text, kind text, tenant bigint, score integer, seen timestamp
) WITH (cleave.shard_key = 'id');

-- two columns
CREATE TABLE visits (
  region text NOT NULL, visitor bigint NOT NULL, pages integer, ref text, PRIMARY KEY (region, visitor)
) WITH (cleave.shard_key = 'region, visitor');

-- ranges of an integer
CREATE TABLE readings (
  sensor integer NOT NULL, seq integer NOT NULL, value integer, exact numeric, unit text, PRIMARY KEY (sensor, seq)
) WITH (cleave.shard_key = 'sensor', cleave.keyspace = 'by_sensor');

-- ranges of a time
CREATE TABLE events (
  at timestamp NOT NULL, id integer NOT NULL, kind text, tenant bigint, weight integer, PRIMARY KEY (at, id)
) WITH (cleave.shard_key = 'at', cleave.keyspace = 'by_time');

-- a list of texts
CREATE TABLE stock (
  class text NOT NULL, id integer NOT NULL, name text, pieces integer, price numeric(8,2), PRIMARY KEY (class, id)
) WITH (cleave.shard_key = 'class', cleave.keyspace = 'by_class');

-- on every shard
CREATE TABLE countries (id integer PRIMARY KEY, code text, name text, region text, big bigint) WITH (cleave.reference = true);

-- on the default shard
CREATE TABLE settings (id integer PRIMARY KEY, name text, value text, tenant bigint);

-- nothing is ever in it
CREATE TABLE nothing (k bigint PRIMARY KEY, a integer, c text) WITH (cleave.shard_key = 'k');

INSERT INTO orders SELECT t, i,
  (ARRAY['new', 'open', 'sent', NULL, 'Open'])[1 + (t * 3 + i) % 5],
  CASE WHEN (t + i) % 6 = 0 THEN NULL ELSE ((t * 7 + i * 3) % 9)::int - 2 END,
  CASE WHEN (t + 2 * i) % 7 = 0 THEN NULL ELSE ((t * 13 + i * 5) % 40) / 4.0 - 2 END,
  CASE WHEN (t * i) % 5 = 0 THEN NULL ELSE date '2024-01-28' + ((t * 11 + i * 17) % 40)::int END,
  timestamp '2024-01-31 20:00' + ((t * 5 + i * 7) % 30) * interval '3 hours 20 minutes',
  CASE (t + i) % 3 WHEN 0 THEN true WHEN 1 THEN false END,
  CASE WHEN i % 2 = 0 THEN NULL ELSE chr(97 + ((t + i) % 4)::int) || repeat('x', (i % 3)::int) END
FROM generate_series(1, 12) AS t, generate_series(1, 4) AS i WHERE (t + i) % 7 <> 0;

INSERT INTO items SELECT t, CASE WHEN (t + i) % 5 = 0 THEN NULL ELSE (i * 3 + t) % 5 END, i,
  'sku-' || ((t * 2 + i) % 6),
  CASE WHEN (t * i) % 4 = 3 THEN NULL ELSE ((t + i * 2) % 5)::int END,
  CASE WHEN (t + i) % 4 = 0 THEN NULL ELSE ((t * 31 + i * 17) % 100) * 0.125 END
FROM generate_series(1, 14) AS t, generate_series(1, 5) AS i WHERE (t * i) % 6 <> 5;

INSERT INTO customers SELECT lower(n) || '@' || (ARRAY['x.org', 'y.net'])[1 + i % 2], CASE WHEN i % 6 = 5 THEN NULL ELSE n END, CASE WHEN i % 7 = 3 THEN NULL ELSE 1 + i % 13 END,
  CASE WHEN i % 5 = 4 THEN NULL ELSE 1 + i % 7 END, CASE WHEN i % 8 = 2 THEN NULL ELSE 20 + (i * 7) % 9 END,
  CASE i % 4 WHEN 0 THEN NULL ELSE (i * 37 - 200)::numeric / (1 + i % 3) END
FROM unnest(ARRAY['Ada', 'bob', 'Cy', 'dora', 'Eve', 'fay', 'Gus', 'hal', 'Ida', 'jo', 'Kim', 'leo', 'Mia', 'ned', 'Öde', 'pat', 'Quy', 'ray', 'Sue', 'tom']) WITH ORDINALITY AS x(n, i);

INSERT INTO devices SELECT md5('device' || i)::uuid, CASE WHEN i % 5 = 0 THEN NULL ELSE 'owner' || i % 4 END, (ARRAY['phone', 'tablet', 'watch'])[1 + i % 3], CASE WHEN i % 6 = 0 THEN NULL ELSE 1 + i % 12 END,
  CASE WHEN i % 7 = 0 THEN NULL ELSE (i * 5) % 8 END, CASE WHEN i % 4 = 0 THEN NULL ELSE timestamp '2024-02-01' + (i * 7 % 13) * interval '11 hours' END
FROM generate_series(1, 24) AS i;

INSERT INTO visits SELECT r, v, CASE WHEN (v + length(r)) % 4 = 0 THEN NULL ELSE (v * 3 % 7)::int END, CASE WHEN v % 3 = 0 THEN NULL ELSE 'ref' || v % 2 END
FROM unnest(ARRAY['eu', 'us', 'asia', 'Eu', '']) AS r, generate_series(1, 6) AS v WHERE (v * length(r)) % 5 <> 4;

INSERT INTO readings SELECT s, q, CASE WHEN (s + q) % 5 = 0 THEN NULL ELSE (s * q) % 7 - 1 END, CASE WHEN (s * q) % 4 = 1 THEN NULL ELSE (s * 1000 + q) / 7.0 END, (ARRAY['C', 'F', NULL])[1 + (s + q) % 3]
FROM generate_series(0, 24) AS s, generate_series(1, 3) AS q WHERE (s + q) % 4 <> 0;

INSERT INTO events SELECT timestamp '2024-01-10' + i * interval '3 days 7 hours', i % 4, (ARRAY['in', 'out', 'err', NULL])[1 + i % 4], CASE WHEN i % 5 = 2 THEN NULL ELSE 1 + i % 9 END, CASE WHEN i % 3 = 0 THEN NULL ELSE i * 11 % 6 END
FROM generate_series(0, 40) AS i;

INSERT INTO stock SELECT c, i, CASE WHEN i = 3 THEN NULL ELSE (ARRAY['bolt', 'nut', 'gear', 'cog'])[1 + (i + length(c) + ascii(c)) % 4] END, CASE WHEN (i + ascii(c)) % 4 = 0 THEN NULL ELSE (i * ascii(c)) % 11 END,
  CASE WHEN (i * ascii(c)) % 5 = 2 THEN NULL ELSE (i * 75) / 100.0 END
FROM unnest(ARRAY['a', 'b', 'c', 'd']) AS c, generate_series(1, 6) AS i;

INSERT INTO countries VALUES (1, 'de', 'Germany', 'eu', 83000000), (2, 'fr', 'France', 'eu', 68000000), (3, 'us', 'United States', 'us', 330000000),
  (4, 'jp', 'Japan', 'asia', NULL), (5, 'xx', NULL, NULL, 0), (6, 'br', 'Brazil', 'us', 9000000000), (8, 'aq', 'Antarctica', NULL, NULL);

INSERT INTO settings VALUES (1, 'colour', 'red', 1), (2, 'colour', 'blue', 2), (3, 'size', NULL, 3), (4, NULL, 'big', NULL), (5, 'size', '7', 5), (6, 'limit', '100', 5);
