-- What somebody who knows PostgreSQL well tries first, over several shards: user-defined types, jsonb, text search, arrays, ranges, frames, upserts.
-- engines: postgres

CREATE TYPE level AS ENUM ('low', 'mid', 'high');
CREATE TYPE address AS (street text, zip int, geo point);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE span AS RANGE (subtype = float8);
CREATE TABLE people (id bigint PRIMARY KEY, name text NOT NULL, lvl level DEFAULT 'low', home address, age positive, tags text[] DEFAULT '{}', doc jsonb DEFAULT '{}', during tsrange, sp span, born date,
  ip inet, bits bit(8), price numeric(12, 3), secret bytea, wait interval, shout text GENERATED ALWAYS AS (upper(name)) STORED, boss bigint) WITH (cleave.shard_key = 'id');
CREATE INDEX people_doc ON people USING gin (doc);
INSERT INTO people (id, name, lvl, home, age, tags, doc, during, sp, born, ip, bits, price, secret, wait, boss) SELECT i, 'p' || i % 7, (ARRAY['low', 'mid', 'high']::level[])[1 + i % 3], ROW('s' || i, 1000 + i, point(i, -i))::address, 1 + i % 40,
  ARRAY['t' || i % 3, 'u' || i % 5], jsonb_build_object('a', i, 'b', jsonb_build_array(i, i % 4, 'x'), 'c', jsonb_build_object('d', i % 6, 'e', NULL)), tsrange('2024-01-01'::timestamp + i * interval '1 day', '2024-01-03'::timestamp + i * interval '1 day'),
  format('[%s,%s)', i, i + 2.5)::span, date '1990-01-01' + i * 100, ('10.0.' || i % 3 || '.' || i)::inet, (i % 256)::bit(8), i * 1.125, decode(lpad(to_hex(i), 4, '0'), 'hex'), i * interval '1 hour 10 minutes', NULLIF(i / 3, 0) FROM generate_series(1, 40) i;

-- grouping
SELECT lvl, age % 3 AS a, count(*), GROUPING(lvl, age % 3) FROM people GROUP BY GROUPING SETS ((lvl, age % 3), (lvl), ()) ORDER BY 1, 2, 4;
SELECT lvl, name, sum(price), grouping(name) FROM people GROUP BY ROLLUP (lvl, name) ORDER BY 1, 2;
SELECT lvl, name, count(*) FILTER (WHERE age > 20), count(DISTINCT born) FROM people GROUP BY CUBE (lvl, name) ORDER BY 1, 2;
SELECT lvl, percentile_cont(0.5) WITHIN GROUP (ORDER BY price), percentile_disc(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY price DESC), mode() WITHIN GROUP (ORDER BY name) FROM people GROUP BY lvl ORDER BY lvl;
SELECT rank(20) WITHIN GROUP (ORDER BY age), dense_rank(20) WITHIN GROUP (ORDER BY age), percent_rank(20) WITHIN GROUP (ORDER BY age), cume_dist(20) WITHIN GROUP (ORDER BY age) FROM people;
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY wait) FROM people;
SELECT array_agg(name ORDER BY id DESC) FILTER (WHERE lvl = 'high'), string_agg(name, ',' ORDER BY id) FILTER (WHERE age < 5), jsonb_agg(doc ORDER BY id) FILTER (WHERE id < 3) FROM people;
SELECT jsonb_object_agg(id, name), json_object_agg(name, id ORDER BY id) FROM people WHERE id < 4;
SELECT bit_and(age::int), bit_or(age::int), bool_and(age > 0), every(age > 1), max(lvl), min(lvl), max(ip), range_agg(during ORDER BY id) FROM people;
SELECT lvl, max(home::text), min(tags), max(bits::text), sum(wait), avg(wait) FROM people GROUP BY lvl ORDER BY lvl DESC;
SELECT count(*), count(*) FILTER (WHERE tags @> '{t1}'), sum(cardinality(tags)) FROM people HAVING count(*) > 3;
SELECT regr_count(price, age), count((id, name)), max((id, name)::text) FROM people;
SELECT GREATEST(lvl, 'mid'), LEAST(age, 5), count(*) FROM people GROUP BY 1, 2 ORDER BY 1, 2;
SELECT DISTINCT ON (lvl) lvl, id, name FROM people ORDER BY lvl DESC, price DESC;
SELECT DISTINCT (home).zip, lvl FROM people WHERE id < 9 ORDER BY 2, 1;
SELECT lvl, count(*) FROM people GROUP BY lvl ORDER BY lvl USING >;
SELECT name, array_agg(DISTINCT lvl ORDER BY lvl) FROM people GROUP BY name ORDER BY name;
SELECT width_bucket(price, 0, 50, 5) AS b, count(*), corr(1, 1) FROM people GROUP BY b ORDER BY b;

