-- Rows of every type that go from shard to shard, through the router: what arrives is what was there, whatever the settings print.
-- engines: postgres

CREATE TYPE pair AS (f double precision, z timestamptz, n int[]);
CREATE TABLE carried (k bigint, id int, f4 real, f8 double precision, fs double precision[], tz timestamptz, ts timestamp, d date, tzs timestamptz[], r tstzrange, iv interval, m money, a int[], ws text[], x xml, b bytea, p point, c pair, cs pair[], j jsonb, PRIMARY KEY (k, id)) WITH (cleave.shard_key = 'k');
CREATE TABLE carriage (k bigint, id int, f4 real, f8 double precision, fs double precision[], tz timestamptz, ts timestamp, d date, tzs timestamptz[], r tstzrange, iv interval, m money, a int[], ws text[], x xml, b bytea, p point, c pair, cs pair[], j jsonb, PRIMARY KEY (k, id)) WITH (cleave.shard_key = 'k');
CREATE TABLE of_day (d date, id int, z timestamptz, PRIMARY KEY (d, id)) WITH (cleave.shard_key = 'd');
CREATE TABLE of_time (ts timestamp, id int, z timestamptz, PRIMARY KEY (ts, id)) WITH (cleave.shard_key = 'ts');
CREATE TABLE of_moment (tz timestamptz, id int, f double precision, PRIMARY KEY (tz, id)) WITH (cleave.shard_key = 'tz');
CREATE TABLE of_bytes (b bytea, id int, f real, PRIMARY KEY (b, id)) WITH (cleave.shard_key = 'b');
CREATE TABLE of_all (id int PRIMARY KEY, f double precision, z timestamptz, a int[]) WITH (cleave.reference = true);
-- foreach i: 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8
INSERT INTO carried VALUES (${i}, ${i} % 3, ${i} / 3.0::real, ${i} / 7.0::double precision, ARRAY[${i} / 3.0, NULL, 1e-7 / ${i}]::double precision[],
  timestamptz '2024-01-05 12:00:00+00' + ${i} * interval '25 days 7 hours 0.000001 seconds', timestamp '2024-01-02 03:04:05.678901' + ${i} * interval '31 days', date '2024-01-01' + ${i}, ARRAY[timestamptz '2024-07-05 12:00:00+00' + ${i} * interval '1 day', NULL],
  tstzrange(timestamptz '2024-07-05 12:00:00+00', timestamptz '2024-07-05 12:00:00+00' + ${i} * interval '40 days'), ${i} * interval '1 year -2 months 3 days -04:05:06.7', (${i} * 1234.56)::numeric::money, ARRAY[${i}, NULL, -${i}], ARRAY['a', NULL, 'NULL'],
  ('<a>' || ${i} || '</a>')::xml, decode(repeat('0' || ${i}, ${i}), 'hex'), point(1 / 3.0, ${i} / 7.0), ROW(${i} / 3.0, timestamptz '2024-07-05 12:00:00+00' + ${i} * interval '1 hour', ARRAY[NULL, ${i}]), ARRAY[ROW(${i} / 3.0, timestamptz '2024-07-05 12:00:00+00', NULL)::pair], jsonb_build_object('f', ${i} / 7.0));
