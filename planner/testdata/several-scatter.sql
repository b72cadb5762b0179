-- Queries that fall apart by shard: every shard runs them, the rows come one after the other.
SELECT * FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders
SELECT id, note FROM orders WHERE id > 3;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, note FROM orders WHERE id > 3
SELECT o.id, i.name FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id, i.name FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id
SELECT o.id, i.name FROM orders o, items i WHERE i.tenant_id = o.tenant_id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id, i.name FROM orders o, items i WHERE i.tenant_id = o.tenant_id
SELECT * FROM orders JOIN items USING (tenant_id);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders JOIN items USING (tenant_id)
SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.n > 1;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.n > 1
SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id RIGHT JOIN orders p ON p.tenant_id = i.tenant_id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id RIGHT JOIN orders p ON p.tenant_id = i.tenant_id
-- Reference tables are joined freely, but not on the preserved side alone.
SELECT o.id, (SELECT random()) FROM orders o;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.id FROM public.orders t
-->   shard text: SELECT o.id, (SELECT random()) FROM cleave_rel_1 o
-->   why: its rows cannot be combined as they come from the shards
SELECT o.id FROM orders o WHERE o.qty < (SELECT array_length(array_agg(id), 1) FROM small);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.id, t.qty FROM public.orders t
-->   relation cleave_rel_2: any shard: SELECT t.id FROM public.small t
-->   shard text: SELECT o.id FROM cleave_rel_1 o WHERE o.qty < (SELECT array_length(array_agg(id), 1) FROM cleave_rel_2 small)
-->   why: its rows cannot be combined as they come from the shards
SELECT o.id FROM orders o WHERE o.qty < (SELECT avg(id) FROM small);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id FROM orders o WHERE o.qty < (SELECT avg(id) FROM small)
SELECT o.id, s.label FROM orders o, (SELECT label FROM small LIMIT 1) s;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.id FROM public.orders t
-->   relation cleave_rel_2: any shard: SELECT t.label FROM public.small t
-->   shard text: SELECT o.id, s.label FROM cleave_rel_1 o, (SELECT label FROM cleave_rel_2 small LIMIT 1) s
-->   why: its rows cannot be combined as they come from the shards
SELECT o.id, (SELECT label FROM small s WHERE s.id = o.id LIMIT 1), random() FROM orders o;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id, (SELECT label FROM small s WHERE s.id = o.id LIMIT 1), random() FROM orders o
SELECT o.id, s.label FROM orders o JOIN small s ON s.id = o.id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id, s.label FROM orders o JOIN small s ON s.id = o.id
SELECT o.id, s.label FROM orders o LEFT JOIN small s ON s.id = o.id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id, s.label FROM orders o LEFT JOIN small s ON s.id = o.id
SELECT o.id, s.label FROM small s LEFT JOIN orders o ON s.id = o.id;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: any shard: SELECT t.id, t.label FROM public.small t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.id FROM public.orders t
-->   shard text: SELECT o.id, s.label FROM cleave_rel_1 s LEFT JOIN cleave_rel_2 o ON s.id = o.id
-->   why: its rows cannot be combined as they come from the shards
-- Subqueries that follow the shard key.
SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id)
SELECT o.id, (SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id) FROM orders o;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id, (SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id) FROM orders o
SELECT * FROM orders o WHERE id IN (SELECT order_id FROM items i WHERE i.tenant_id = o.tenant_id);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o WHERE id IN (SELECT order_id FROM items i WHERE i.tenant_id = o.tenant_id)
SELECT * FROM orders o WHERE tenant_id IN (SELECT id FROM small);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o WHERE tenant_id IN (SELECT id FROM small)
SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.order_id FROM public.items t
-->   index on cleave_rel_2: order_id
-->   shard text: SELECT * FROM cleave_rel_1 o WHERE EXISTS (SELECT 1 FROM cleave_rel_2 i WHERE i.order_id = o.id)
-->   why: its rows cannot be combined as they come from the shards
SELECT s.tenant_id, s.x FROM (SELECT tenant_id, id + 1 AS x FROM orders) s WHERE s.x > 3;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT s.tenant_id, s.x FROM (SELECT tenant_id, id + 1 AS x FROM orders) s WHERE s.x > 3
SELECT * FROM (SELECT tenant_id, row_number() OVER (PARTITION BY tenant_id ORDER BY id DESC) AS rn FROM orders) s WHERE rn = 1;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM (SELECT tenant_id, row_number() OVER (PARTITION BY tenant_id ORDER BY id DESC) AS rn FROM orders) s WHERE rn = 1
SELECT * FROM (SELECT tenant_id, count(*) AS c FROM orders GROUP BY tenant_id) s JOIN items i ON i.tenant_id = s.tenant_id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM (SELECT tenant_id, count(*) AS c FROM orders GROUP BY tenant_id) s JOIN items i ON i.tenant_id = s.tenant_id
SELECT * FROM orders o JOIN LATERAL (SELECT max(n) AS m FROM items i WHERE i.tenant_id = o.tenant_id) l ON true;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o JOIN LATERAL (SELECT max(n) AS m FROM items i WHERE i.tenant_id = o.tenant_id) l ON true
-- ORDER BY.
SELECT * FROM orders ORDER BY id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders ORDER BY id
-->   combine: merge by column 2
SELECT id FROM orders ORDER BY id DESC, note NULLS FIRST;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, note AS cleave_key_1 FROM orders ORDER BY id DESC, note NULLS FIRST
-->   combine: merge by column 1 desc, -1 nulls first, hide 1
SELECT id, note AS n FROM orders ORDER BY n, 1 DESC NULLS LAST;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, note AS n FROM orders ORDER BY n, 1 DESC NULLS LAST
-->   combine: merge by column 2, 1 desc nulls last
SELECT id FROM orders ORDER BY qty + 1, lower(note);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, qty + 1 AS cleave_key_1, lower(note) AS cleave_key_2 FROM orders ORDER BY qty + 1, lower(note)
-->   combine: merge by column -2, -1, hide 2
SELECT * FROM orders ORDER BY qty * 2;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT *, qty * 2 AS cleave_key_1 FROM orders ORDER BY qty * 2
-->   combine: merge by column -1, hide 1
SELECT id AS qty FROM orders ORDER BY qty;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id AS qty FROM orders ORDER BY qty
-->   combine: merge by column 1
SELECT o.*, i.n FROM orders o JOIN items i USING (tenant_id) ORDER BY n, o.id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.*, i.n, o.id AS cleave_key_1 FROM orders o JOIN items i USING (tenant_id) ORDER BY n, o.id
-->   combine: merge by column 6, -1, hide 1
SELECT id FROM orders ORDER BY random();
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, random() AS cleave_key_1 FROM orders ORDER BY cleave_key_1
-->   combine: merge by column -1, hide 1
-- LIMIT and OFFSET.
SELECT * FROM orders ORDER BY id LIMIT 10;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders ORDER BY id LIMIT 10
-->   combine: merge by column 2, limit 10
SELECT * FROM orders ORDER BY id LIMIT 10 OFFSET 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders ORDER BY id LIMIT 15
-->   combine: merge by column 2, limit 10, offset 5
SELECT * FROM orders ORDER BY id LIMIT $1 OFFSET $2;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders ORDER BY id LIMIT LEAST($1::bigint, 4611686018427387903) + LEAST($2::bigint, 4611686018427387903)
-->   combine: merge by column 2, limit $1, offset $2
SELECT * FROM orders ORDER BY id LIMIT $1;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders ORDER BY id LIMIT LEAST($1::bigint, 4611686018427387903)
-->   combine: merge by column 2, limit $1
SELECT * FROM orders OFFSET 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders
-->   combine: offset 5
SELECT * FROM orders LIMIT ALL;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders
SELECT * FROM orders ORDER BY id FETCH FIRST 3 ROWS ONLY;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders ORDER BY id LIMIT 3
-->   combine: merge by column 2, limit 3
-- DISTINCT.
SELECT DISTINCT tenant_id, note FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT DISTINCT tenant_id, note FROM orders
SELECT DISTINCT note FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT DISTINCT note FROM orders ORDER BY 1
-->   combine: merge by column 1, unique by 1
SELECT DISTINCT note, qty FROM orders ORDER BY qty DESC LIMIT 3;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT DISTINCT note, qty FROM orders ORDER BY qty DESC, 1 LIMIT 3
-->   combine: merge by column 2 desc, 1, unique by 2, limit 3
SELECT DISTINCT ON (note) note, id FROM orders ORDER BY note, id DESC;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT DISTINCT ON (note) note, id FROM orders ORDER BY note, id DESC
-->   combine: merge by column 1, 2 desc, unique by 1
SELECT DISTINCT ON (qty) id FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT DISTINCT ON (qty) id, qty AS cleave_key_1 FROM orders ORDER BY qty
-->   combine: merge by column -1, unique by 1, hide 1
SELECT DISTINCT ON (tenant_id) * FROM orders ORDER BY tenant_id, id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT DISTINCT ON (tenant_id) * FROM orders ORDER BY tenant_id, id
-->   combine: merge by column 1, 2
-- Groups and windows of the shard key.
SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id
SELECT tenant_id, qty, sum(price) FROM orders GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY sum(price) DESC LIMIT 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT tenant_id, qty, sum(price) FROM orders GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY sum(price) DESC LIMIT 5
-->   combine: merge by column 3 desc, limit 5
SELECT tenant_id, id, rank() OVER (PARTITION BY tenant_id ORDER BY id) FROM orders ORDER BY 3;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT tenant_id, id, rank() OVER (PARTITION BY tenant_id ORDER BY id) FROM orders ORDER BY 3
-->   combine: merge by column 3
SELECT tenant_id, id, rank() OVER w FROM orders WINDOW w AS (PARTITION BY tenant_id, qty ORDER BY id);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT tenant_id, id, rank() OVER w FROM orders WINDOW w AS (PARTITION BY tenant_id, qty ORDER BY id)
SELECT region, visitor, count(*) FROM visits GROUP BY region, visitor;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT region, visitor, count(*) FROM visits GROUP BY region, visitor
-- Set operations.
SELECT id FROM orders UNION ALL SELECT order_id FROM items;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id FROM orders UNION ALL SELECT order_id FROM items
SELECT id, note FROM orders UNION ALL SELECT id, name FROM items ORDER BY 2, id LIMIT 4;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, note FROM orders UNION ALL SELECT id, name FROM items ORDER BY 2, id LIMIT 4
-->   combine: merge by column 2, 1, limit 4
SELECT tenant_id, id FROM orders UNION SELECT tenant_id, order_id FROM items;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT tenant_id, id FROM orders UNION SELECT tenant_id, order_id FROM items
SELECT tenant_id FROM orders EXCEPT SELECT tenant_id FROM items;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT tenant_id FROM orders EXCEPT SELECT tenant_id FROM items
-- Locks.
SELECT * FROM orders WHERE qty > 3 FOR UPDATE;
--> several shards [SELECT, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE qty > 3 FOR UPDATE
SELECT o.id FROM orders o JOIN small s ON s.id = o.id WHERE o.tenant_id = 5 FOR UPDATE;
--> refused 0A000: rows of the reference table small are locked FOR UPDATE on every shard, which a statement on sharded tables cannot do
-->   hint: Lock those of the sharded table alone: FOR UPDATE OF o; if rows of small have to be locked as well, then in a statement of its own before.
SELECT o.id FROM orders o, (SELECT id FROM small) s WHERE s.id = o.id FOR SHARE;
--> several shards [SELECT, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id FROM orders o, (SELECT id FROM small) s WHERE s.id = o.id FOR SHARE
SELECT o.id FROM orders o JOIN small s ON s.id = o.id WHERE o.tenant_id = 5 FOR UPDATE OF o;
--> one shard shard-0, key (5) [SELECT, rows]
SELECT o.id FROM orders o JOIN small s ON s.id = o.id FOR UPDATE OF o FOR KEY SHARE OF s;
--> several shards [SELECT, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id FROM orders o JOIN small s ON s.id = o.id FOR UPDATE OF o FOR KEY SHARE OF s
SELECT o.id FROM orders o JOIN small s ON s.id = o.id WHERE o.tenant_id = 5 FOR NO KEY UPDATE OF s;
--> refused 0A000: rows of the reference table small are locked FOR NO KEY UPDATE on every shard, which a statement on sharded tables cannot do
-->   hint: Lock the rows of small in a statement of its own; here FOR SHARE and FOR KEY SHARE of them are taken.
SELECT * FROM orders ORDER BY id LIMIT 1 FOR UPDATE;
--> refused 0A000: SELECT ... FOR UPDATE with LIMIT over several shards would lock more rows than it returns
-->   hint: Add the shard key to the WHERE clause, or leave out LIMIT.
-- Fewer shards.
SELECT * FROM orders WHERE tenant_id IN (1, 2, 3) ORDER BY id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IN (1, 2, 3) ORDER BY id
-->   combine: merge by column 2
SELECT * FROM orders WHERE tenant_id IN ($1, $2) ORDER BY id;
--> one shard, key ($1), ($2) [SELECT, read only, rows]
SELECT * FROM orders o JOIN items i USING (tenant_id) WHERE tenant_id = 1 OR i.tenant_id = 3;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o JOIN items i USING (tenant_id) WHERE tenant_id = 1 OR i.tenant_id = 3
-- The time of the transaction is one for all.
SELECT id, now() FROM orders WHERE now() > $1;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, $2::timestamp with time zone AS now FROM orders WHERE $2::timestamp with time zone > $1
SELECT id, current_date FROM orders ORDER BY current_timestamp(2);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, $1::timestamp with time zone::pg_catalog.date AS "current_date", $1::timestamp with time zone::timestamp (2) with time zone AS cleave_key_1 FROM orders ORDER BY $1::timestamp with time zone::timestamp (2) with time zone
-->   combine: merge by column -1, hide 1
-- Not alike on every shard.
SELECT ctid FROM orders;
--> refused 0A000: the system column ctid has no meaning for rows of several shards
-->   hint: Name the rows by their key.
SELECT id, current_database() FROM orders;
--> several shards [SELECT, read only, rows]
-->   text: SELECT id, (SELECT CAST('cleave' AS pg_catalog.name) AS current_database) FROM orders
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, (SELECT 'cleave'::pg_catalog.name AS current_database) FROM orders
EXPLAIN (ROUTE) SELECT * FROM orders ORDER BY id LIMIT 3;
--> explain [EXPLAIN, read only, rows]
-->   | plan: several shards
-->   | operation: scatter
-->   | shards: shard-0, shard-1, shard-2
-->   | shard text: SELECT * FROM orders ORDER BY id LIMIT 3
-->   | combine: merge by column 2, limit 3
-->   | tables: orders (sharded)
DECLARE c CURSOR FOR SELECT * FROM orders ORDER BY id;
--> several shards [DECLARE CURSOR, read only]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders ORDER BY id
-->   combine: merge by column 2
-- A subquery behind IN follows the column.
SELECT * FROM orders WHERE tenant_id IN (SELECT tenant_id FROM items WHERE n > 3);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IN (SELECT tenant_id FROM items WHERE n > 3)
SELECT * FROM orders WHERE (tenant_id, id) IN (SELECT tenant_id, order_id FROM items);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE (tenant_id, id) IN (SELECT tenant_id, order_id FROM items)
SELECT * FROM orders WHERE tenant_id = 5 AND tenant_id IN (SELECT tenant_id FROM items WHERE n > 3);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id NOT IN (SELECT tenant_id FROM items);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE NOT tenant_id IN (SELECT tenant_id FROM cleave_rel_2 items)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id IN (SELECT tenant_id FROM items LIMIT 3);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id IN (SELECT tenant_id FROM cleave_rel_2 items LIMIT 3)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id IN (SELECT tenant_id FROM items LIMIT 3) OR id = 1;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id IN (SELECT tenant_id FROM cleave_rel_2 items LIMIT 3) OR id = 1
-->   why: its rows cannot be combined as they come from the shards
-- Arrays of keys.
SELECT * FROM orders WHERE tenant_id = ANY($1);
--> one shard, key (any of $1) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY($1::bigint[]) ORDER BY id;
--> one shard, key (any of $1::bigint[]) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY('{1,2,3}') ORDER BY id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = ANY('{1,2,3}') ORDER BY id
-->   combine: merge by column 2
SELECT * FROM orders WHERE tenant_id = 2 + 3;
--> one shard shard-0, key (5) [SELECT, read only, rows]
-- Texts that are cast to times are looked at; what is certainly no text is not.
SELECT id, note::date FROM orders ORDER BY note::date;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id, CASE WHEN pg_catalog.textregexeq(note::pg_catalog.text COLLATE pg_catalog."C", '[wWyY]') THEN pg_catalog.regexp_replace(note::pg_catalog.text COLLATE pg_catalog."C", 'now|today|tomorrow|yesterday', E'cleave_time_word \\&', 'i') ELSE note END::date FROM orders ORDER BY CASE WHEN pg_catalog.textregexeq(note::pg_catalog.text COLLATE pg_catalog."C", '[wWyY]') THEN pg_catalog.regexp_replace(note::pg_catalog.text COLLATE pg_catalog."C", 'now|today|tomorrow|yesterday', E'cleave_time_word \\&', 'i') ELSE note END::date
-->   combine: merge by column 2
SELECT date(note), count(*) FROM orders GROUP BY 1;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT date(CASE WHEN pg_catalog.textregexeq(note::pg_catalog.text COLLATE pg_catalog."C", '[wWyY]') THEN pg_catalog.regexp_replace(note::pg_catalog.text COLLATE pg_catalog."C", 'now|today|tomorrow|yesterday', E'cleave_time_word \\&', 'i') ELSE note END) AS c1, count(*) AS c2 FROM orders GROUP BY 1
-->   shard text: SELECT cleave_rel_1.c1 AS date, COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY cleave_rel_1.c1
-->   why: its groups have rows of several shards
SELECT x::date FROM (SELECT upper(note) || 'x' AS x FROM orders) s;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT CASE WHEN CASE WHEN pg_catalog.texticregexeq(x::pg_catalog.text COLLATE pg_catalog."C", 'now|today|tomorrow|yesterday') THEN pg_catalog.concat('cleave_time_word ', x::pg_catalog.text)::pg_catalog.date IS NULL END THEN NULL ELSE x END::date FROM (SELECT upper(note) || 'x' AS x FROM orders) s
SELECT to_timestamp(id)::date, id::text::int, now()::date FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT to_timestamp(id)::date, id::text::int, $1::timestamp with time zone::date AS now FROM orders
UPDATE orders SET note = (SELECT note)::date;
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE orders SET note = (SELECT CASE WHEN CASE WHEN pg_catalog.texticregexeq(cleave_word.v::pg_catalog.text COLLATE pg_catalog."C", 'now|today|tomorrow|yesterday') THEN pg_catalog.concat('cleave_time_word ', cleave_word.v::pg_catalog.text)::pg_catalog.date IS NULL END THEN NULL ELSE cleave_word.v END FROM (SELECT (SELECT note) AS v OFFSET 0) cleave_word)::date
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
INSERT INTO orders (tenant_id, id, note) VALUES (1, 1, lower($1)::date), (2, 2, $2::date) RETURNING note::date;
--> several shards [INSERT, rows]
-->   operation: insert
-->   rows: 2
-->   shard text: INSERT INTO orders (tenant_id, id, note) VALUES (1, 1, CASE WHEN CASE WHEN pg_catalog.texticregexeq(lower($1)::pg_catalog.text COLLATE pg_catalog."C", 'now|today|tomorrow|yesterday') THEN pg_catalog.concat('cleave_time_word ', lower($1)::pg_catalog.text)::pg_catalog.date IS NULL END THEN NULL ELSE lower($1) END::date) RETURNING CASE WHEN pg_catalog.textregexeq(note::pg_catalog.text COLLATE pg_catalog."C", '[wWyY]') THEN pg_catalog.regexp_replace(note::pg_catalog.text COLLATE pg_catalog."C", 'now|today|tomorrow|yesterday', E'cleave_time_word \\&', 'i') ELSE note END::date
-->   first key: (1)
-->   why: the rows have different shard keys