-- windows
SELECT id, sum(price) OVER w, first_value(id) OVER w, lag(name, 2, 'none') OVER (ORDER BY id), ntile(4) OVER (ORDER BY id) FROM people WINDOW w AS (PARTITION BY lvl ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) ORDER BY id;
SELECT id, count(*) OVER (ORDER BY age RANGE BETWEEN 3 PRECEDING AND 3 FOLLOWING), count(*) OVER (ORDER BY age::int GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM people ORDER BY id;
SELECT id, count(*) OVER (ORDER BY born RANGE BETWEEN '1 year' PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW), nth_value(id, 3) OVER (PARTITION BY lvl ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM people ORDER BY id;
SELECT lvl, sum(count(*)) OVER (ORDER BY lvl), rank() OVER (ORDER BY count(*) DESC, lvl) FROM people GROUP BY lvl ORDER BY lvl;
SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY name ORDER BY price DESC) AS r FROM people) x WHERE r = 1 ORDER BY id;
SELECT id, percent_rank() OVER (ORDER BY id), cume_dist() OVER (PARTITION BY lvl ORDER BY id) FROM people WHERE id < 10 ORDER BY id;
SELECT id, sum(age) FILTER (WHERE lvl <> 'low') OVER (ORDER BY id) FROM people ORDER BY id LIMIT 7 OFFSET 3;
SELECT id FROM people ORDER BY price DESC FETCH FIRST 3 ROWS ONLY;
SELECT age, id FROM people ORDER BY age FETCH FIRST 2 ROWS WITH TIES;

-- recursion, CTEs, LATERAL
WITH RECURSIVE r AS (SELECT id, boss, 1 AS depth, ARRAY[id] AS path FROM people WHERE boss IS NULL UNION ALL SELECT p.id, p.boss, r.depth + 1, r.path || p.id FROM people p JOIN r ON p.boss = r.id) SELECT * FROM r ORDER BY path;
WITH RECURSIVE r(id, boss) AS (SELECT id, boss FROM people WHERE id = 1 UNION SELECT p.id, p.boss FROM people p, r WHERE p.boss = r.id) SEARCH BREADTH FIRST BY id SET o CYCLE id SET c USING p SELECT id, o, c FROM r ORDER BY id;
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i, count(p.*) FROM n LEFT JOIN people p ON p.age = n.i GROUP BY i ORDER BY i;
WITH a AS MATERIALIZED (SELECT * FROM people WHERE lvl = 'high'), b AS NOT MATERIALIZED (SELECT id FROM a) SELECT count(*) FROM a JOIN b USING (id);
SELECT p.id, x.e FROM people p CROSS JOIN LATERAL jsonb_array_elements_text(p.doc->'b') WITH ORDINALITY x(e, n) WHERE p.id < 4 ORDER BY p.id, n;
SELECT p.id, q.id FROM people p LEFT JOIN LATERAL (SELECT id FROM people o WHERE o.age > p.age ORDER BY o.age, o.id LIMIT 1) q ON true ORDER BY p.id LIMIT 8;
SELECT p.id, g FROM people p, generate_series(1, p.age % 3) g WHERE p.id < 6 ORDER BY 1, 2;
SELECT t, count(*) FROM people, unnest(tags) t GROUP BY t ORDER BY t;
SELECT id, unnest(tags), generate_subscripts(tags, 1) FROM people WHERE id < 4 ORDER BY 1, 3;
SELECT * FROM ROWS FROM (unnest(ARRAY[1, 2]), generate_series(5, 7)) AS f(a, b) LEFT JOIN people p ON p.id = f.a ORDER BY b;
SELECT (jsonb_each_text(doc->'c')).* FROM people WHERE id < 3 ORDER BY 1, 2;
SELECT id FROM people p WHERE (lvl, age) = (SELECT lvl, max(age) FROM people q WHERE q.lvl = p.lvl GROUP BY lvl) ORDER BY id;
SELECT id FROM people WHERE (age, id) > (20, 5) ORDER BY age, id LIMIT 5;
SELECT id FROM people WHERE ROW(lvl, id) IN (SELECT lvl, max(id) FROM people GROUP BY lvl) ORDER BY id;
SELECT id, (SELECT count(*) FROM people q WHERE q.boss = p.id) AS n FROM people p ORDER BY n DESC, id LIMIT 5;
SELECT EXISTS (SELECT FROM people WHERE age > 39), NOT EXISTS (SELECT 1 FROM people WHERE id < 0), ARRAY(SELECT id FROM people WHERE id < 5 ORDER BY id DESC);
SELECT id FROM people WHERE age > ALL (SELECT age FROM people WHERE lvl = 'low' AND id < 10) ORDER BY id;
SELECT id, name FROM people TABLESAMPLE BERNOULLI (100) REPEATABLE (1) ORDER BY id LIMIT 3;