-- foreach s: f4 | f8 | fs | tz | ts | d | tzs | r | iv | m | a | ws | x | b | p | c | cs | j
-- block
INSERT INTO carriage (k, id, ${s}) SELECT k + 10, id, ${s} FROM carried;
SELECT k, id, float4send(f4), float8send(f8), array_send(fs), extract(epoch FROM tz), extract(epoch FROM ts), d, array_send(tzs), extract(epoch FROM lower(r)), extract(epoch FROM upper(r)), extract(epoch FROM iv), m, a, array_position(ws, NULL), ws, x::text, encode(b, 'hex'), point_send(p), float8send((c).f), extract(epoch FROM (c).z), (c).n, float8send(cs[1].f), extract(epoch FROM cs[1].z), j FROM carriage ORDER BY k, id;
DELETE FROM carriage;
-- end
-- foreach s: f4 | f8 | fs | tz | ts | d | tzs | r | iv | m | a | ws | b | p | c | cs | j
-- block
UPDATE carried SET ${s} = (SELECT o.${s} FROM carried o ORDER BY o.k DESC LIMIT 1) WHERE k = 2;
UPDATE carried SET ${s} = o.${s} FROM carried o WHERE o.k = carried.k + 3;
UPDATE carried SET k = k + 100 WHERE k IN (3, 4, 5);
UPDATE carried SET k = k - 100 WHERE k IN (103, 104, 105) RETURNING k, ${s};
SELECT k, id, float4send(f4), float8send(f8), array_send(fs), extract(epoch FROM tz), extract(epoch FROM ts), d, array_send(tzs), extract(epoch FROM lower(r)), extract(epoch FROM upper(r)), extract(epoch FROM iv), m, a, array_position(ws, NULL), ws, x::text, encode(b, 'hex'), point_send(p), float8send((c).f), extract(epoch FROM (c).z), (c).n, float8send(cs[1].f), extract(epoch FROM cs[1].z), j FROM carried ORDER BY k, id;
-- end
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c
-- foreach o: ${s}, k | ${s} DESC, k | k
SELECT k, ${s} FROM carried ORDER BY ${o};
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c | cs | j
SELECT DISTINCT ${s} FROM carried;
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c | cs | j
SELECT ${s}, count(*), min(k) FROM carried GROUP BY ${s};
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c | cs | j
SELECT a.k, b.k, a.${s} FROM carried a JOIN carried b ON a.${s} = b.${s} AND a.k <> b.k;
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c | cs | j
SELECT ${s} FROM carried UNION SELECT ${s} FROM carried WHERE k > 3;
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c | cs | j
SELECT k, ${s}, row_number() OVER (ORDER BY k DESC) FROM carried;
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c | cs | j
SELECT array_agg(${s} ORDER BY k), (array_agg(${s} ORDER BY k))[1] FROM carried;
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c | cs | j
SELECT k, ${s}::text FROM carried ORDER BY k LIMIT 3;
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c | cs | j
WITH w AS MATERIALIZED (SELECT k, ${s} FROM carried) SELECT a.k, a.${s}, b.${s} FROM w a JOIN w b ON a.k = b.k + 1;
-- foreach s: tz | ts | d | iv | m | b | f4 | f8 | r | fs | tzs | a | ws | c | cs | j
COPY (SELECT k, ${s} FROM carried ORDER BY k) TO STDOUT;
-- foreach s: tz | ts | d | iv | m | b | f4 | f8
SELECT min(${s}), max(${s}), count(DISTINCT ${s}) FROM carried;
-- foreach s: tz | ts | d | iv | m | b | f4 | f8
SELECT k FROM carried WHERE ${s} > (SELECT min(${s}) FROM carried);
-- foreach s: sum(f8) > 0 | sum(iv) | sum(m) | avg(m)
SELECT ${s} FROM carried;
INSERT INTO of_day SELECT d, id, tz FROM carried;
INSERT INTO of_day SELECT d + 40, id, tz FROM carried WHERE k < 6 RETURNING *;
INSERT INTO of_time SELECT ts, id, tz FROM carried;
INSERT INTO of_time SELECT tz, id, tz FROM carried RETURNING *;
INSERT INTO of_moment SELECT tz, id, f8 FROM carried;
INSERT INTO of_moment SELECT ts, id, f8 FROM carried RETURNING *;
INSERT INTO of_bytes SELECT b, id + k, f4 FROM carried;
INSERT INTO of_bytes SELECT b || '\x5c27'::bytea, id + k + 10, f4 FROM carried RETURNING *;
INSERT INTO of_day VALUES (date '2030-02-01' + 1, 1, '2024-07-05 12:00:00+00'), (date '2030-02-01' - 1, 1, NULL), ('2030-03-04', 2, '2024-07-05 12:00:00+02') RETURNING *;
INSERT INTO of_time VALUES (timestamp '2030-02-01' + interval '1 day', 1, '2024-07-05 12:00:00+00'), (timestamp '2030-02-01' - interval '1 day', 1, NULL), ('2030-03-04 05:06:07', 2, '2024-07-05 12:00:00+02') RETURNING *;
INSERT INTO of_moment VALUES (timestamptz '2030-02-01' + interval '1 day', 1, 1 / 3.0), (timestamptz '2030-02-01' - interval '1 day', 1, NULL), ('2030-03-04 05:06:07', 2, 1 / 7.0) RETURNING *;
-- foreach v: 01/02/2031 | 2031-01-02 | 03-Feb-2031
INSERT INTO of_day VALUES ('${v}', 1, NULL) RETURNING *;
-- foreach v: 01/02/2031 | 2031-01-02 | 03-Feb-2031
INSERT INTO of_time VALUES ('${v} 04:05', 1, NULL), ('${v} 07:05', 1, NULL) RETURNING *;
-- foreach v: 01/02/2031 | 2031-01-02 | 03-Feb-2031
INSERT INTO of_moment VALUES ('${v} 04:05', 1, NULL), ('${v} 07:05', 1, NULL) RETURNING *;
-- foreach v: 01/02/2031 | 2031-01-02 | 03-Feb-2031
SELECT * FROM of_day WHERE d = '${v}';
-- foreach v: 01/02/2031 | 2031-01-02 | 03-Feb-2031
SELECT * FROM of_time WHERE ts = '${v} 04:05';
-- foreach v: 01/02/2031 | 2031-01-02 | 03-Feb-2031
SELECT * FROM of_moment WHERE tz = '${v} 04:05';
-- foreach v: 01/02/2031 | 2031-01-02 | 03-Feb-2031
SELECT count(*) FROM of_moment WHERE tz < '${v} 04:05';
-- foreach v: 01/02/2031 | 2031-01-02 | 03-Feb-2031
DELETE FROM of_day WHERE d IN ('${v}', '2031-09-09');
-- params: 01/02/2032
-- params: 2032-01-02
-- params: 03-Feb-2032
INSERT INTO of_day VALUES ($1, 1, NULL) RETURNING *;
-- params: 01/02/2032 04:05
-- params: 2032-01-02 04:05 EST
-- params: 03-Feb-2032 04:05+03:30
INSERT INTO of_moment VALUES ($1, 1, NULL) RETURNING *;
-- params: 01/02/2032 04:05
-- params: 2032-01-02 04:05
-- params: 03-Feb-2032 04:05+03:30
SELECT * FROM of_moment WHERE tz = $1;
-- params: \x0102
-- params: \\000\\134a
INSERT INTO of_bytes VALUES ($1, 1, 0.1) RETURNING *;
COPY of_day FROM STDIN;
03/04/2033	1	2033-04-03 12:00:00+00
2033-04-05	2	\N
\.
COPY of_moment FROM STDIN;
03/04/2033 12:00	1	0.1
2033-04-05 12:00	2	0.30000000000000004
\.
COPY of_bytes FROM STDIN;
\\x0102ff	1	0.1
a\\134\\000	2	0.3
\.
-- foreach t: of_day | of_time | of_moment | of_bytes
SELECT * FROM ${t} ORDER BY 1, 2;
-- foreach t: of_day | of_time | of_moment | of_bytes
SELECT * FROM ${t} ORDER BY 1 DESC, 2 LIMIT 4;
-- foreach t: of_day | of_time | of_moment | of_bytes
COPY ${t} TO STDOUT;
UPDATE of_day SET d = d + 365 WHERE id = 1 RETURNING *;
UPDATE of_time SET ts = ts + interval '1 year 2 days' WHERE id = 1 RETURNING *;
UPDATE of_moment SET tz = tz + interval '1 year 2 days' WHERE id = 1 RETURNING *;
UPDATE of_bytes SET b = b || '\x00ff' WHERE id < 5 RETURNING *;
INSERT INTO of_all SELECT k, f8, tz, a FROM carried;
INSERT INTO of_all SELECT k + 100, f8, tz, a FROM carried RETURNING *;
UPDATE of_all SET f = c.f8 / 3, z = c.tz + interval '1 hour', a = c.a || 1 FROM carried c WHERE c.k = of_all.id RETURNING of_all.*;
SELECT id, float8send(f), extract(epoch FROM z), a FROM of_all ORDER BY id;
MERGE INTO carriage USING carried s ON carriage.k = s.k WHEN NOT MATCHED THEN INSERT (k, id, f8, tz, fs, a) VALUES (s.k, s.id, s.f8, s.tz, s.fs, s.a);
MERGE INTO carriage USING (SELECT k - 1 AS k, f8, tz, fs, a FROM carried) s ON carriage.k = s.k WHEN MATCHED THEN UPDATE SET f8 = s.f8, tz = s.tz, fs = s.fs, a = s.a;
SELECT k, id, float8send(f8), array_send(fs), extract(epoch FROM tz), a FROM carriage ORDER BY k, id;
-- block
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT k, f8, tz, d, iv, b, fs, m FROM carried ORDER BY tz, k;
FETCH 3 FROM c;
COMMIT;
FETCH ALL FROM c;
CLOSE c;
-- end
-- order: 1
CREATE TABLE carried_too AS SELECT k, f8, tz, fs, d, r, a, b, p FROM carried;
SELECT k, float8send(f8), extract(epoch FROM tz), array_send(fs), d, extract(epoch FROM lower(r)), a, encode(b, 'hex'), point_send(p) FROM carried_too ORDER BY k;
DROP TABLE carried_too;
DELETE FROM carriage;
DELETE FROM of_all;
-- foreach set: extra_float_digits TO -3 | DateStyle TO 'Postgres, DMY'; SET TimeZone TO 'Asia/Shanghai' | DateStyle TO 'German'; SET TimeZone TO 'Europe/Dublin' | array_nulls TO off
-- foreach s: f4, f8 | tz, d | fs | tzs | r
-- block
SET ${set};
INSERT INTO carriage (k, id, ${s}) SELECT k + 10, id, ${s} FROM carried;
INSERT INTO of_all SELECT k, f8, tz FROM carried;
INSERT INTO of_all VALUES (100, 1 / 7.0::float8, '2024-07-05 12:00:00+00', '{1,2}') ON CONFLICT (id) DO NOTHING;
INSERT INTO of_day SELECT d + 400, id, tz FROM carried;
UPDATE carriage SET k = k + 100 WHERE k > 13;
RESET ALL;
SELECT k, f4, f8, fs, tz, d, tzs, r FROM carriage ORDER BY k;
SELECT * FROM of_all ORDER BY id;
SELECT * FROM of_day ORDER BY d;
DELETE FROM carriage;
DELETE FROM of_all;
DELETE FROM of_day WHERE d > '2025-01-20';
-- end
DROP TABLE carried, carriage, of_day, of_time, of_moment, of_bytes, of_all;
DROP TYPE pair;
