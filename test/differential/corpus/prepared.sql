-- PREPARE and EXECUTE in SQL; settings; statements that are nobody's rows.

-- only: postgres
-- block
PREPARE a AS SELECT tenant_id, id FROM orders WHERE qty > $1;
EXECUTE a (3);
EXECUTE a (100);
EXECUTE a (NULL);
PREPARE b (bigint) AS SELECT id FROM orders WHERE tenant_id = $1;
EXECUTE b (3);
EXECUTE b (4);
EXECUTE b ('5');
PREPARE c (bigint, text) AS UPDATE orders SET note = $2 WHERE tenant_id = $1 RETURNING id;
EXECUTE c (3, 'x');
EXECUTE c (9, NULL);
DEALLOCATE a;
EXECUTE a (3);
-- end
-- only: postgres
-- block
EXECUTE b (3);
DEALLOCATE ALL;
EXECUTE b (3);
-- end
-- only: postgres
-- block
PREPARE d AS SELECT count(*), max(price) FROM orders WHERE status = $1 OR qty = $2;
EXECUTE d ('new', 3);
EXECUTE d ('sent', 1);
PREPARE d AS SELECT 1;
EXECUTE d (1);
DEALLOCATE d;
-- end
SHOW timezone;
SHOW server_encoding;
SHOW standard_conforming_strings;
SELECT current_setting('timezone');
SET datestyle = 'SQL, DMY';
-- only: postgres
SELECT day FROM orders WHERE day IS NOT NULL ORDER BY day, tenant_id, id LIMIT 3;
RESET datestyle;
SET timezone = 'Asia/Tokyo';
-- only: postgres
SELECT at::timestamptz FROM events ORDER BY at LIMIT 3;
-- only: postgres
SELECT max(at::timestamptz) FROM events;
RESET timezone;
-- only: postgres
SET extra_float_digits = 0;
-- only: postgres
SELECT price::double precision / 3 FROM orders ORDER BY tenant_id, id;
RESET extra_float_digits;
-- only: postgres
SET intervalstyle = 'iso_8601';
-- only: postgres
SELECT at - timestamp '2024-01-01' FROM events ORDER BY at;
RESET intervalstyle;
-- only: postgres
SET bytea_output = 'escape';
-- only: postgres
SELECT name::bytea FROM customers WHERE name IS NOT NULL ORDER BY name LIMIT 4;
RESET bytea_output;
SELECT 1;
SELECT 1 + 1 AS two, 'x' || 'y', NULL, true, 1.50, '2024-01-01'::date;
VALUES (1, 'a'), (2, 'b');
SELECT generate_series(1, 3);
SELECT * FROM generate_series(1, 3) AS g (n) WHERE n > 1;
SELECT * FROM (VALUES (1, NULL), (2, 'x')) v (a, b) ORDER BY a DESC;
SELECT count(*) FROM pg_catalog.pg_class WHERE relname = 'orders' AND relkind = 'r';
SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'orders' ORDER BY ordinal_position;
SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name;
-- only: postgres
-- block
PREPARE e (text) AS SELECT DISTINCT $1 || '|' FROM orders WHERE tenant_id = 3;
EXECUTE e (007);
EXECUTE e (.5);
EXECUTE e (1.);
EXECUTE e (-0);
EXECUTE e (-007.10);
EXECUTE e (+3);
EXECUTE e (true);
PREPARE f (boolean) AS SELECT count(*) FROM orders WHERE (qty > 2) = $1;
EXECUTE f (true);
EXECUTE f (1);
PREPARE g (date) AS SELECT count(*) FROM orders WHERE tenant_id = 3 AND $1 < '2030-01-01';
EXECUTE g (5);
PREPARE h (numeric) AS SELECT count(*) FROM orders WHERE price > $1 AND tenant_id = 3;
EXECUTE h (007.50);
EXECUTE h (2);
EXECUTE h (true);
PREPARE i (bigint) AS SELECT count(*) FROM orders WHERE tenant_id = $1;
EXECUTE i (003);
EXECUTE i (true);
-- end
-- set_config(), alone and inside of statements.
-- block
SELECT set_config('my.x', 'a', false), set_config('my.y', 'b', false) AS y, current_setting('my.x'), 1;
SELECT current_setting('my.x'), current_setting('my.y');
SELECT set_config('my.x', upper('c') || '1', false);
SELECT current_setting('my.x');
BEGIN;
SELECT set_config('my.x', 'd', true), set_config('my.y', lower('E'), true);
SELECT current_setting('my.x'), count(*) FROM orders WHERE tenant_id = 3;
SELECT current_setting('my.y'), count(*) FROM orders WHERE tenant_id = 4;
SAVEPOINT s;
WITH t AS (SELECT set_config('my.x', 'f', true) AS x) SELECT x FROM t;
ROLLBACK TO s;
SELECT current_setting('my.x');
COMMIT;
SELECT current_setting('my.x'), current_setting('my.y');
SELECT set_config('my.x', max(note), false) FROM orders WHERE tenant_id = 3;
SELECT current_setting('my.x');
SELECT set_config('my.x', 'never', false) FROM orders WHERE tenant_id = 3 AND false;
SELECT current_setting('my.x');
SELECT set_config('my.x', NULL, false), set_config('my.y', '', false);
SELECT current_setting('my.y');
PREPARE sets AS SELECT set_config('my.x', $1, false);
EXECUTE sets ('g');
SELECT current_setting('my.x');
DEALLOCATE sets;
SELECT set_config('my.x', 'h', false), set_config('nosuch', 'x', false), 1;
SELECT set_config(NULL, 'x', false);
SELECT current_setting('my.x');
-- end