-- jsonb
SELECT id, doc->'c'->>'d', doc #> '{b,0}', doc #>> '{b,2}', doc @> '{"a": 3}', doc ? 'a', doc ?| '{x,a}', doc ?& '{a,b}', doc - 'b', doc #- '{c,d}' FROM people WHERE id < 5 ORDER BY id;
SELECT id, jsonb_set(doc, '{c,d}', '"new"'), jsonb_insert(doc, '{b,1}', '0'), jsonb_strip_nulls(doc), jsonb_pretty(doc->'c') FROM people WHERE id IN (2, 7) ORDER BY id;
SELECT id FROM people WHERE doc @? '$.b[*] ? (@ == 3)' ORDER BY id;
SELECT id, jsonb_path_query_array(doc, '$.b[*] ? (@ > $m)', '{"m": 2}'), jsonb_path_exists(doc, '$.c.d ? (@ > 4)') FROM people WHERE id < 6 ORDER BY id;
SELECT doc['a'], doc['b'][1] FROM people WHERE id = 5;
SELECT doc->>'a' AS k, sum((doc->'a')::int) FROM people GROUP BY ROLLUP (k) ORDER BY k LIMIT 4;
SELECT id FROM people ORDER BY doc DESC LIMIT 3;
SELECT DISTINCT doc->'b'->1 FROM people ORDER BY 1;
SELECT x.* FROM people p, jsonb_to_record(p.doc) AS x(a int, b jsonb) WHERE p.id < 4 ORDER BY a;
SELECT to_jsonb(p) - 'during' FROM people p WHERE id = 3;
SELECT row_to_json(x) FROM (SELECT id, name, lvl FROM people WHERE id < 3 ORDER BY id) x;
SELECT jsonb_agg(to_jsonb(x) ORDER BY id) FROM (SELECT id, tags, home FROM people WHERE id < 3) x;
SELECT json_build_array(id, lvl, born, during, wait, ip) FROM people ORDER BY id LIMIT 2;

-- arrays
SELECT id, tags[1], tags[2:], tags || 'z'::text, array_position(tags, 'u1'), array_remove(tags, 't1'), array_to_string(tags, '-'), 't1' = ANY (tags), array_upper(tags, 1), tags && '{t2,u4}', tags <@ '{t0,t1,u0,u1,u2}' FROM people ORDER BY id LIMIT 9;
SELECT array_agg(tags ORDER BY id), array_agg(lvl ORDER BY id), array_agg(home ORDER BY id) FROM people WHERE id < 4;
SELECT tags, count(*) FROM people GROUP BY tags ORDER BY tags DESC;
SELECT (ARRAY[[1, 2], [3, 4]])[2][1], id FROM people WHERE tags[1] = 't0' ORDER BY id LIMIT 2;
SELECT id FROM people WHERE id = ANY (ARRAY(SELECT boss FROM people WHERE boss IS NOT NULL)) ORDER BY 1;
-- params: {1,5,9}
SELECT id, name FROM people WHERE id = ANY ($1) ORDER BY id;
-- params: {high,low} | {t1}
SELECT count(*) FROM people WHERE lvl = ANY ($1) AND tags @> $2;

-- ranges
SELECT id, lower(during), upper_inc(during), during * tsrange('2024-01-05', '2024-01-07'), during -|- tsrange('2024-01-09', NULL), during @> timestamp '2024-01-06', isempty(sp) FROM people WHERE during && tsrange('2024-01-05', '2024-01-08') ORDER BY id;
SELECT id, sp FROM people WHERE sp @> 4::float8 ORDER BY sp;
SELECT range_agg(during ORDER BY id), range_intersect_agg(during ORDER BY id) FROM people WHERE id IN (3, 4);
SELECT unnest(range_agg(during)) FROM people WHERE id < 9;
SELECT id FROM people WHERE sp && span(3, 5) ORDER BY id;
SELECT min(lower(sp)), range_agg(sp) FROM (SELECT sp FROM people ORDER BY sp LIMIT 5) x;

