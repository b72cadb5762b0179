-- One time for all shards: schema changes that fill rows, words for the time in texts, arrays, COPY data and prepared statements; copies of reference tables.
-- engines: postgres

-- schema changes with rows
CREATE TABLE aged (k bigint PRIMARY KEY, v text, n int) WITH (cleave.shard_key = 'k');
INSERT INTO aged SELECT i, 'v' || i, i FROM generate_series(1, 30) i;
CREATE DOMAIN stamp AS timestamptz DEFAULT now();
CREATE DOMAIN frozen AS timestamptz DEFAULT 'now';
CREATE DOMAIN label AS text DEFAULT 'now';
CREATE TYPE urgency AS ENUM ('now', 'later');
-- foreach c: timestamptz DEFAULT now() NOT NULL | date DEFAULT current_date + 1 | text DEFAULT 'at ' || localtimestamp(0) | timestamptz DEFAULT 'now' | date DEFAULT 'tomorrow'::date | timestamp DEFAULT 'today 12:00' | text DEFAULT 'now' | timestamp DEFAULT (now() AT TIME ZONE 'utc') | date DEFAULT ('now'::text)::date | timestamp(0) DEFAULT CURRENT_TIMESTAMP | time DEFAULT 'now' | timetz DEFAULT current_time | frozen | label | stamp DEFAULT now() | label DEFAULT 'now' | frozen DEFAULT 'now' | timestamptz DEFAULT transaction_timestamp() - interval '1 day' | interval DEFAULT age(timestamp '2020-01-01') | timestamptz DEFAULT CASE WHEN now() > '2020-01-01' THEN now() END | bigint DEFAULT EXTRACT(EPOCH FROM now()) | urgency DEFAULT 'now' | timestamptz DEFAULT now() CHECK (c IS NOT NULL) | varchar(40) DEFAULT now()::text COLLATE "C"
-- block
ALTER TABLE aged ADD COLUMN c ${c};
SELECT count(*), count(c), count(DISTINCT c) FROM aged;
INSERT INTO aged (k) SELECT i FROM generate_series(101, 110) i;
SELECT count(*), count(c), count(DISTINCT c) FROM aged WHERE k > 100;
SELECT column_name, data_type, is_nullable, column_default IS NULL FROM information_schema.columns WHERE table_name = 'aged' ORDER BY ordinal_position;
DELETE FROM aged WHERE k > 100;
ALTER TABLE aged DROP COLUMN c;
-- end
ALTER TABLE aged ADD COLUMN c stamp;
ALTER TABLE aged ADD COLUMN c timestamptz DEFAULT statement_timestamp();
ALTER TABLE aged DROP COLUMN IF EXISTS c;
-- foreach u: now() | 'now' | v::text || now() | k + EXTRACT(DAY FROM current_date) | localtimestamp | CASE n WHEN 1 THEN now() ELSE now() END
-- block
ALTER TABLE aged ALTER COLUMN v TYPE text USING ${u};
SELECT count(*), count(DISTINCT right(v, 12)) < 31 FROM aged;
ALTER TABLE aged ALTER COLUMN v TYPE text USING 'v' || k;
-- end
-- block
ALTER TABLE aged ADD COLUMN a timestamptz DEFAULT now(), ADD COLUMN b date DEFAULT 'today', ADD COLUMN IF NOT EXISTS v text DEFAULT now(), ALTER COLUMN n SET DEFAULT 7, ADD CONSTRAINT positive CHECK (n > 0), ADD COLUMN r float8 DEFAULT random();
SELECT count(DISTINCT a), count(DISTINCT b), count(DISTINCT r), count(DISTINCT v) FROM aged;
INSERT INTO aged (k) SELECT i FROM generate_series(101, 110) i;
SELECT count(DISTINCT a), count(DISTINCT b), min(n) FROM aged WHERE k > 100;
ALTER TABLE aged ALTER COLUMN a SET DEFAULT 'now', ALTER COLUMN b SET DEFAULT 'tomorrow';
INSERT INTO aged (k) SELECT i FROM generate_series(201, 210) i;
SELECT count(DISTINCT a), count(DISTINCT b), bool_and(b > current_date) FROM aged WHERE k > 200;
DELETE FROM aged WHERE k > 100;
ALTER TABLE aged DROP COLUMN a, DROP COLUMN b, DROP COLUMN r, ALTER COLUMN n DROP DEFAULT, DROP CONSTRAINT positive;
-- end
-- block
CREATE TABLE fixed (k bigint PRIMARY KEY, a timestamptz DEFAULT 'now', b date DEFAULT 'today' NOT NULL, c frozen, d stamp, e text DEFAULT 'today' CHECK (e IN ('today', 'now')), f timestamptz CHECK (f > 'yesterday'::timestamptz), g time DEFAULT 'allballs') WITH (cleave.shard_key = 'k');
INSERT INTO fixed (k) SELECT i FROM generate_series(1, 20) i;
INSERT INTO fixed (k) VALUES (21), (22), (23), (24), (25);
COPY fixed (k) FROM STDIN;
31
32
33
\.
SELECT count(DISTINCT a), count(DISTINCT b), count(DISTINCT c), count(DISTINCT d), min(e), count(f), max(g) FROM fixed;
ALTER DOMAIN frozen SET DEFAULT now();
INSERT INTO fixed (k) VALUES (41), (42), (43), (44), (45);
SELECT count(DISTINCT c) FROM fixed WHERE k > 40;
DROP TABLE fixed;
-- end
CREATE TABLE never (k bigint PRIMARY KEY, a timestamptz[] DEFAULT '{now}') WITH (cleave.shard_key = 'k');
CREATE TABLE IF NOT EXISTS never (k bigint PRIMARY KEY, a timestamptz CHECK (a > 'now')) WITH (cleave.shard_key = 'k');
DROP TABLE IF EXISTS never;

