-- Partial groups of each shard, final groups over them.
SELECT count(*) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT count(*) AS c1 FROM orders
-->   shard text: SELECT COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS count FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT count(note), sum(qty), sum(id), sum(price), avg(qty), avg(price), min(note), max(qty) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT count(note) AS c1, sum(qty) AS c2, sum(id) AS c3, sum(price) AS c4, pg_catalog.sum(qty) AS c5, pg_catalog.count(qty) AS c6, pg_catalog.sum(price) AS c7, pg_catalog.count(price) AS c8, min(note) AS c9, max(qty) AS c10 FROM orders
-->   shard text: SELECT COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS count, pg_catalog.sum(cleave_rel_1.c2)::bigint AS sum, pg_catalog.sum(cleave_rel_1.c3) AS sum, pg_catalog.sum(cleave_rel_1.c4) AS sum, pg_catalog.sum(cleave_rel_1.c5) / pg_catalog.sum(cleave_rel_1.c6) AS avg, pg_catalog.sum(cleave_rel_1.c7) / pg_catalog.sum(cleave_rel_1.c8) AS avg, pg_catalog.min(cleave_rel_1.c9) AS min, pg_catalog.max(cleave_rel_1.c10) AS max FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT note, count(*) FROM orders GROUP BY note;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, count(*) AS c2 FROM orders GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS note, COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT note, sum(qty) AS s FROM orders WHERE id > $1 GROUP BY 1 HAVING sum(qty) > $2 ORDER BY s DESC, note LIMIT 3;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, sum(qty) AS c2 FROM orders WHERE id > $1 GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS note, pg_catalog.sum(cleave_rel_1.c2)::bigint AS s FROM cleave_rel_1 GROUP BY cleave_rel_1.c1 HAVING pg_catalog.sum(cleave_rel_1.c2)::bigint > $2 ORDER BY s DESC, note LIMIT 3
-->   why: its groups have rows of several shards
SELECT qty % 2, sum(price * (1 - qty)) FROM orders GROUP BY qty % 2 ORDER BY qty % 2;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT qty % 2 AS c1, sum(price * (1 - qty)) AS c2 FROM orders GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS "?column?", pg_catalog.sum(cleave_rel_1.c2) AS sum FROM cleave_rel_1 GROUP BY cleave_rel_1.c1 ORDER BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT lower(note) AS l, max(id) - min(id) AS spread, 1 + count(*) FROM orders GROUP BY l ORDER BY l;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT lower(note) AS c1, max(id) AS c2, min(id) AS c3, count(*) AS c4 FROM orders GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS l, pg_catalog.max(cleave_rel_1.c2) - pg_catalog.min(cleave_rel_1.c3) AS spread, 1 + COALESCE(pg_catalog.sum(cleave_rel_1.c4)::bigint, 0) AS "?column?" FROM cleave_rel_1 GROUP BY cleave_rel_1.c1 ORDER BY l
-->   why: its groups have rows of several shards
SELECT note, sum(qty) FILTER (WHERE qty > 1), count(*) FILTER (WHERE price > 1) FROM orders GROUP BY note;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, sum(qty) FILTER (WHERE qty > 1) AS c2, count(*) FILTER (WHERE price > 1) AS c3 FROM orders GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS note, pg_catalog.sum(cleave_rel_1.c2)::bigint AS sum, COALESCE(pg_catalog.sum(cleave_rel_1.c3)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT bool_and(qty > 1), bool_or(qty > 1), every(qty > 1), bit_or(qty) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT bool_and(qty > 1) AS c1, bool_or(qty > 1) AS c2, every(qty > 1) AS c3, bit_or(qty) AS c4 FROM orders
-->   shard text: SELECT pg_catalog.bool_and(cleave_rel_1.c1) AS bool_and, pg_catalog.bool_or(cleave_rel_1.c2) AS bool_or, pg_catalog.every(cleave_rel_1.c3) AS every, pg_catalog.bit_or(cleave_rel_1.c4) AS bit_or FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT i.name, count(*) FROM orders o JOIN items i ON i.tenant_id = o.tenant_id GROUP BY i.name;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT i.name AS c1, count(*) AS c2 FROM orders o JOIN items i ON i.tenant_id = o.tenant_id GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS name, COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT s.label, count(*) FROM orders o JOIN small s ON s.id = o.id GROUP BY s.label ORDER BY 2 DESC;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT s.label AS c1, count(*) AS c2 FROM orders o JOIN small s ON s.id = o.id GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS label, COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1 ORDER BY 2 DESC
-->   why: its groups have rows of several shards
SELECT s.x, count(*) FROM (SELECT qty + 1 AS x FROM orders) s GROUP BY s.x;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT s.x AS c1, count(*) AS c2 FROM (SELECT qty + 1 AS x FROM orders) s GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS x, COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT count(*) FROM (SELECT DISTINCT tenant_id FROM orders) s;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT count(*) AS c1 FROM (SELECT DISTINCT tenant_id FROM orders) s
-->   shard text: SELECT COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS count FROM cleave_rel_1
-->   why: its groups have rows of several shards
-- DISTINCT within an aggregate: its arguments become groups.
SELECT count(DISTINCT note) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1 FROM orders GROUP BY 1
-->   shard text: SELECT count(DISTINCT cleave_rel_1.c1) AS count FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT note, count(DISTINCT qty), sum(price), string_agg(DISTINCT lower(note), ', ') FROM orders GROUP BY note;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, qty AS c2, sum(price) AS c3, lower(note) AS c4 FROM orders GROUP BY 1, 2, 4
-->   shard text: SELECT cleave_rel_1.c1 AS note, count(DISTINCT cleave_rel_1.c2) AS count, pg_catalog.sum(cleave_rel_1.c3) AS sum, string_agg(DISTINCT cleave_rel_1.c4, ', ') AS string_agg FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT count(DISTINCT 1) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT 1 AS c1 FROM orders
-->   shard text: SELECT count(DISTINCT 1) AS count FROM cleave_rel_1
-->   why: its groups have rows of several shards
-- Not made of partial ones: every row.
SELECT note, stddev(qty), count(*) FROM orders GROUP BY note;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, qty AS c2 FROM orders
-->   shard text: SELECT cleave_rel_1.c1 AS note, stddev(cleave_rel_1.c2) AS stddev, count(*) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT string_agg(note, ',' ORDER BY id) FROM orders WHERE qty > 1;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, id AS c2 FROM orders WHERE qty > 1
-->   shard text: SELECT string_agg(cleave_rel_1.c1, ',' ORDER BY cleave_rel_1.c2) AS string_agg FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY qty) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT qty AS c1 FROM orders
-->   shard text: SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY cleave_rel_1.c1) AS percentile_cont FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT array_agg(qty ORDER BY price DESC) FILTER (WHERE qty > 0), json_agg(note) FROM orders GROUP BY note;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, qty AS c2, price AS c3, qty > 0 AS c4 FROM orders
-->   shard text: SELECT array_agg(cleave_rel_1.c2 ORDER BY cleave_rel_1.c3 DESC) FILTER (WHERE cleave_rel_1.c4) AS array_agg, json_agg(cleave_rel_1.c1) AS json_agg FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT sum(length(note) / 2.5) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT sum(length(note) / 2.5) AS c1 FROM orders
-->   shard text: SELECT pg_catalog.sum(cleave_rel_1.c1) AS sum FROM cleave_rel_1
-->   why: its groups have rows of several shards
-- Grouping sets.
SELECT note, qty, sum(price), grouping(note, qty) FROM orders GROUP BY ROLLUP (note, qty) ORDER BY 1, 2;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, qty AS c2, sum(price) AS c3 FROM orders GROUP BY 1, 2
-->   shard text: SELECT cleave_rel_1.c1 AS note, cleave_rel_1.c2 AS qty, pg_catalog.sum(cleave_rel_1.c3) AS sum, GROUPING(cleave_rel_1.c1, cleave_rel_1.c2) AS "grouping" FROM cleave_rel_1 GROUP BY ROLLUP (cleave_rel_1.c1, cleave_rel_1.c2) ORDER BY 1, 2
-->   why: its groups have rows of several shards
SELECT note, qty, count(*) FROM orders GROUP BY GROUPING SETS ((note), (qty), ());
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, qty AS c2, count(*) AS c3 FROM orders GROUP BY 1, 2
-->   shard text: SELECT cleave_rel_1.c1 AS note, cleave_rel_1.c2 AS qty, COALESCE(pg_catalog.sum(cleave_rel_1.c3)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY GROUPING SETS (cleave_rel_1.c1, cleave_rel_1.c2, ())
-->   why: its groups have rows of several shards
SELECT note, qty, count(*) FROM orders GROUP BY CUBE (1, 2);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, qty AS c2, count(*) AS c3 FROM orders GROUP BY 1, 2
-->   shard text: SELECT cleave_rel_1.c1 AS note, cleave_rel_1.c2 AS qty, COALESCE(pg_catalog.sum(cleave_rel_1.c3)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY CUBE (cleave_rel_1.c1, cleave_rel_1.c2)
-->   why: its groups have rows of several shards
-- What comes after the groups.
SELECT DISTINCT count(*) FROM orders GROUP BY note;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, count(*) AS c2 FROM orders GROUP BY 1
-->   shard text: SELECT DISTINCT COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT note, rank() OVER (ORDER BY sum(qty) DESC), sum(count(*)) OVER () FROM orders GROUP BY note;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT note AS c1, sum(qty) AS c2, count(*) AS c3 FROM orders GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS note, rank() OVER (ORDER BY pg_catalog.sum(cleave_rel_1.c2)::bigint DESC) AS rank, sum(COALESCE(pg_catalog.sum(cleave_rel_1.c3)::bigint, 0)) OVER () AS sum FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT s.label, s.tenant, count(*) FROM orders o JOIN small s ON s.id = o.id GROUP BY s.id;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT s.id AS c1, s.label AS c2, s.tenant AS c3, count(*) AS c4 FROM orders o JOIN small s ON s.id = o.id GROUP BY 1, 2, 3
-->   shard text: SELECT cleave_rel_1.c2 AS label, cleave_rel_1.c3 AS tenant, COALESCE(pg_catalog.sum(cleave_rel_1.c4)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1, cleave_rel_1.c2, cleave_rel_1.c3
-->   why: its groups have rows of several shards
SELECT CASE WHEN count(*) > 5 THEN 'many' ELSE 'few' END FROM orders HAVING count(*) > 1;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT count(*) AS c1 FROM orders
-->   shard text: SELECT CASE WHEN COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) > 5 THEN 'many' ELSE 'few' END AS "case" FROM cleave_rel_1 HAVING COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) > 1
-->   why: its groups have rows of several shards
SELECT date_trunc('day', now()) AS d, count(*) FROM orders WHERE now() > '2020-01-01' GROUP BY d;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.orders t WHERE $1::timestamp with time zone > '2020-01-01'
-->   shard text: SELECT date_trunc('day', $1::timestamp with time zone) AS d, count(*) FROM cleave_rel_1 orders WHERE $1::timestamp with time zone > '2020-01-01' GROUP BY d
-->   why: its rows cannot be combined as they come from the shards
-- Elsewhere.
SELECT count(*), (SELECT max(id) FROM items) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT max(id) AS c1 FROM items
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.orders t
-->   shard text: SELECT count(*), (SELECT pg_catalog.max(cleave_rel_1.c1) AS max FROM cleave_rel_1) FROM cleave_rel_2 orders
-->   why: its rows cannot be combined as they come from the shards
SELECT count(*) FROM orders o, items i;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.items t
-->   shard text: SELECT count(*) FROM cleave_rel_1 o, cleave_rel_2 i
-->   why: its rows cannot be combined as they come from the shards
SELECT sum(random()) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.orders t
-->   shard text: SELECT sum(random()) FROM cleave_rel_1 orders
-->   why: its rows cannot be combined as they come from the shards
SELECT sum(strpos(note, 'a')), sum(sqrt(price)), avg(mod(qty, 3)), sum(div(price, 3)), sum(coalesce(price, qty)), sum(ascii(note)) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT sum(strpos(note, 'a')) AS c1, sum(sqrt(price)) AS c2, pg_catalog.sum(mod(qty, 3)) AS c3, pg_catalog.count(mod(qty, 3)) AS c4, sum(div(price, 3)) AS c5, sum(COALESCE(price, qty)) AS c6, sum(ascii(note)) AS c7 FROM orders
-->   shard text: SELECT pg_catalog.sum(cleave_rel_1.c1)::bigint AS sum, pg_catalog.sum(cleave_rel_1.c2) AS sum, pg_catalog.sum(cleave_rel_1.c3) / pg_catalog.sum(cleave_rel_1.c4) AS avg, pg_catalog.sum(cleave_rel_1.c5) AS sum, pg_catalog.sum(cleave_rel_1.c6) AS sum, pg_catalog.sum(cleave_rel_1.c7)::bigint AS sum FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT sum(length(note)), sum(qty & 3), sum(nullif(qty, 2.5)), sum(width_bucket(price, 0, 10, 5)) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT sum(length(note)) AS c1, sum(qty & 3) AS c2, sum(NULLIF(qty, 2.5)) AS c3, sum(width_bucket(price, 0, 10, 5)) AS c4 FROM orders
-->   shard text: SELECT pg_catalog.sum(cleave_rel_1.c1)::bigint AS sum, pg_catalog.sum(cleave_rel_1.c2)::bigint AS sum, pg_catalog.sum(cleave_rel_1.c3) AS sum, pg_catalog.sum(cleave_rel_1.c4)::bigint AS sum FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT sum(n), max(note) FROM (SELECT count(*) AS n, note FROM orders GROUP BY tenant_id, note) AS s;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT sum(n) AS c1, max(note) AS c2 FROM (SELECT count(*) AS n, note FROM orders GROUP BY tenant_id, note) s
-->   shard text: SELECT pg_catalog.sum(cleave_rel_1.c1) AS sum, pg_catalog.max(cleave_rel_1.c2) AS max FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT date_trunc('day', CAST(note AS timestamptz) AT TIME ZONE 'UTC') AS day, count(*) FROM orders GROUP BY 1;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT date_trunc('day', CASE WHEN pg_catalog.textregexeq(note::pg_catalog.text COLLATE pg_catalog."C", '[wWyY]') THEN pg_catalog.regexp_replace(note::pg_catalog.text COLLATE pg_catalog."C", 'now|today|tomorrow|yesterday', E'cleave_time_word \\&', 'i') ELSE note END::timestamptz AT TIME ZONE 'UTC') AS c1, count(*) AS c2 FROM orders GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS day, COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT CAST(note AS timetz) AT TIME ZONE 'UTC' AS t, count(*) FROM orders GROUP BY 1;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.note FROM public.orders t
-->   shard text: SELECT CASE WHEN pg_catalog.textregexeq(note::pg_catalog.text COLLATE pg_catalog."C", '[wWyY]') THEN pg_catalog.regexp_replace(note::pg_catalog.text COLLATE pg_catalog."C", 'now|today|tomorrow|yesterday', E'cleave_time_word \\&', 'i') ELSE note END::timetz AT TIME ZONE 'UTC' AS t, count(*) FROM cleave_rel_1 orders GROUP BY 1
-->   why: its rows cannot be combined as they come from the shards
SELECT date_trunc('day', at AT TIME ZONE 'UTC') AS d, count(*) FROM events GROUP BY 1;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT date_trunc('day', at AT TIME ZONE 'UTC') AS c1, count(*) AS c2 FROM events GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS d, COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
