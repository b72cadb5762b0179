-- Views over sharded tables, and other DDL that lives in a schema.

CREATE VIEW v_plain AS SELECT tenant_id, id, qty FROM orders WHERE qty > 0;
SELECT * FROM v_plain;
SELECT * FROM v_plain* WHERE tenant_id = 1;
SELECT v.id FROM public.v_plain * AS v WHERE v.tenant_id < 3;
-- messages
SELECT * FROM v_plain TABLESAMPLE SYSTEM (100);
TRUNCATE v_plain;
TRUNCATE orders, v_plain;
DROP TABLE v_plain;
CREATE INDEX ON v_plain (id);
SELECT count(*) FROM v_plain WHERE tenant_id = 3;
SELECT * FROM v_plain WHERE tenant_id IN (1, 2) ORDER BY tenant_id, id;
SELECT v.id, i.sku FROM v_plain v JOIN items i ON i.tenant_id = v.tenant_id AND i.order_id = v.id;
CREATE VIEW v_group AS SELECT status, count(*) AS n, sum(price) AS total FROM orders GROUP BY status;
SELECT * FROM v_group;
SELECT max(n) FROM v_group;
SELECT g.status FROM v_group g WHERE g.n > 5 ORDER BY 1;
CREATE VIEW v_join AS SELECT o.tenant_id, o.id AS order_id, i.id AS item_id, c.name FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id LEFT JOIN countries c ON c.id = i.n;
SELECT * FROM v_join;
SELECT name, count(*) FROM v_join GROUP BY name;
SELECT * FROM v_join WHERE tenant_id = 3;
CREATE VIEW v_nested AS SELECT * FROM v_plain WHERE id < 3;
SELECT * FROM v_nested;
CREATE OR REPLACE VIEW v_nested AS SELECT * FROM v_plain WHERE id < 2;
SELECT count(*) FROM v_nested;
CREATE VIEW v_columns (a, b) AS SELECT tenant_id, max(price) FROM orders GROUP BY tenant_id;
SELECT a, b FROM v_columns WHERE a > 5;
CREATE VIEW v_reference AS SELECT id, name FROM countries;
SELECT o.id, v.name FROM orders o JOIN v_reference v ON v.id = o.id;
CREATE VIEW v_whole AS SELECT id, value FROM settings;
SELECT o.id, v.value FROM orders o JOIN v_whole v ON v.id = o.tenant_id;
CREATE VIEW v_union AS SELECT tenant_id, id FROM orders UNION ALL SELECT tenant_id, id FROM items;
SELECT tenant_id, count(*) FROM v_union GROUP BY tenant_id;
CREATE VIEW v_window AS SELECT tenant_id, id, rank() OVER (PARTITION BY status ORDER BY tenant_id, id) AS r FROM orders;
SELECT * FROM v_window WHERE r = 1;
UPDATE v_plain SET qty = qty + 1 WHERE tenant_id = 3;
INSERT INTO v_plain (tenant_id, id, qty) VALUES (990, 1, 5);
DELETE FROM v_plain WHERE tenant_id = 990;
DROP VIEW v_plain;
DROP VIEW IF EXISTS v_nested, v_plain, v_group, v_join, v_columns, v_reference, v_whole, v_union, v_window;
SELECT * FROM v_plain;
CREATE MATERIALIZED VIEW m_orders AS SELECT status, count(*) AS n FROM orders GROUP BY status;
SELECT * FROM m_orders;
DROP MATERIALIZED VIEW IF EXISTS m_orders;
CREATE FUNCTION twice(x integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT x * 2 $$;
SELECT tenant_id, id, twice(qty) FROM orders;
SELECT sum(twice(qty)) FROM orders;
SELECT twice(4);
DROP FUNCTION IF EXISTS twice(integer);
CREATE SCHEMA other;
SET search_path = other, public;
SELECT count(*) FROM orders;
SELECT current_schema();
RESET search_path;
SET search_path = other;
SELECT count(*) FROM orders;
SELECT count(*) FROM public.orders;
RESET search_path;
DROP SCHEMA other;
SET search_path = '';
SELECT id FROM orders;
SELECT max(id) FROM public.orders;
RESET search_path;
CREATE TEMP TABLE scratch (id integer, name text);
INSERT INTO scratch VALUES (1, 'one'), (2, 'two');
SELECT * FROM scratch ORDER BY id;
SELECT o.tenant_id, s.name FROM orders o JOIN scratch s ON s.id = o.qty;
INSERT INTO items (tenant_id, id) VALUES (301, 1);
INSERT INTO items (tenant_id, id) VALUES (302, 2);
INSERT INTO items (tenant_id, id) VALUES (303, 3);
SELECT tenant_id, id FROM items WHERE tenant_id = 301;
SELECT tenant_id, id FROM items WHERE tenant_id = 302;
DROP TABLE IF EXISTS scratch;
CREATE VIEW v_schema AS SELECT tenant_id, id, note FROM orders WHERE id < 4;
SELECT public.v_schema.id FROM v_schema WHERE public.v_schema.tenant_id = 3;
SELECT public.v_schema.* FROM public.v_schema ORDER BY public.v_schema.tenant_id, public.v_schema.id;
SELECT public.v_schema.note, items.sku FROM v_schema JOIN items ON items.tenant_id = public.v_schema.tenant_id AND items.order_id = public.v_schema.id;
SELECT count(*) FROM v_schema WHERE EXISTS (SELECT 1 FROM items WHERE items.order_id = public.v_schema.id);
SELECT public.v_schema.id FROM v_schema AS other;
-- only: postgres
SELECT pg_typeof(v_schema), id FROM v_schema WHERE tenant_id = 3;
-- only: postgres
SELECT DISTINCT pg_typeof(x) FROM v_schema x;
-- the row of a view as a value
CREATE VIEW v_other AS SELECT tenant_id, order_id, sku FROM items;
-- only: postgres
-- foreach x: x | (x) | x, 1 | CASE WHEN x.id < 2 THEN NULL ELSE x END | x::v_schema::text | x IS DISTINCT FROM NULL | x AS r | x.* | (x.*)::text | x::text | x IS NULL | row_to_json(x) | row_to_json(x.*) | to_jsonb(x) | count(x) | count(x.*) | count(DISTINCT x) | array_agg(x ORDER BY x.tenant_id, x.id) | json_agg(x ORDER BY x.tenant_id, x.id) | (array_agg(x ORDER BY x.tenant_id, x.id))[1] | (x).note | (x).* | ROW(x, 1) | ROW(x.*) | ARRAY[x] | COALESCE(x, NULL) | x = x | x::v_schema | max(x::text) | pg_typeof(x) | pg_typeof(ARRAY[x]) | num_nulls(x) | (SELECT x) | CASE WHEN x.id > 1 THEN x END | md5(x::text)
SELECT ${x} FROM v_schema AS x WHERE x.tenant_id < 4;
-- only: postgres
-- foreach x: v_schema | row_to_json(v_schema) | count(v_schema) | v_schema IS NOT NULL | array_agg(v_schema ORDER BY tenant_id, id) | v_schema::text
SELECT ${x} FROM v_schema WHERE tenant_id = 3;
-- only: postgres
-- foreach x: o | count(o) | row_to_json(o) | o IS NULL | o::text | COALESCE(o::text, '-') | ROW(o, v.id)
SELECT ${x} FROM v_schema v LEFT JOIN v_other o ON o.tenant_id = v.tenant_id AND o.order_id = v.id + 2 WHERE v.tenant_id < 3;
-- only: postgres
SELECT x, count(*) FROM v_schema x GROUP BY x ORDER BY x;
-- only: postgres
SELECT DISTINCT x FROM v_schema x ORDER BY x;
-- only: postgres
SELECT x FROM v_schema x ORDER BY x.tenant_id DESC, x.id LIMIT 3;
-- only: postgres
SELECT x FROM v_schema x ORDER BY x LIMIT 3;
-- only: postgres
SELECT x FROM v_schema x UNION ALL SELECT y FROM v_schema y ORDER BY x LIMIT 5;
-- only: postgres
SELECT s.r FROM (SELECT x AS r FROM v_schema x) s WHERE (s.r).id = 2 ORDER BY s.r;
-- only: postgres
SELECT x, rank() OVER (PARTITION BY x.note ORDER BY x) FROM v_schema x;
-- only: postgres
WITH c AS (SELECT x FROM v_schema x) SELECT c.x, (c.x).id FROM c;
-- only: postgres
SELECT jsonb_agg(x ORDER BY x.tenant_id, x.id) FILTER (WHERE x.id > 1), x.tenant_id FROM v_schema x GROUP BY x.tenant_id;
-- only: postgres
SELECT v_schema FROM v_schema JOIN v_other ON v_other = v_other AND v_other.tenant_id = v_schema.tenant_id;
-- only: postgres
CREATE VIEW v_rows AS SELECT v_schema, tenant_id AS t FROM v_schema;
-- foreach x: v_schema | (v_schema).id | v_rows | count(v_schema) | row_to_json(v_schema) | (v_rows.v_schema).note | x.*::text
-- only: postgres
SELECT ${x} FROM v_rows;
-- only: postgres
SELECT x, (x.v_schema).id FROM v_rows x WHERE t < 4 ORDER BY ((x).v_schema).id, t;
-- only: postgres
SELECT v_schema FROM v_rows ORDER BY (v_schema).id, t LIMIT 2;
-- only: postgres
DROP VIEW v_rows;
DROP VIEW v_other;
DROP VIEW v_schema;