-- reference tables: copies stay equal
CREATE TABLE places (id bigint PRIMARY KEY, name text, made timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, code uuid DEFAULT gen_random_uuid(), r float8 DEFAULT (ARRAY[random()])[1], seen timestamptz DEFAULT clock_timestamp()) WITH (cleave.reference = true);
-- block
INSERT INTO places (id, name) SELECT i, 'x' || i FROM generate_series(1, 5) i;
INSERT INTO places (id, name) VALUES (7, 'a'), (8, 'b') ON CONFLICT (id) DO UPDATE SET name = 'c';
INSERT INTO places (id, name) VALUES (7, 'a'), (9, 'b') ON CONFLICT (id) DO UPDATE SET name = 'c', code = DEFAULT;
INSERT INTO places (id, name, code) VALUES (10, 'a', DEFAULT), (11, 'b', gen_random_uuid());
INSERT INTO places (id) SELECT 20 + i FROM generate_series(1, 3) i RETURNING id;
SELECT count(*), count(DISTINCT made) > 0, count(DISTINCT code) = count(*), count(DISTINCT r) = count(*) FROM places;
UPDATE places SET made = DEFAULT, name = 'd';
SELECT count(DISTINCT made) FROM places;
UPDATE places SET made = 'now' WHERE id < 9;
UPDATE places SET name = now()::text WHERE id > 9;
ALTER TABLE places ADD COLUMN t timestamptz DEFAULT now(), ADD COLUMN w timestamptz DEFAULT 'now', ADD COLUMN d date DEFAULT ('now'::text)::date;
SELECT count(DISTINCT t), count(DISTINCT w), count(DISTINCT d) FROM places;
ALTER TABLE places ALTER COLUMN name TYPE text USING now()::text || id;
DELETE FROM places;
ALTER TABLE places ADD COLUMN e uuid DEFAULT gen_random_uuid();
INSERT INTO places (id) VALUES (1), (2), (3);
SELECT count(DISTINCT e) FROM places;
-- end
-- foreach c: uuid DEFAULT gen_random_uuid() | float8 DEFAULT random() | timestamptz DEFAULT clock_timestamp() | text DEFAULT (ARRAY[random()])[1]::text | text DEFAULT CASE WHEN random() > 0.5 THEN 'a' ELSE 'b' END | text DEFAULT concat(VARIADIC ARRAY[random()::text]) | serial | bigint GENERATED BY DEFAULT AS IDENTITY | stamp
ALTER TABLE places ADD COLUMN z ${c};
-- foreach u: random()::text | ctid::text | clock_timestamp()::text | name || gen_random_uuid() | COALESCE(NULLIF(random()::text, ''), name) | pg_backend_pid()::text
ALTER TABLE places ALTER COLUMN name TYPE text USING ${u};
-- what says something of a shard
-- foreach c: text DEFAULT inet_server_port()::text | oid DEFAULT 'places'::regclass | bigint DEFAULT ('places'::regclass)::oid::bigint | text DEFAULT 'at ' || inet_server_port() | text DEFAULT version()
ALTER TABLE places ADD COLUMN z ${c};
-- foreach u: name || inet_server_port() | 'places'::regclass::oid::text
ALTER TABLE places ALTER COLUMN name TYPE text USING ${u};
ALTER TABLE aged ADD COLUMN z text DEFAULT inet_server_port()::text;
ALTER TABLE aged ADD COLUMN z oid DEFAULT 'places'::regclass;
ALTER TABLE aged ALTER COLUMN v TYPE text USING inet_server_port()::text;
CREATE DOMAIN base AS text DEFAULT inet_server_port()::text;
-- block
ALTER TABLE places ADD COLUMN z text DEFAULT 'places'::regclass, ADD COLUMN y regclass DEFAULT 'places'::regclass, ADD COLUMN x text DEFAULT current_schema(), ADD COLUMN w2 name DEFAULT current_user::text::name;
INSERT INTO places (id) VALUES (60), (61);
SELECT count(DISTINCT z), min(z), count(DISTINCT y::text), min(x) FROM places;
ALTER TABLE aged ADD COLUMN z text DEFAULT 'places'::regclass, ADD COLUMN y regclass DEFAULT 'places'::regclass;
SELECT min(z), count(DISTINCT y::text) FROM aged;
ALTER TABLE aged ALTER COLUMN y DROP DEFAULT, ALTER COLUMN y TYPE text;
SELECT min(y) FROM aged;
ALTER TABLE aged ALTER COLUMN y TYPE regclass USING y::regclass;
SELECT count(*), min(y::text) FROM aged;
ALTER TABLE aged DROP COLUMN z;
DELETE FROM places WHERE id IN (60, 61);
ALTER TABLE places DROP COLUMN z, DROP COLUMN y, DROP COLUMN x, DROP COLUMN w2;
-- end
ALTER TABLE aged ALTER COLUMN y TYPE oid;
-- foreach u: y::oid | y::oid::text::bigint | COALESCE(y, 0)
ALTER TABLE aged ALTER COLUMN y TYPE bigint USING ${u};
ALTER TABLE aged DROP COLUMN y;
UPDATE places SET r = random();
UPDATE places SET code = DEFAULT;
UPDATE places SET name = clock_timestamp();
UPDATE places SET name = statement_timestamp();
MERGE INTO places USING (VALUES (30), (1)) x (i) ON places.id = x.i WHEN MATCHED THEN UPDATE SET name = 'm' WHEN NOT MATCHED THEN INSERT (id) VALUES (x.i);
COPY places (id, name) FROM STDIN;
40	q
\.
CREATE FUNCTION renamed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name := gen_random_uuid()::text; RETURN NEW; END $$;
CREATE TRIGGER renamed BEFORE INSERT ON places FOR EACH ROW EXECUTE FUNCTION renamed();
COPY places FROM STDIN (FORMAT csv);
41,q,2024-01-01,,1,2024-01-01,2024-01-01,2024-01-01,2024-01-01,
\.
INSERT INTO places (id) VALUES (42);
CREATE TYPE md AS ENUM ('a');
ALTER TABLE places ADD COLUMN h integer DEFAULT hashenum('a'::md);
DROP TABLE places;
DROP TYPE md;
DROP FUNCTION renamed();

-- words for the time that are plain texts
CREATE TABLE notes_of (k bigint PRIMARY KEY, a timestamptz, d date, v text, ts timestamp, arr timestamptz[], rng tstzrange, dom frozen DEFAULT NULL, j jsonb, tags text[], vc varchar(20), p urgency, tt time) WITH (cleave.shard_key = 'k');
INSERT INTO notes_of (k, a, d, v, ts, vc, tags, j) SELECT i, '2024-01-01', '2024-01-02', CASE WHEN i % 2 = 0 THEN 'now' ELSE 'do it now' END, '2024-01-03', 'today', ARRAY['now', 'x'], '{"state":"now"}' FROM generate_series(1, 20) i;
-- foreach c: v = 'now' | v IN ('now', 'do it now') | v LIKE '%now' AND v ~ 'now' | v || 'now' = 'nownow' | lower(v) = 'now' AND upper(vc) = 'TODAY' | j->>'state' = 'now' | j @> '{"state":"now"}' | 'now' = ANY (tags) | tags @> '{now}' | tags && ARRAY['now'] | vc = 'today' | COALESCE(v, 'now') = 'now' | CASE v WHEN 'now' THEN 'today' ELSE 'x' END = 'today' | v = ANY ('{now,today}') | v = ANY (ARRAY['now', 'today']) | (v, vc) = ('now', 'today') | v BETWEEN 'now' AND 'today' | v > 'now' | strpos(v, 'now') > 0 | concat(v, 'now') = 'nownow' | substring(v FROM 1 FOR 3) = 'now' | NULLIF(v, 'now') IS NULL | v IS DISTINCT FROM 'now' | 'now' = v | 'now' IN (v, vc) | v = 'now'::text | p IS NULL AND v = 'now' | array_position(tags, 'now') = 1 | to_char(a, 'YYYY now') = '2024 now' | regexp_replace(v, 'now', 'today') = 'today' | v SIMILAR TO 'now|today' | jsonb_build_object('now', v) IS NOT NULL | j = '{"state":"now"}'::jsonb | p::text = 'now' | v COLLATE "C" = 'now' | GREATEST(v, 'now') = 'now' | split_part(v, ' ', 3) = 'now' | trim(v) = 'now'
SELECT count(*), min(v), max(vc) FROM notes_of WHERE ${c};
SELECT DISTINCT 'now', concat('now', v) FROM notes_of ORDER BY 2;
SELECT v FROM notes_of UNION SELECT 'now' ORDER BY 1;
SELECT string_agg(DISTINCT v, 'now') FROM notes_of;
SELECT 'today' AS x, v FROM notes_of ORDER BY 2, k LIMIT 3;
SELECT x, count(*) FROM (SELECT 'now' AS x FROM notes_of) s GROUP BY x;
WITH w AS (SELECT 'now' AS x) SELECT count(*) FROM notes_of, w WHERE v = x;
SELECT count(*) FROM notes_of JOIN (VALUES ('now'), ('today')) w (x) ON v = x;
UPDATE notes_of SET v = 'now', vc = 'tomorrow', tags = '{now,today}', j = '{"a":"now"}' WHERE k < 5;
INSERT INTO notes_of (k, v, tags) VALUES (31, 'now', '{now}'), (32, 'today', '{today}'), (33, 'it is now or never', '{"right now"}');
INSERT INTO notes_of (k, v, vc) SELECT 40 + k, 'now', 'today' FROM notes_of WHERE k < 10;
INSERT INTO notes_of (k, v) VALUES (1, 'x'), (2, 'y') ON CONFLICT (k) DO UPDATE SET v = 'now';
MERGE INTO notes_of o USING (VALUES (1), (91), (92)) w (x) ON o.k = w.x WHEN MATCHED THEN UPDATE SET v = 'now' WHEN NOT MATCHED THEN INSERT (k, v) VALUES (w.x, 'today');
-- and those that are times
-- block
BEGIN;
UPDATE notes_of SET a = now(), d = current_date, ts = localtimestamp, arr = ARRAY[now()], rng = tstzrange(now(), NULL);
SELECT count(*) FROM notes_of WHERE ROW(now(), 1) = ROW('now', 1) AND (a, k) <= ('now', 100) AND a - 'now' = interval '0';
SELECT count(*) FROM notes_of WHERE ('now'::text)::timestamptz = a AND 'today'::text::date = d AND a IN ('now', 'yesterday') AND d NOT IN ('tomorrow');
SELECT count(*) FROM notes_of WHERE a = ANY (ARRAY['now', 'today']::timestamptz[]) AND CASE a WHEN 'now' THEN true ELSE false END AND a = (CASE WHEN k > 0 THEN 'now' ELSE a END);
SELECT count(DISTINCT x) FROM (SELECT a AS x FROM notes_of UNION ALL SELECT 'now' FROM notes_of) q;
SELECT count(*) FROM notes_of WHERE 'now' = a AND NOT a < 'now' AND a > 'today' AND a < 'tomorrow' AND ts BETWEEN 'today' AND 'tomorrow' AND 'yesterday' < d;
MERGE INTO notes_of o USING (VALUES (1), (101), (102)) w (x) ON o.k = w.x WHEN MATCHED THEN UPDATE SET a = 'now' WHEN NOT MATCHED THEN INSERT (k, a, d) VALUES (w.x, 'now', 'today');
UPDATE notes_of SET tt = 'now' WHERE k > 100;
SELECT count(DISTINCT a), count(DISTINCT d), count(DISTINCT tt) FROM notes_of;
ROLLBACK;
-- end
-- foreach c: a = ANY ('{now}') | rng @> '[now,now]' | a = 'now'::frozen | dom = 'now' | a > 'today 12:00' | '[yesterday,tomorrow]'::tstzrange @> a | arr = '{now}' | timestamptz('now') > a | a = ANY ('{2020-01-01,now}'::timestamptz[]) | p = 'now' | a < (VALUES ('now')) | tstzrange('now', NULL) @> a | rng = '[now,)' | jsonb_populate_record(NULL::notes_of, '{"a":"now"}') IS NULL | date_trunc('day', timestamptz 'now') = a | date 'tomorrow' - d > 3
SELECT count(*) FROM notes_of WHERE ${c} AND false;
-- foreach s: arr = '{now}' | rng = '[now,)' | arr[1] = 'now' | arr = ARRAY['now']::timestamptz[] | rng = tstzrange('now', NULL) | a = 'tomorrow 04:05'
-- block
BEGIN;
UPDATE notes_of SET ${s};
SELECT count(DISTINCT arr), count(DISTINCT rng), count(DISTINCT a) FROM notes_of;
ROLLBACK;
-- end