-- enums, composites, domains
SELECT id, lvl FROM people WHERE lvl > 'low' ORDER BY lvl, id LIMIT 5;
SELECT enum_range(NULL::level), enum_first(lvl), lvl::text FROM people WHERE id = 2;
SELECT id, (home).zip, (home).geo[0], home FROM people WHERE (home).zip > 1030 ORDER BY (home).zip DESC;
SELECT (home).* FROM people WHERE id < 3 ORDER BY 1;
SELECT lvl, count(*) FROM people GROUP BY lvl HAVING max(age) > 30 ORDER BY count(*) DESC, lvl;
INSERT INTO people (id, name, age) VALUES (100, 'x', 5), (101, 'y', -5);
INSERT INTO people (id, name, lvl) VALUES (100, 'x', 'low'), (101, 'y', 'none');
INSERT INTO people (id, name, shout) VALUES (100, 'x', 'X'), (101, 'y', DEFAULT);
UPDATE people SET home.zip = (home).zip + 1, home.street = 'new' WHERE age > 38 RETURNING id, home;
UPDATE people SET lvl = CASE lvl WHEN 'low' THEN 'mid' ELSE lvl END, tags[1] = 'first' WHERE id < 3;
UPDATE people SET tags[2] = 'second', doc['n'] = '1', doc['c']['d'] = 'null' WHERE id IN (1, 2, 3, 4) RETURNING id, tags, doc;
UPDATE people SET (name, age) = (SELECT 'q' || max(p.age), min(p.age) FROM people p WHERE p.lvl = people.lvl) WHERE id < 6 RETURNING id, name, age, shout;
UPDATE people SET shout = 'x';
UPDATE people SET name = DEFAULT WHERE id > 38;
UPDATE people p SET price = v.x FROM (VALUES (1, 1.5), (2, 2.25), (9, 9.125)) v(k, x) WHERE v.k = p.id RETURNING p.id, p.price, v.x;
UPDATE people p SET boss = q.id FROM people q WHERE q.id = p.boss + 1 AND p.id > 30 RETURNING p.id, p.boss;
DELETE FROM people p USING people q WHERE q.id = p.id - 1 AND q.lvl = 'high' AND p.id > 30 RETURNING p.id, q.name;

-- upserts
INSERT INTO people AS p (id, name, age) VALUES (1, 'up', 3), (2, 'up', 4), (200, 'new', 5) ON CONFLICT (id) DO UPDATE SET name = p.name || excluded.name, age = p.age + excluded.age WHERE p.id <> 2 RETURNING id, name, age, (xmax = 0) IS NULL;
INSERT INTO people (id, name) VALUES (1, 'up'), (201, 'new'), (202, 'new') ON CONFLICT DO NOTHING RETURNING id;
INSERT INTO people (id, name) VALUES (203, 'a'), (203, 'b'), (204, 'c') ON CONFLICT (id) DO UPDATE SET name = excluded.name;
INSERT INTO people (id, name) VALUES (1, 'a'), (2, 'b') ON CONFLICT ON CONSTRAINT people_pkey DO UPDATE SET (name, tags) = (excluded.name, DEFAULT) RETURNING id, name, tags;
INSERT INTO people (id, name, doc) SELECT id + 300, name, doc FROM people WHERE id < 5 ON CONFLICT (id) DO UPDATE SET doc = people.doc || excluded.doc;
WITH up AS (UPDATE people SET name = 'w' WHERE id < 4 RETURNING *) SELECT id, name, shout FROM up ORDER BY id;
WITH ins AS (INSERT INTO people (id, name) VALUES (400, 'a'), (401, 'b') RETURNING id, shout), n AS (SELECT count(*) AS c FROM countries) SELECT ins.*, n.c FROM ins, n ORDER BY id;
MERGE INTO people p USING (VALUES (1, 'm'), (2, 'd'), (500, 'i')) v(id, n) ON p.id = v.id WHEN MATCHED AND v.n = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET name = v.n WHEN NOT MATCHED THEN INSERT (id, name) VALUES (v.id, v.n);
MERGE INTO people p USING people q ON p.id = q.id AND q.lvl = 'high' WHEN MATCHED AND p.age > 20 THEN DELETE WHEN MATCHED THEN UPDATE SET age = p.age + 1 WHEN NOT MATCHED THEN DO NOTHING;

