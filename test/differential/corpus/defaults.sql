-- Defaults that depend on the time: one value for all rows of a statement. The rows are
-- taken back, since each side has its own clock.

-- engines: postgres
-- block
BEGIN;
INSERT INTO stamps (k) VALUES (1), (2), (3), (4), (5), (6);
SELECT count(*), count(DISTINCT made), count(DISTINCT day), count(DISTINCT utc), count(DISTINCT long), count(DISTINCT code) FROM stamps;
SELECT count(*) FROM stamps WHERE made = now() AND utc = timezone('utc', now()) AND day = current_date AND long = 'at ' || now();
ROLLBACK;
-- end
-- block
BEGIN;
INSERT INTO stamps VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8);
INSERT INTO stamps (k, made, a) VALUES (11, DEFAULT, 1), (12, '2024-01-01', 2), (13, DEFAULT, DEFAULT), (14, NULL, 3), (15, DEFAULT, 4) RETURNING k, a, made IS NULL, made = now();
INSERT INTO stamps (k, day, code) VALUES (21, DEFAULT, DEFAULT), (22, DEFAULT, DEFAULT), (23, '2024-01-01', DEFAULT), (24, DEFAULT, DEFAULT), (25, DEFAULT, DEFAULT), (26, DEFAULT, DEFAULT) ON CONFLICT DO NOTHING;
SELECT count(DISTINCT made), count(DISTINCT long), count(DISTINCT code), count(DISTINCT utc) FROM stamps;
UPDATE stamps SET made = DEFAULT, (day, a) = (DEFAULT, 7), code = DEFAULT WHERE k > 10;
SELECT count(DISTINCT made), count(DISTINCT day), min(a), count(DISTINCT code) FROM stamps WHERE k > 10;
ROLLBACK;
-- end
-- block
BEGIN;
INSERT INTO stamps (k, a) SELECT tenant_id, max(id) FROM orders GROUP BY tenant_id;
SELECT count(*) > 3, count(DISTINCT made), count(DISTINCT utc), count(DISTINCT code) = count(*) FROM stamps;
INSERT INTO stamps SELECT 1000 + id, id FROM countries;
INSERT INTO stamps (k, day) SELECT 2000 + k, made FROM stamps WHERE k < 100 ORDER BY k LIMIT 5 RETURNING a, made = now();
SELECT count(*) > 3, count(DISTINCT made), count(DISTINCT long), count(DISTINCT code) = count(*) FROM stamps;
MERGE INTO stamps s USING orders o ON s.k = o.tenant_id AND o.id = 1 WHEN MATCHED THEN UPDATE SET made = DEFAULT WHEN NOT MATCHED AND o.id = 1 THEN INSERT (k) VALUES (o.tenant_id);
SELECT count(*) > 3, count(DISTINCT made) FROM stamps;
ROLLBACK;
-- end
-- One time for a transaction, whichever shards its statements are on.
-- block
BEGIN;
INSERT INTO stamps (k) VALUES (31);
INSERT INTO stamps (k) VALUES (32);
INSERT INTO stamps (k, made) VALUES (33, now()), (33 + 1000, CURRENT_TIMESTAMP);
INSERT INTO stamps VALUES (34, 1);
INSERT INTO stamps (k, a) SELECT 35, 1;
INSERT INTO stamps SELECT 36, 2 UNION ALL SELECT 36 + 3000, 1 WHERE false;
INSERT INTO stamps (k, made) VALUES (37, 'now'::timestamptz);
INSERT INTO stamps (k) VALUES (38) ON CONFLICT (k) DO UPDATE SET made = DEFAULT;
INSERT INTO stamps (k) VALUES (38) ON CONFLICT (k) DO UPDATE SET made = DEFAULT RETURNING made = now();
INSERT INTO stamps (k, made) VALUES (39, NULL), (40, NULL);
UPDATE stamps SET made = DEFAULT WHERE k = 39;
UPDATE stamps SET made = now(), day = 'today'::date WHERE k = 40 RETURNING made = now(), day = current_date, 'tomorrow'::date - day;
SELECT count(*), count(DISTINCT made), count(DISTINCT utc), count(DISTINCT day), count(DISTINCT long) FROM stamps WHERE k BETWEEN 31 AND 50;
SELECT made = now(), now() - made, age(made) = age(now()) FROM stamps WHERE k = 31;
SELECT made = now(), now() - made, LOCALTIMESTAMP(3) = made::timestamp(3), 'now'::timestamp = localtimestamp FROM stamps WHERE k = 32;
SELECT count(*) FROM stamps s WHERE made = transaction_timestamp() AND k = 35;
SELECT now() = (SELECT max(made) FROM stamps WHERE k < 50);
WITH n AS (INSERT INTO stamps (k) VALUES (41) RETURNING made) SELECT made = now() FROM n;
WITH n AS (SELECT now() AS t) SELECT t = made FROM n, stamps WHERE k = 34;
DELETE FROM stamps WHERE k = 37 AND made = now() RETURNING k;
ROLLBACK;
-- end
-- block
BEGIN;
INSERT INTO stamps (k) VALUES (51);
COPY stamps (k, a) FROM STDIN;
52	1
53	\N
54	3
\.
COPY stamps (a, k, made) FROM STDIN WITH (FORMAT csv, HEADER);
a,k,made
1,55,
2,56,2024-01-01
\.
SELECT count(*), count(DISTINCT made), count(DISTINCT utc), count(DISTINCT long), min(made) FROM stamps WHERE k BETWEEN 51 AND 60 AND made IS DISTINCT FROM now();
SELECT count(*), count(DISTINCT utc), count(DISTINCT day), count(DISTINCT long), count(DISTINCT code) = count(*) FROM stamps WHERE k BETWEEN 51 AND 60;
ROLLBACK;
-- end
-- block
BEGIN;
SET LOCAL DateStyle = 'SQL, DMY';
COPY stamps (k, a) FROM STDIN;
62	1
63	\N
64	3
\.
SELECT count(*), count(DISTINCT made), count(DISTINCT utc), bool_and(made = now()), bool_and(day = current_date) FROM stamps WHERE k BETWEEN 61 AND 70;
ROLLBACK;
-- end
INSERT INTO stamps (k, made) VALUES (1, '2024-01-01'), (2, '2024-01-01') ON CONFLICT (k) DO UPDATE SET made = DEFAULT;
-- A query without rows may name a key that no shard has.
INSERT INTO stock (class, id) SELECT class, id + 100 FROM stock WHERE class = 'zz';
INSERT INTO stock (class, id) SELECT class, id + 100 FROM stock WHERE class = NULL;
-- params: zz | \N
INSERT INTO stock (class, id) SELECT class, id + 100 FROM stock WHERE class = $1;