-- parameters
-- params: now | today | it is now
SELECT count(*) FROM notes_of WHERE v = $1 OR v || '' = $1;
-- params: now | yesterday | tomorrow | today
SELECT count(*) FROM notes_of WHERE a < $1 AND d < $1::text::date AND ts <= $1::text::timestamp;
-- params: tomorrow | 2024-01-02
SELECT count(*) FROM notes_of WHERE d = $1 OR a = $1::text::timestamptz;
-- params: now
SELECT count(*) FROM notes_of WHERE p = $1;
-- params: {now}
SELECT count(*) FROM notes_of WHERE a = ANY ($1);
-- params: {now,x}
SELECT count(*) FROM notes_of WHERE tags = $1;
-- params: now | nonsense | 2024-01-01
SELECT count(*) FROM notes_of WHERE tt = $1 OR a = $2;

-- COPY
-- block
BEGIN;
COPY notes_of (k, a, d, v, ts, arr, dom, p, vc) FROM STDIN;
141	now	today	now	tomorrow	\N	now	now	yesterday
142	NOW	tomorrow	do it now	now	{2020-01-01}	today	later	now
143	 now 	yesterday	\N	\N	\N	\N	\N	\N
144	2020-01-01	2020-01-01	x	\N	\N	\N	\N	\N
145	n\ow	t\od\ay	n\ow	\N	\N	\N	\N	\N
146	\156\157\167	\x74omo\x72row	\x6eow	\N	\N	\N	\N	\N
\.
SELECT k, v, vc, p, d - current_date, ts::date - current_date, dom::date - current_date, a = now() FROM notes_of WHERE k BETWEEN 141 AND 146 ORDER BY k;
COPY notes_of (k, v, a, tags) FROM STDIN (FORMAT csv, NULL 'none');
151,now,now,"{now,x}"
152,"now","now",none
153,none,none,none
154,today,"no""w",none
\.
ROLLBACK;
-- end
-- block
BEGIN;
COPY notes_of (k, v, a, tags) FROM STDIN (FORMAT csv, NULL 'none');
151,now,now,"{now,x}"
152,"now","now",none
153,none,none,none
\.
SELECT k, v, a = now(), tags FROM notes_of WHERE k BETWEEN 151 AND 154 ORDER BY k;
ROLLBACK;
-- end
-- block
BEGIN;
COPY notes_of (k, v, a, d) FROM STDIN (FORMAT csv, QUOTE 'q', ESCAPE 'o');
154,now,qnqooqwq,2020-01-01
155,qnowq,qnoqowq,qtqodqayq
\.
COPY notes_of (k, v, a, d) FROM STDIN (FORMAT csv);
156,now,"n"o"w",t"oda"y
157,"n\ow",2020-01-01,2020-01-01
\.
SELECT k, v, a = now(), d - current_date FROM notes_of WHERE k BETWEEN 154 AND 157 ORDER BY k;
ROLLBACK;
-- end
COPY notes_of (k, arr) FROM STDIN;
161	{now}
\.
COPY notes_of (k, arr) FROM STDIN;
161	{n\\ow}
\.
COPY notes_of (k, arr) FROM STDIN;
161	{"\156\\o\x5c\167"}
\.
COPY notes_of (k, arr) FROM STDIN (FORMAT csv);
161,"{""n\ow""}"
\.
COPY notes_of (k, rng) FROM STDIN (FORMAT csv);
161,"[n""""ow,)"
\.
SELECT count(k) FROM notes_of WHERE a > ANY (SELECT ts FROM jsonb_to_record('{"ts":"n\u006fw"}') AS x(ts timestamptz));
COPY notes_of (k, a) FROM STDIN;
161	today 12:00
\.
COPY notes_of (k, a, v) FROM STDIN;
161	nowhere	now
\.
COPY notes_of (k, tt) FROM STDIN;
161	today
\.

-- words in arguments of functions that take times
-- foreach x: age('now', a) > interval '1 year' | age(a, 'today') | age('now', 'today') < interval '2 days' | now() - date_bin('1 hour', 'now', 'today') < interval '2 hours' | date_bin('15 minutes', a, 'yesterday') < now() | date_trunc('day', 'tomorrow', 'utc') > now() | daterange('today', 'tomorrow') @> current_date | daterange(d, 'tomorrow') && daterange('yesterday', NULL) | tstzrange('today', 'now', '[]') @> now() - interval '1 day' | tsrange('yesterday', 'now') @> localtimestamp - interval '1 hour' | date('now') = current_date | now() - timestamptz('now') < interval '1 hour' | timestamptz('today') <= now() | timezone('utc', now()) - ('now' AT TIME ZONE 'utc') < interval '1 hour' | now() - lag(a, 1, 'now') OVER (PARTITION BY k) < interval '1 hour' | lead(d, 1, 'today') OVER (PARTITION BY k) | now() - (array_append(arr, 'now'))[1] < interval '1 hour' | array_prepend('today', arr) IS NULL | array_position(arr, 'now') | array_remove(arr, 'now') | array_replace(arr, 'now', 'today') | length('now') | upper('today') | age(timestamp '2020-01-01', 'yesterday') < interval '1 day' | age(d, 'today') < interval '1 day'
-- block
SELECT k, ${x} FROM notes_of WHERE k < 10 ORDER BY k;
BEGIN;
SELECT count(*) FROM notes_of;
SELECT k, ${x} FROM notes_of WHERE k = 3;
SELECT k, ${x} FROM notes_of WHERE k = 4;
COMMIT;
PREPARE called AS SELECT k, ${x} FROM notes_of WHERE k = $1;
EXECUTE called (3);
DEALLOCATE called;
-- end
SELECT count(*) FROM generate_series(now(), 'tomorrow', '1 day') g, notes_of;
PREPARE called AS SELECT age('now', now()) < interval '-40 ms', date_bin('1 microsecond', 'now', '2020-01-01') < now() - interval '40 ms', upper(tstzrange(NULL, 'now')) < now() - interval '40 ms', timestamptz('now') < now() - interval '40 ms', upper(tstzrange('[2020-01-01,now]')) < now() - interval '40 ms' FROM notes_of WHERE k = $1;
SELECT pg_sleep(0.05);
EXECUTE called (3);
EXECUTE called (4);
-- PREPARE reads the words, and EXECUTE its arguments
-- block
PREPARE w AS SELECT k, a < 'now', d = 'today', v = 'now' FROM notes_of WHERE k IN (1, 2, 3, $1) ORDER BY k;
EXECUTE w (4);
EXECUTE w (4.4);
PREPARE w1 (int) AS SELECT count(*) FROM notes_of WHERE k = $1 AND a < 'now' AND d <> 'today';
EXECUTE w1 (3);
PREPARE w2 AS SELECT 'now'::timestamptz AS t;
BEGIN;
SELECT t < clock_timestamp() AS before FROM (SELECT now() AS t) x;
ROLLBACK;
DEALLOCATE w2;
-- end
-- block
PREPARE q1 AS SELECT ('{now}'::timestamptz[])[1] < now() - interval '40 ms', upper('(,now]'::tstzrange) < now() - interval '40 ms', lower('(today,now]'::tstzrange) < now(), timestamptz 'now utc' < now() - interval '40 ms', 'now'::frozen < now() - interval '40 ms',
  'now'::urgency, 'now'::label, ('{{NULL,now},{2024-01-01 10:00:00+00,now}}'::timestamptz[])[2][1], E'now'::timestamp < localtimestamp - interval '40 ms', '{now}'::text[], array_lower('{now,NULL}'::date[], 1), '[now,]'::daterange @> current_date FROM notes_of WHERE k = 3;
PREPARE q2 AS INSERT INTO notes_of (k, arr, rng, ts, p, dom) VALUES (3001, '{now,yesterday}', '[today,now)', 'today 12:00', 'now', 'now') RETURNING arr[1] < now() - interval '40 ms', arr[2] < now() - interval '20 hours', upper(rng) < now() - interval '40 ms', ts - current_date, p, dom < now() - interval '40 ms';
PREPARE q3 (int) AS SELECT count(*) FROM notes_of WHERE k = $1 AND arr <= '{now}' AND rng && '[yesterday,now]' AND ts < ANY ('{2020-01-01,"tomorrow 12:00"}') AND arr @> '{"yesterday"}' AND ts < 'tomorrow 04:05' AND p = 'now';
PREPARE q4 AS SELECT count(*), bool_and(('{now}'::timestamptz[])[1] < now() - interval '40 ms') FROM notes_of;
SELECT pg_sleep(0.05);
EXECUTE q1;
SET datestyle = 'German, DMY';
EXECUTE q2;
EXECUTE q3 (3001);
RESET datestyle;
EXECUTE q4;
DELETE FROM notes_of WHERE k = 3001;
-- end
PREPARE q5 AS SELECT '{[now,)}'::tstzmultirange FROM notes_of WHERE k = 3;
-- block
PREPARE i AS SELECT count(*) FROM notes_of WHERE k = $1;
EXECUTE i (4.5);
EXECUTE i (1 + 1);
EXECUTE i ('4');
EXECUTE i (length('x' || 'yz'));
EXECUTE i (CASE WHEN true THEN 3 END);
EXECUTE i (-3);
EXECUTE i (- 3.5);
EXECUTE i (NULL);
EXECUTE i (NULL::int);
EXECUTE i (3::smallint);
EXECUTE i (3e0);
EXECUTE i ('3'::text);
EXECUTE i (true);
EXECUTE i (true::int);
EXECUTE i (now());
EXECUTE i (k);
EXECUTE i (count(*));
EXECUTE i (row_number() OVER ());
EXECUTE i (1 / 0);
EXECUTE i ('x');
EXECUTE i (9999999999999999999999);
EXECUTE i (ARRAY[1]);
EXECUTE i (nope(1));
EXECUTE i (1, 2);
EXECUTE i;
EXECUTE i (generate_series(1, 2));
EXECUTE i ((SELECT 1));
-- end
-- block
PREPARE t (text, date, numeric(4,1), boolean, text[], timestamptz, varchar(2)) AS SELECT $1 || '|', $2, $3, $4, $5, $6 IS NULL, $7 FROM notes_of WHERE k IN (1, 2) ORDER BY k;
EXECUTE t (5, '2024-01-01', 4.55, true, '{a,b}', now(), 'abc');
EXECUTE t (now()::date - now()::date, date '2024-01-01' + 1, 3, 1 = 1, ARRAY['x', 'y'], NULL, 7);
EXECUTE t (upper('x'), timestamp '2024-01-01 05:00', 10 / 4, NOT true, string_to_array('a,b', ','), timestamptz '2024-01-01', NULL);
EXECUTE t (1.50, '2024-01-01', '1', 'yes', NULL, '2024-01-01', true);
EXECUTE t (true, 5, 1, true, NULL, NULL, NULL);
EXECUTE t ('x', NULL, true, true, NULL, NULL, NULL);
EXECUTE t ('x', NULL, NULL, 1, NULL, NULL, NULL);
EXECUTE t ('x', NULL, NULL, NULL, 1, NULL, NULL);
EXECUTE t (interval '1 day', NULL, NULL, NULL, NULL, current_date, NULL);
-- end
-- block
PREPARE s (smallint, real, double precision, bigint, uuid, bytea, json, interval) AS SELECT $1, $2, $3, $4, $5, $6, $7, $8 FROM notes_of WHERE k IN (1, 2);
EXECUTE s (1.5, 1, 2.5, 2.5, '00000000-0000-0000-0000-000000000001', '\x01', '{}', '1 day');
EXECUTE s (70000, 1, 2.5, 2.5, NULL, NULL, NULL, NULL);
EXECUTE s (1, 0.1 + 0.2, 0.1::float8 + 0.2, 7, NULL, NULL, NULL, now() - now());
EXECUTE s (1, 1, 1, 1, 5, NULL, NULL, NULL);
EXECUTE s (1, 1, 1, 1, NULL, 5, NULL, NULL);
-- end
PREPARE one AS INSERT INTO notes_of (k, n, v, vc) VALUES ($1, $1, $2, $3);
-- block
BEGIN;
PREPARE one AS INSERT INTO notes_of (k, v, vc, a) VALUES ($1, $2, $3, $4);
EXECUTE one (200 + 1, 5, true, now());
EXECUTE one (202.4, current_date - current_date, 'x' || 'y', now());
EXECUTE one ('203', NULL, 1.50, CURRENT_TIMESTAMP);
SELECT k, v, vc, a = now() FROM notes_of WHERE k > 200 ORDER BY k;
EXECUTE one (204, 1, 2, 3);
ROLLBACK;
-- end

-- other columns than when it was prepared
-- block
PREPARE c AS SELECT * FROM notes_of WHERE k = $1;
PREPARE c2 AS SELECT k, v FROM notes_of WHERE k = $1;
PREPARE c3 AS SELECT * FROM notes_of ORDER BY k LIMIT 1;
ALTER TABLE notes_of ADD COLUMN more int;
EXECUTE c (3);
EXECUTE c2 (3);
EXECUTE c3;
ALTER TABLE notes_of DROP COLUMN more;
EXECUTE c (3);
-- end
-- block
CREATE TEMP TABLE pinned (x int);
PREPARE c4 AS SELECT * FROM notes_of WHERE k = $1;
ALTER TABLE notes_of ADD COLUMN more int;
BEGIN;
EXECUTE c4 (3);
ROLLBACK;
EXECUTE c4 (3);
SELECT count(*) FROM pinned;
ALTER TABLE notes_of DROP COLUMN more;
DROP TABLE pinned;
-- end
DROP TABLE notes_of;

-- volatile functions, defaults and moves of rows
-- block
ALTER TABLE aged ADD COLUMN g text GENERATED ALWAYS AS (v || 'now') STORED;
SELECT count(DISTINCT g), min(g) FROM aged;
INSERT INTO aged (k, v) VALUES (50, 'a'), (51, 'b'), (52, 'now') RETURNING g;
ALTER TABLE aged DROP COLUMN g;
DELETE FROM aged WHERE k > 49;
-- end
CREATE FUNCTION clock_of_mine() RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT now()';
ALTER TABLE aged ADD COLUMN z timestamptz DEFAULT clock_of_mine();
ALTER TABLE aged DROP COLUMN IF EXISTS z;
ALTER TABLE aged ALTER COLUMN v SET DEFAULT clock_of_mine();
ALTER TABLE aged ALTER COLUMN v TYPE text USING clock_of_mine()::text;
ALTER TABLE aged ALTER COLUMN v TYPE text USING 'v' || k;
ALTER TABLE aged ALTER COLUMN v DROP DEFAULT;
DROP FUNCTION clock_of_mine();

-- user-defined functions: defaults of parameters, words in PL/pgSQL, the session, names of PostgreSQL's own
CREATE FUNCTION late(n int DEFAULT 0, t timestamptz DEFAULT now()) RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT t';
CREATE FUNCTION base(t text DEFAULT inet_server_port()::text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT t';
CREATE FUNCTION worded() RETURNS timestamptz STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 'now'; END $$;
CREATE FUNCTION declared() RETURNS timestamptz STABLE LANGUAGE plpgsql AS $$ DECLARE y text = 'now'; x timestamptz := y; BEGIN RETURN x; END $$;
CREATE FUNCTION recorded() RETURNS timestamptz STABLE LANGUAGE sql AS $$ SELECT ts FROM jsonb_to_record('{"ts":"now"}') AS x(ts timestamptz) $$;
CREATE FUNCTION drawn(x uuid DEFAULT gen_random_uuid()) RETURNS uuid IMMUTABLE LANGUAGE sql AS 'SELECT x';
CREATE FUNCTION labelled() RETURNS text STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 'now'; END $$;
CREATE FUNCTION early(t timestamptz DEFAULT 'now') RETURNS timestamptz IMMUTABLE LANGUAGE sql AS 'SELECT t';
CREATE FUNCTION atomic(a int, b int DEFAULT 2) RETURNS int STABLE BEGIN ATOMIC SELECT a + b; END;
CREATE FUNCTION returned(a int) RETURNS int STABLE RETURN a * 2;
ALTER TABLE aged ADD COLUMN z timestamptz, ADD COLUMN q uuid;
-- foreach f: late() | late(1, now()) | worded() | declared() | recorded()
-- block
UPDATE aged SET z = ${f};
SELECT count(DISTINCT z) FROM aged;
INSERT INTO aged (k, z) VALUES (51, ${f}), (52, ${f}), (53, now());
SELECT count(DISTINCT z) FROM aged WHERE k > 50;
DELETE FROM aged WHERE k > 50;
-- end
SELECT count(*) FROM aged WHERE late() <> now();
SELECT late(1, now()) = now(), count(*) FROM aged GROUP BY 1;
-- foreach f: late() | base()::timestamptz | worded() | drawn()::text::timestamptz
ALTER TABLE aged ALTER COLUMN z SET DEFAULT ${f};
CREATE TABLE copied (id bigint PRIMARY KEY) WITH (cleave.reference = true);
INSERT INTO copied VALUES (1), (2), (3);
-- foreach f: timestamptz DEFAULT late() | timestamptz DEFAULT worded() | text DEFAULT base() | uuid DEFAULT drawn() | timestamptz DEFAULT late(1, '2020-01-01')
-- block
ALTER TABLE copied ADD COLUMN z ${f};
SELECT count(DISTINCT z) FROM copied;
ALTER TABLE copied DROP COLUMN z;
-- end
CREATE FUNCTION stamped() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.z := now(); RETURN NEW; END $$;
-- block
CREATE TRIGGER stamped BEFORE INSERT OR UPDATE ON copied FOR EACH ROW EXECUTE FUNCTION stamped();
INSERT INTO copied VALUES (4);
-- end
DROP TABLE copied;
-- block
UPDATE aged SET q = drawn();
SELECT count(DISTINCT q) FROM aged;
SELECT count(*), min(labelled()) FROM aged WHERE labelled() <> 'x';
SELECT k, atomic(n), returned(n) FROM aged ORDER BY k LIMIT 5;
-- end
-- block
ALTER TABLE aged DROP COLUMN z, DROP COLUMN q;
-- end
CREATE FUNCTION lasting(text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('my.tenant', $1, false); RETURN 1; END $$;
CREATE FUNCTION lasting_too(text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SELECT set_config(''my.tenant'', $1, false)' USING $1; RETURN 1; END $$;
SELECT lasting('a') FROM aged WHERE k = 1;
SELECT count(lasting('a')) FROM aged;
SELECT lasting_too('a') FROM aged WHERE k = 1;
SELECT lasting_too('a');
CREATE FUNCTION public.now() RETURNS timestamptz IMMUTABLE LANGUAGE sql AS $$ SELECT timestamptz '2000-01-01' $$;
CREATE FUNCTION public.transaction_timestamp() RETURNS timestamptz IMMUTABLE LANGUAGE sql AS $$ SELECT timestamptz '2000-01-01' $$;
CREATE FUNCTION public.age(timestamp) RETURNS interval IMMUTABLE LANGUAGE sql AS $$ SELECT interval '1 day' $$;
-- foreach f: now()::date | public.now()::date | transaction_timestamp()::date | age(timestamp '2020-01-01') | public.age(timestamp '2020-01-01') | pg_catalog.now() > '2020-01-01'
-- block
SET search_path = public, pg_catalog;
SELECT DISTINCT ${f} FROM aged;
RESET search_path;
-- end
-- block
SET search_path = public, pg_catalog;
SELECT count(*) FROM aged WHERE k < 9 AND ${f}::text <> 'x' GROUP BY ${f};
RESET search_path;
-- end
-- block
SET search_path = public, pg_catalog;
SELECT ${f} FROM aged WHERE k = 3;
UPDATE aged SET v = ${f}::text;
SELECT DISTINCT v FROM aged;
RESET search_path;
UPDATE aged SET v = 'v' || k;
-- end
RESET search_path;
DROP FUNCTION public.now(), public.transaction_timestamp(), public.age(timestamp);
-- block
BEGIN;
ALTER TABLE aged ADD COLUMN z timestamptz DEFAULT now();
SELECT z = now() FROM aged WHERE k = 3;
ROLLBACK;
-- end
-- block
BEGIN;
SELECT now() = now() FROM aged WHERE k = 3;
ALTER TABLE aged ADD COLUMN z timestamptz DEFAULT now(), ADD COLUMN y timestamptz DEFAULT 'now';
SELECT z = now(), y = now() FROM aged WHERE k = 3;
ROLLBACK;
-- end
-- block
SELECT count(DISTINCT x) = count(*) FROM (SELECT gen_random_uuid() AS x FROM aged) s;
SELECT count(DISTINCT now()) FROM aged;
UPDATE aged SET v = gen_random_uuid();
SELECT count(DISTINCT v) FROM aged;
UPDATE aged SET v = 'v' || k;
-- end
DROP TABLE aged;
-- texts of rows that are cast when a statement runs: exact without words for the time, refused with them
CREATE TABLE typed (k bigint PRIMARY KEY, ts timestamptz, d date, dom frozen DEFAULT NULL, arr timestamptz[], note text) WITH (cleave.shard_key = 'k');
CREATE TABLE said (k bigint PRIMARY KEY, t text, v varchar(40), c char(30), lang text, j jsonb, js json, list text[], arr text, rng text, note text, ts timestamptz, d date) WITH (cleave.shard_key = 'k');
INSERT INTO said SELECT i, to_char(timestamptz '2024-03-01 10:00:00+00' + i * interval '31 hours', 'YYYY-MM-DD HH24:MI:SS+00'), to_char(date '2024-01-01' + i, 'FMDay DD FMMonth YYYY'), '2024-05-' || lpad((i % 28 + 1)::text, 2, '0'),
  'January 8, 2024 ' || i % 12 || ':30 PM', jsonb_build_object('at', date '2024-01-01' + i, 'note', CASE WHEN i % 3 = 0 THEN 'do it now' ELSE 'know tomorrowland' END, 'now', i), json_build_object('at', date '2024-02-01' + i % 9, 'n', 'it is now'),
  ARRAY['2024-01-0' || i % 9 + 1, '2024-02-02'], '{2024-01-01 00:00,"2024-01-02 0' || i % 10 || ':00"}', '[2024-01-01,2024-02-0' || i % 9 + 1 || ')', CASE WHEN i % 2 = 0 THEN 'now' ELSE 'tomorrow never knows' END, now(), '2024-01-02' FROM generate_series(1, 30) i;
-- foreach x: t::timestamptz | t::timestamptz(0)::date | CAST(v AS date) | date(t) | c::date | date(c) | lang::timestamp | (j->>'at')::date | (js->>'at')::timestamp | (j#>>'{at}')::date | (j->'at')::text::jsonb->>0 | substr(t, 1, 10)::date | left(t, 10)::date + 1 | (t::timestamptz)::time | timestamptz(t) | list::date[] | (list[1])::date | arr::timestamptz[] | rng::daterange | rng::tstzrange | upper(rng::daterange) | COALESCE(t, v)::timestamptz::date | COALESCE(j->>'no', j->>'at', '2024-01-01')::date | NULLIF(t, '')::timestamptz | (CASE WHEN k < 10 THEN t ELSE v END)::date | ARRAY[t, v]::date[] | ARRAY[c, '2024-01-01']::date[] | (t || '')::timestamptz | (SELECT t)::date | (SELECT x FROM (SELECT t AS x) s)::date | t::frozen | j->>'at'::text | ts::date | date(ts) | (t::timestamptz AT TIME ZONE 'utc')::date | EXTRACT(YEAR FROM t::timestamptz) | to_char(t::timestamptz, 'YYYY') | '2024-01-01'::text::date | ('2024-01-' || (k % 9 + 1))::date | note::text::varchar | note::label | lower(t)::timestamptz | to_date(t, 'YYYY-MM-DD')::timestamp | d::text::date | ts::text::timestamptz::date | concat(t)::timestamptz | current_setting('x.y', true)::date | split_part(t, ' ', 1)::date | date_trunc('day', t::timestamptz)::date | (lag(t, 0) OVER (PARTITION BY k))::date
SELECT k, ${x} FROM said WHERE k < 25 ORDER BY k;
SELECT count(*), count(DISTINCT ${x}) FROM said WHERE ${x} IS NOT NULL;
-- foreach x: t::timestamptz::date | date(c) | (j->>'at')::date | v::date | (t || '')::date | x::date
SELECT ${x}, count(*) FROM (SELECT t, c, j, v, j->>'at' AS x FROM said) s GROUP BY ${x} ORDER BY ${x};
SELECT ${x}, count(*) FROM (SELECT t, c, j, v, j->>'at' AS x FROM said) s GROUP BY 1 ORDER BY 2, 1 LIMIT 5;
SELECT DISTINCT ${x} FROM (SELECT t, c, j, v, j->>'at' AS x FROM said) s ORDER BY ${x};
SELECT DISTINCT ON (${x}) ${x}, 1 FROM (SELECT t, c, j, v, j->>'at' AS x FROM said) s ORDER BY ${x};
SELECT ${x}, rank() OVER (ORDER BY ${x}) FROM (SELECT t, c, j, v, j->>'at' AS x FROM said) s ORDER BY 1;
SELECT max(${x}), min(${x} - 1), array_agg(DISTINCT ${x} ORDER BY ${x}) FROM (SELECT t, c, j, v, j->>'at' AS x FROM said) s;
SELECT a.k, b.k FROM said a, (SELECT k, t, c, j, v, j->>'at' AS x FROM said) b WHERE a.d = ${x} ORDER BY 1, 2 LIMIT 3;
-- foreach x: t::timestamptz::date | date(c) | (j->>'at')::date | v::date
SELECT k FROM said WHERE ${x} BETWEEN '2024-01-05' AND '2024-05-20' ORDER BY ${x} DESC, k LIMIT 7;
SELECT count(*), sum(CASE WHEN ${x} > d THEN 1 END), max(${x}) FROM said HAVING max(${x}) > '2024-01-01';
SELECT max(t)::timestamptz, min(v)::date, max(t::timestamptz)::date, string_agg(c, '' ORDER BY k)::text FROM said WHERE k < 4;
SELECT count(*) FROM said a JOIN typed b ON b.ts = a.t::timestamptz;
SELECT sub.* FROM (SELECT k, t::date, v::date AS dv FROM said ORDER BY k LIMIT 4) sub ORDER BY 1;
SELECT jsonb_array_elements_text('["2024-01-01","2024-01-02"]'::jsonb)::date, k FROM said WHERE k < 4 ORDER BY 2, 1;
SELECT unnest(list)::date, k FROM said WHERE k < 5 ORDER BY 2, 1;
SELECT x.at, x.note, k FROM said, jsonb_to_record(j) AS x(at date, note text) ORDER BY k;
SELECT x.at, k FROM said, json_to_record(js) AS x(at date, n text) ORDER BY k LIMIT 5;
SELECT x.note, k FROM said, jsonb_to_record(j) AS x(note text) ORDER BY k LIMIT 5;
SELECT (jsonb_populate_record(NULL::typed, j || '{"note":"now","ts":"2024-01-01"}')).ts FROM said WHERE k < 4 AND note <> 'now';
SELECT (jsonb_populate_record(NULL::typed, jsonb_build_object('k', k, 'd', j->'at', 'note', 'now or never'))).d FROM said ORDER BY k LIMIT 4;
SELECT k, (ROW(k, t, v, NULL, NULL, note)::typed).ts FROM said WHERE k < 4 ORDER BY k;
CREATE VIEW dated AS SELECT k, t::timestamptz AS at, date(v) AS on_day, j FROM said;
SELECT k, at, on_day FROM dated WHERE at > '2024-03-10' ORDER BY at LIMIT 3;
SELECT on_day, count(*) FILTER (WHERE (j->>'at')::date > '2024-01-09') FROM dated GROUP BY on_day HAVING max((j->>'at')::date) > '2024-01-05' ORDER BY 1;
SELECT v::date, c::date, count(*) FROM said GROUP BY GROUPING SETS ((v::date), (c::date), ()) ORDER BY 1, 2;
SELECT k, count(*) OVER (PARTITION BY c::date ORDER BY t::timestamptz) FROM said ORDER BY k;
SELECT t::date AS t, v AS t2 FROM said ORDER BY t, 2 LIMIT 3;
WITH RECURSIVE r AS (SELECT min(v)::date AS x FROM said UNION ALL SELECT x + 1 FROM r WHERE x < (SELECT max(c)::date FROM said)) SELECT count(*), max(x) FROM r;
SELECT k FROM said o WHERE EXISTS (SELECT 1 FROM said i WHERE i.c::date = o.c::date AND i.k <> o.k) ORDER BY k;
SELECT k, (SELECT max(i.t::timestamptz) FROM said i WHERE i.v::date <= o.v::date) FROM said o ORDER BY k LIMIT 4;
SELECT t::date FROM said INTERSECT SELECT (j->>'at')::date + 60 FROM said ORDER BY 1;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY t::timestamptz), count(DISTINCT v::date) FROM said;
SELECT DISTINCT s.x FROM said, LATERAL (SELECT v::date AS x) s ORDER BY 1 LIMIT 3;
SELECT row_to_json(s) FROM (SELECT k, t::date, (j->>'at')::date FROM said) s ORDER BY k LIMIT 2;
SELECT t::date, k FROM said UNION ALL SELECT d, 0 FROM said WHERE k < 3 ORDER BY 1, 2;
SELECT 'x'::date FROM said;
SELECT note::date FROM said;
SELECT (k || 'x')::date FROM said WHERE k > 100;
DROP VIEW dated;
-- params: 2024-01-05 | 2024-01-06T00:00:00Z
SELECT count(*) FROM said WHERE t::timestamptz > $1 AND v::date <> $1::text::date AND ($2 || '')::timestamptz > ts::text::timestamptz;
-- block
BEGIN;
INSERT INTO typed (k, ts, d) SELECT k, t::timestamptz, (j->>'at')::date FROM said;
INSERT INTO typed (k, ts, d) SELECT k + 100, t::timestamptz, max(v)::date FROM said GROUP BY 1, 2;
INSERT INTO typed (k, ts, d) VALUES (201, ('2024' || '-01-01')::timestamptz, date('2024-01-01'::text)), (202, now(), ('{"a":"2024-01-02"}'::jsonb->>'a')::date), (203, lower('2024-01-01T00:00:00Z')::timestamptz, DEFAULT)
  ON CONFLICT (k) DO UPDATE SET d = (excluded.d::text || '')::date RETURNING k, d, (ts::text || '')::date;
UPDATE said SET ts = t::timestamptz, d = CAST(v AS date) RETURNING k, (c || '')::date;
UPDATE typed SET d = s.v::date FROM said s WHERE s.k = typed.k AND s.t::timestamptz < '2024-03-20';
DELETE FROM typed WHERE d < ANY (SELECT c::date - 100 FROM said) AND k > 120;
MERGE INTO typed USING said s ON typed.k = s.k WHEN MATCHED THEN UPDATE SET ts = s.t::timestamptz WHEN NOT MATCHED THEN INSERT (k, d) VALUES (s.k, s.v::date);
SELECT count(DISTINCT ts), count(DISTINCT d), max(d), min(ts) FROM typed WHERE k <> 202;
ALTER TABLE said ALTER COLUMN t TYPE timestamptz USING t::timestamptz, ALTER COLUMN v TYPE date USING date(v), ALTER COLUMN arr TYPE timestamptz[] USING arr::timestamptz[], ADD COLUMN z date DEFAULT ('2024' || '-01-01')::date;
SELECT count(DISTINCT t), max(v), min(arr), max(z) FROM said;
ROLLBACK;
-- end
-- block
BEGIN;
DECLARE c CURSOR FOR SELECT k, t::date FROM said ORDER BY k;
FETCH 3 FROM c;
ROLLBACK;
PREPARE p (text) AS SELECT count(*) FROM said WHERE t::timestamptz > $1::timestamptz;
EXECUTE p ('2024-03-10');
DEALLOCATE p;
COPY (SELECT k, t::date FROM said ORDER BY k) TO STDOUT;
-- end
-- block
BEGIN;
SELECT count(*) FROM said;
SELECT t::timestamptz, (j->>'at')::date FROM said WHERE k = 3;
SELECT t::timestamptz, (j->>'at')::date FROM said WHERE k = 4;
SELECT t::timestamptz, x.at FROM said, jsonb_to_record(j) AS x(at date) WHERE k = 5;
UPDATE said SET ts = t::timestamptz WHERE k = 6 RETURNING ts, date(t);
INSERT INTO typed (k, ts) VALUES (301, ('2024' || '-01-01')::timestamptz) RETURNING (d::text || '')::date;
ROLLBACK;
-- end
-- and with words
UPDATE said SET t = CASE k % 4 WHEN 0 THEN 'now' WHEN 1 THEN ' Today ' WHEN 2 THEN 'TOMORROW 12:00' ELSE 'now12:00' END, v = 'yesterday', c = 'now', list = '{now,"x"}', arr = '{"now",2024-01-01}', rng = '[today,tomorrow)', j = '{"at":"now","d":"today utc","note":"x"}', js = '{"at":"\u006eow"}';
-- foreach x: t::timestamptz | CAST(t AS timestamp) | date(v) | v::date | c::timestamptz | (j->>'at')::timestamptz | (j#>>'{d}')::date | list::timestamptz[] | (list[1])::timestamptz | arr::timestamptz[] | rng::tstzrange | COALESCE(j->>'no', v)::date | ARRAY[c]::timestamptz[] | (SELECT c)::timestamptz | c::frozen | ('n' || 'ow')::timestamptz | lower('NOW' || left(note, 0))::timestamptz | unnest(list)::timestamptz | (ROW(k, c, v, NULL, NULL, note)::typed).ts | jsonb_populate_record(NULL::typed, '{"ts":"now"}'::jsonb || jsonb_build_object('k', k)) | (jsonb_populate_record(NULL::typed, jsonb_build_object('ts', c))).ts | replace(arr, 'now', 'n\ow')::timestamptz[] | (timestamptz '2024-01-01' < c::timestamptz)::text | (lag(c, 0) OVER (PARTITION BY k))::timestamptz | max(c) OVER (PARTITION BY k)::timestamptz
SELECT count(DISTINCT ${x}) FROM said;
SELECT DISTINCT ${x} FROM said;
SELECT count(DISTINCT x.at) FROM said, jsonb_to_record(j) AS x(at timestamptz);
SELECT count(DISTINCT x.at) FROM said, json_to_record(js) AS x(at timestamptz, n text);
SELECT count(DISTINCT x.at) FROM said, jsonb_to_record(jsonb_build_object('at', replace(arr, 'now', 'n\ow'))) AS x(at timestamptz[]);
SELECT count(DISTINCT x.at) FROM said, LATERAL jsonb_to_recordset(jsonb_build_array(jsonb_build_object('at', replace(arr, 'now', '"n\ow"')))) AS x(at timestamptz[]);
SELECT count(DISTINCT x.d) FROM said, LATERAL jsonb_to_recordset(jsonb_build_array(j)) AS x(d timestamptz);
SELECT count(DISTINCT x::timestamptz) FROM (SELECT c AS x FROM said) s;
SELECT count(DISTINCT x::timestamptz) FROM (SELECT max(c) AS x FROM said GROUP BY k) s;
SELECT count(DISTINCT max(c)::timestamptz) OVER () FROM said GROUP BY k LIMIT 1;
SELECT CASE WHEN btrim(c) = 'now' THEN date '2024-01-01' ELSE c::date END, count(*) FROM said GROUP BY 1;
SELECT count(*) FROM said WHERE t::timestamptz = '2024-01-01' AND false;
SELECT count(x.note) FROM said, jsonb_to_record(j) AS x(note text);
-- foreach s: UPDATE said SET ts = c::timestamptz | UPDATE said SET d = date(v) | INSERT INTO typed (k, ts) SELECT k, c::timestamptz FROM said | INSERT INTO typed (k, ts) SELECT k + 7, max(c)::timestamptz FROM said GROUP BY k | INSERT INTO typed (k, ts) VALUES (1, ('n' || 'ow')::timestamptz), (2, ('{"a":"now"}'::jsonb->>'a')::timestamptz), (3, lower('NOW')::timestamptz) | INSERT INTO typed (k, note) VALUES (1, 'now'), (2, 'now'), (3, 'now'), (4, 'now'), (1, 'now') ON CONFLICT (k) DO UPDATE SET ts = excluded.note::timestamptz | MERGE INTO typed USING said s ON typed.k = s.k WHEN NOT MATCHED THEN INSERT (k, ts) VALUES (s.k, s.c::timestamptz) | ALTER TABLE said ALTER COLUMN c TYPE timestamptz USING c::timestamptz | ALTER TABLE said ADD COLUMN z int, ALTER COLUMN t TYPE date USING date(c) | INSERT INTO typed SELECT x.* FROM said, jsonb_populate_record(NULL::typed, jsonb_build_object('k', k, 'ts', c)) x
-- block
BEGIN;
${s};
SELECT count(DISTINCT ts), count(DISTINCT d) FROM said;
SELECT count(DISTINCT ts) FROM typed;
ROLLBACK;
-- end
-- block
BEGIN;
SELECT c::timestamptz = now() FROM said WHERE k = 3;
SELECT c::timestamptz = now() FROM said WHERE k = 4;
SELECT c::timestamptz = now() FROM said WHERE k = 5;
SELECT c::timestamptz = now() FROM said WHERE k = 6;
ROLLBACK;
-- end
UPDATE said SET c = now()::text WHERE c = 'now';
SELECT count(DISTINCT c::timestamptz) FROM said;
DROP TABLE said, typed;
-- the same in bodies of functions: who calls them looks at what they cast; those that may make a word are refused
CREATE FUNCTION read_day(t text) RETURNS date STABLE LANGUAGE sql AS 'SELECT t::date';
CREATE FUNCTION read_first(t text, label text DEFAULT 'x') RETURNS timestamptz STABLE LANGUAGE sql AS $$ SELECT split_part(t, '|', 1)::timestamptz $$;
CREATE FUNCTION read_code(t text) RETURNS timestamptz STABLE LANGUAGE plpgsql AS $$ DECLARE x timestamptz; BEGIN IF t IS NULL THEN RETURN NULL; END IF; x := t; RETURN x; END $$;
CREATE FUNCTION read_json(j jsonb) RETURNS timestamptz STABLE LANGUAGE sql AS $$ SELECT (j->>'at')::timestamptz $$;
CREATE FUNCTION read_both(d text, t text) RETURNS timestamptz STABLE LANGUAGE sql AS $$ SELECT (d || ' ' || t)::timestamptz $$;
CREATE FUNCTION read_too(t text) RETURNS date STABLE LANGUAGE sql AS $$ SELECT read_day(t) + 1 $$;
CREATE FUNCTION read_made(t text) RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT reverse(t)::timestamptz';
CREATE FUNCTION read_sworn(t text) RETURNS date IMMUTABLE LANGUAGE sql AS 'SELECT reverse(t)::date';
CREATE FUNCTION read_mood(t text) RETURNS urgency STABLE LANGUAGE sql AS 'SELECT t::urgency';
CREATE FUNCTION shift_day(d date, n int) RETURNS date STABLE LANGUAGE plpgsql AS $$ DECLARE x date := d; BEGIN x := x + n; RETURN x::timestamptz::date; END $$;
CREATE TABLE words (k bigint PRIMARY KEY, day text, many text, j jsonb, w text, d date) WITH (cleave.shard_key = 'k');
INSERT INTO words SELECT i, '2024-01-' || 10 + i, '2024-02-' || 10 + i || ' 00:00+00|know', jsonb_build_object('at', '2024-03-' || 10 + i || 'T00:00:00Z', 'n', 'unknown'), 'later', '2024-01-01' FROM generate_series(1, 12) i;
-- foreach f: read_day(day) | read_code(day) | read_json(j) | read_both(day, '12:00Z') | read_both(t => '01:00Z', d => day) | read_too(day) | read_sworn(reverse(day)) | read_mood(w) | shift_day(d, k::int) | read_code(NULLIF(day, '')) | read_day((SELECT min(day) FROM words))
-- block
SELECT k, ${f} FROM words ORDER BY k;
SELECT ${f}, count(*) FROM words GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM words WHERE ${f} IS NOT NULL;
-- end
-- foreach f: read_first(many) | read_first('2024-01-01Z|now') | read_made('lol') | read_day('today') | read_day(day || 'x')
SELECT count(DISTINCT ${f}) FROM words;
-- params: 2024-01-15 | 3
-- params: today | 3
SELECT k, read_day($1), shift_day(d, $2) FROM words ORDER BY k;
UPDATE words SET d = read_day(day) RETURNING k, d;
-- block
BEGIN;
INSERT INTO words (k, d) SELECT k + 100, read_day(day) FROM words;
INSERT INTO words (k, d) VALUES (201, read_day('2024-01-01')), (202, read_code('2024-02-01')), (203, shift_day('2024-01-01', 3));
SELECT count(DISTINCT d), max(d) FROM words;
SELECT read_day(day) FROM words WHERE k = 3;
SELECT read_day(day) FROM words WHERE k = 4;
SELECT read_day(day) FROM words WHERE k = 5;
ROLLBACK;
-- end
UPDATE words SET day = CASE k % 3 WHEN 0 THEN 'now' WHEN 1 THEN ' Today' ELSE 'tomorrow' END, many = 'now|2024-01-01', j = '{"at":"now"}', w = 'now';
-- foreach f: read_day(day) | read_first(many) | read_code(day) | read_json(j) | read_both(day, '') | read_too(day) | read_day((SELECT min(day) FROM words))
SELECT count(DISTINCT ${f}) FROM words;
-- foreach f: read_day(day) | read_first(many) | read_code(day) | read_too(day)
UPDATE words SET d = ${f};
-- foreach f: read_day(day) | read_first(many) | read_code(day) | read_json(j)
-- block
BEGIN;
SELECT ${f}::text > '2024' FROM words WHERE k = 1;
SELECT ${f}::text > '2024' FROM words WHERE k = 2;
SELECT ${f}::text > '2024' FROM words WHERE k = 3;
SELECT ${f}::text > '2024' FROM words WHERE k = 4;
ROLLBACK;
-- end
DROP FUNCTION read_too(text), read_day(text), read_first(text, text), read_code(text), read_json(jsonb), read_both(text, text), read_made(text), read_sworn(text), read_mood(text), shift_day(date, int);
DROP TABLE words;
DROP DOMAIN stamp, frozen, label;
DROP TYPE urgency;