-- text search
SELECT id FROM people WHERE to_tsvector('english', name || ' runs ' || shout) @@ to_tsquery('english', 'run & p3') ORDER BY id;
SELECT id, ts_rank(to_tsvector('simple', name || ' ' || array_to_string(tags, ' ')), plainto_tsquery('simple', 't1')) AS r, ts_headline('simple', array_to_string(tags, ' '), 't1'::tsquery) FROM people ORDER BY r DESC, id LIMIT 5;
SELECT to_tsvector('english', 'The quick foxes') || 'x:4'::tsvector, websearch_to_tsquery('"fat rat" or cat'), phraseto_tsquery('a fat cat'), count(*) FROM people;

-- other types
SELECT id, ip, host(ip), masklen(ip), ip << '10.0.1.0/24', set_masklen(ip, 24) FROM people WHERE ip <<= '10.0.2.0/24' ORDER BY ip DESC LIMIT 5;
SELECT bits AS b, bits & B'00001111', bits << 2, length(bits), bits::int FROM people ORDER BY b DESC LIMIT 4;
SELECT secret, encode(secret, 'base64'), length(secret), get_byte(secret, 1), sha256(secret) FROM people ORDER BY secret LIMIT 3;
SELECT wait, justify_hours(wait), extract(epoch FROM wait), date_part('hour', wait), wait * 1.5, make_interval(hours => age::int) FROM people ORDER BY wait DESC LIMIT 3;
SELECT born, age(date '2024-01-01', born), date_trunc('quarter', born), to_char(born, 'FMDay, DD Mon YYYY IW'), extract(isodow FROM born), born + wait, (born, born + 10) OVERLAPS (date '1991-01-01', date '1991-02-01') FROM people ORDER BY born LIMIT 4;
SELECT date_bin('15 days', during_at, timestamp '2024-01-01'), count(*) FROM (SELECT lower(during) AS during_at FROM people) x GROUP BY 1 ORDER BY 1;
SELECT price AS p, round(price, 1) AS r, trunc(price, -1), price::int AS i, price::text AS t, to_char(price, 'FM999.00'), ceil(price), price % 2, scale(price), trim_scale(price) FROM people ORDER BY p DESC LIMIT 3;
SELECT name COLLATE "C", name < 'p3', name LIKE 'p_' ESCAPE '!', name SIMILAR TO 'p(1|2)', name ~ '^p[0-3]', regexp_replace(name, '(\d)', '<\1>'), overlay(name placing 'Q' from 1), position('1' in name), format('%s-%L-%I', id, name, lvl) FROM people ORDER BY id LIMIT 5;
SELECT id, home.geo <-> point(0, 0), circle((home).geo, 2) @> point(3, -3) FROM (SELECT id, home FROM people) x(id, home) WHERE id < 4 ORDER BY id;
SELECT id, (home).geo <-> point(0, 0) AS far FROM people ORDER BY (home).geo <-> point(20, -20), id LIMIT 3;
SELECT CASE WHEN age IS NULL THEN 'none' WHEN age < 10 THEN 'young' ELSE 'old' END AS k, count(*), COALESCE(sum(NULLIF(age, 5)), 0) FROM people GROUP BY k ORDER BY k;
SELECT num_nulls(boss, age), count(*) FROM people GROUP BY 1 ORDER BY 1;
SELECT id IS DISTINCT FROM boss, boss IS NULL AND age IS NOT NULL, (home).zip BETWEEN SYMMETRIC 1010 AND 1001 FROM people ORDER BY id LIMIT 12;
SELECT people FROM people WHERE id = 7;
SELECT p.*, p AS whole FROM people p WHERE id IN (8, 9) ORDER BY id;
SELECT count(p), count(p.*), count(DISTINCT p.home) FROM people p;
SELECT id::text::int, CAST(age AS bigint), name::varchar(1), born::timestamp FROM people ORDER BY id LIMIT 2;
TABLE people ORDER BY id LIMIT 1;
VALUES (1, 'a'), ((SELECT count(*) FROM people), 'b') ORDER BY 1;
SELECT id FROM people WHERE id < 5 UNION ALL SELECT boss FROM people WHERE boss < 3 INTERSECT SELECT 1 ORDER BY 1;
(SELECT id, 'a' FROM people ORDER BY id DESC LIMIT 2) UNION (SELECT id, 'b' FROM people ORDER BY id LIMIT 2) EXCEPT SELECT 1, 'b' ORDER BY 1;
SELECT * FROM people NATURAL JOIN (SELECT id, 1 AS one FROM people) x ORDER BY id LIMIT 2;
SELECT a.id, b.id FROM people a FULL JOIN people b ON a.id = b.id + 35 WHERE a.id IS NULL OR b.id IS NULL ORDER BY 1, 2 LIMIT 5;
SELECT id FROM people WHERE id BETWEEN 3 AND 6 FOR UPDATE;
SELECT id FROM people ORDER BY id LIMIT ALL OFFSET 36;
SELECT 'x' || id AS k FROM people GROUP BY k ORDER BY k LIMIT 3;
SELECT sum(x) FROM (SELECT DISTINCT age AS x FROM people WHERE lvl IN ('low', 'high')) y;
SELECT avg(c)::numeric(10, 4) FROM (SELECT count(*) AS c FROM people GROUP BY name) x;
SELECT count(*) FROM people WHERE doc->>'a' ~ '^[1-3]$' OR (born > '1995-06-01' AND NOT 't0' = ANY (tags));
SELECT p.name, c.name FROM people p JOIN countries c ON c.id = p.age % 5 ORDER BY p.id LIMIT 4;
SELECT s.name, count(p.id) FROM settings s LEFT JOIN people p ON p.age = s.id GROUP BY s.id ORDER BY s.id;
ALTER TABLE people ADD COLUMN score int DEFAULT 7, ALTER COLUMN price TYPE numeric(14, 4), DROP COLUMN secret;
SELECT id, score, price FROM people ORDER BY id LIMIT 2;
ALTER TYPE level ADD VALUE 'top' AFTER 'high';
UPDATE people SET lvl = 'top' WHERE id IN (3, 4, 5) RETURNING id, lvl;
SELECT lvl, count(*) FROM people GROUP BY lvl ORDER BY lvl DESC;
ALTER TYPE address ADD ATTRIBUTE city text;
SELECT id, home FROM people WHERE id < 4 ORDER BY id;
ALTER TYPE level RENAME VALUE 'mid' TO 'middle';
SELECT max(lvl), min(lvl), count(*) FILTER (WHERE lvl = 'middle') FROM people;
DROP TABLE people;
DROP TYPE level, address, span;
DROP DOMAIN positive;

-- What a session makes or takes for itself on the default shard: values of sequences, functions of pg_temp.
-- What the session's own nextval() gave, of sequences that are the default shard's.
CREATE TABLE counted (id serial PRIMARY KEY, nr bigint GENERATED BY DEFAULT AS IDENTITY, note text);
INSERT INTO counted (note) VALUES ('a'), ('b');
SELECT currval('counted_id_seq'), currval('public.counted_nr_seq'::regclass);
SELECT lastval();
SELECT currval(pg_get_serial_sequence('counted', 'id')) + 1;
SELECT * FROM counted WHERE id = currval('counted_id_seq');
INSERT INTO counted (id, note) VALUES (10, currval('counted_id_seq')::text) RETURNING *;
SELECT setval('counted_id_seq', 20);
SELECT currval('counted_id_seq');
DISCARD SEQUENCES;
SELECT currval('counted_id_seq');
-- Functions of the session.
CREATE OR REPLACE FUNCTION pg_temp.put(OUT response counted, OUT caught text) RETURNS RECORD AS $x$ BEGIN INSERT INTO counted (id, note) VALUES (77, 'c') RETURNING * INTO response; EXCEPTION WHEN unique_violation THEN GET STACKED DIAGNOSTICS caught = PG_EXCEPTION_DETAIL; END $x$ LANGUAGE plpgsql;
SELECT (put.response).id, (put.response).note, put.caught FROM pg_temp.put();
SELECT (put.response).id, (put.response).note, put.caught FROM pg_temp.put();
CREATE FUNCTION pg_temp.noted(which bigint, more int DEFAULT 1) RETURNS SETOF counted LANGUAGE sql AS 'SELECT id + more, nr, note FROM counted WHERE id >= which';
SELECT id, note FROM pg_temp.noted(10) ORDER BY id;
SELECT c.note, n.id FROM counted c, pg_temp.noted(c.id, 5) n ORDER BY 1, 2;
SELECT pg_temp.nothing();
DROP FUNCTION pg_temp.noted, pg_temp.put;
DROP FUNCTION IF EXISTS pg_temp.put();
DROP TABLE counted;
