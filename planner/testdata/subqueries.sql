-- Subqueries in FROM.
SELECT * FROM (SELECT * FROM orders WHERE tenant_id = 5) s;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT * FROM orders) s WHERE s.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT tenant_id AS t, id FROM orders) s WHERE t = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT id AS tenant_id FROM orders) s WHERE s.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM (SELECT id AS tenant_id FROM orders) s WHERE s.tenant_id = 5
SELECT * FROM (SELECT * FROM orders LIMIT 10) s WHERE s.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   shard text: SELECT * FROM (SELECT * FROM cleave_rel_1 orders LIMIT 10) s WHERE s.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT * FROM orders OFFSET 1) s WHERE s.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   shard text: SELECT * FROM (SELECT * FROM cleave_rel_1 orders OFFSET 1) s WHERE s.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT * FROM orders ORDER BY id) s WHERE s.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT DISTINCT tenant_id, note FROM orders) s WHERE s.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT DISTINCT ON (note) * FROM orders) s WHERE s.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   shard text: SELECT * FROM (SELECT DISTINCT ON (note) * FROM cleave_rel_1 orders) s WHERE s.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT tenant_id, row_number() OVER (ORDER BY id) FROM orders) s WHERE s.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id FROM public.orders t
-->   shard text: SELECT * FROM (SELECT tenant_id, row_number() OVER (ORDER BY id) FROM cleave_rel_1 orders) s WHERE s.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT tenant_id, row_number() OVER w FROM orders WINDOW w AS (ORDER BY id)) s WHERE s.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id FROM public.orders t
-->   shard text: SELECT * FROM (SELECT tenant_id, row_number() OVER w FROM cleave_rel_1 orders WINDOW w AS (ORDER BY id)) s WHERE s.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id) s WHERE s.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT tenant_id, note, count(*) FROM orders GROUP BY tenant_id, note HAVING count(*) > 1) s WHERE s.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT tenant_id, count(*) FROM orders GROUP BY ROLLUP (tenant_id)) s WHERE s.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT tenant_id AS c1, count(*) AS c2 FROM orders GROUP BY 1
-->   shard text: SELECT * FROM (SELECT cleave_rel_1.c1 AS tenant_id, COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY ROLLUP (cleave_rel_1.c1)) s WHERE s.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT tenant_id, count(*) FROM orders GROUP BY GROUPING SETS ((tenant_id), ())) s WHERE s.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT tenant_id AS c1, count(*) AS c2 FROM orders GROUP BY 1
-->   shard text: SELECT * FROM (SELECT cleave_rel_1.c1 AS tenant_id, COALESCE(pg_catalog.sum(cleave_rel_1.c2)::bigint, 0) AS count FROM cleave_rel_1 GROUP BY GROUPING SETS (cleave_rel_1.c1, ())) s WHERE s.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT max(tenant_id) AS tenant_id FROM orders) s WHERE s.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT max(tenant_id) AS c1 FROM orders
-->   shard text: SELECT * FROM (SELECT pg_catalog.max(cleave_rel_1.c1) AS tenant_id FROM cleave_rel_1) s WHERE s.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT count(*) AS n FROM orders WHERE tenant_id = 5) s, items i WHERE i.tenant_id = 5;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM (SELECT tenant_id, count(*) FROM orders WHERE tenant_id = 5 GROUP BY tenant_id) s JOIN items i ON i.tenant_id = s.tenant_id;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT tenant_id FROM orders WHERE tenant_id = 5 LIMIT 1) s JOIN items i ON i.tenant_id = s.tenant_id;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT tenant_id FROM orders LIMIT 1) s JOIN items i ON i.tenant_id = s.tenant_id AND i.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.orders t
-->   relation cleave_rel_2: shard-0: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t WHERE t.tenant_id = 5
-->   shard text: SELECT * FROM (SELECT tenant_id FROM cleave_rel_1 orders LIMIT 1) s JOIN cleave_rel_2 i ON i.tenant_id = s.tenant_id AND i.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM items i LEFT JOIN (SELECT tenant_id, id FROM orders) s ON s.tenant_id = i.tenant_id WHERE i.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM items i LEFT JOIN (SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id) s USING (tenant_id) WHERE i.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM items i LEFT JOIN (SELECT count(*) AS n FROM orders o) s ON true WHERE i.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT count(*) AS c1 FROM orders o
-->   relation cleave_rel_2: shard-0: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t WHERE t.tenant_id = 5
-->   shard text: SELECT * FROM cleave_rel_2 i LEFT JOIN (SELECT COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS n FROM cleave_rel_1) s ON true WHERE i.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
-- LATERAL.
SELECT * FROM orders o, LATERAL (SELECT * FROM items i WHERE i.tenant_id = o.tenant_id LIMIT 1) s WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o CROSS JOIN LATERAL (SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id) s WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o, LATERAL (SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 5) s;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o, LATERAL (SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 5) s
SELECT * FROM orders o, LATERAL (SELECT i.id FROM items i WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 5) s;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN LATERAL (SELECT i.id FROM items i WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 5) s ON true;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o LEFT JOIN LATERAL (SELECT i.id FROM items i WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 5) s ON true
SELECT * FROM orders o LEFT JOIN LATERAL (SELECT * FROM items i WHERE i.tenant_id = o.tenant_id ORDER BY id LIMIT 1) s ON true WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o, LATERAL (SELECT o.tenant_id AS t) s WHERE s.t = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
-- Subqueries in WHERE and in the select list.
SELECT * FROM orders WHERE tenant_id = 5 AND id IN (SELECT order_id FROM items WHERE tenant_id = 5);
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 AND id IN (SELECT order_id FROM items);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id = 5 AND id IN (SELECT order_id FROM cleave_rel_2 items)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o WHERE o.tenant_id = 5 AND EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o WHERE o.tenant_id = 5 AND NOT EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 AND EXISTS (SELECT 1 FROM items WHERE items.tenant_id = orders.tenant_id);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 5);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 5)
SELECT * FROM orders o WHERE o.tenant_id = 5 OR EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o WHERE o.tenant_id = 5 OR EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id)
SELECT * FROM orders o WHERE o.tenant_id = 5 AND (o.id = 1 OR EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id));
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT (SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id) FROM orders o WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT (SELECT count(*) FROM items i) FROM orders o WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT count(*) AS c1 FROM items i
-->   relation cleave_rel_2: shard-0: SELECT t.tenant_id FROM public.orders t WHERE t.tenant_id = 5
-->   shard text: SELECT (SELECT COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS count FROM cleave_rel_1) FROM cleave_rel_2 o WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT (SELECT count(*) FROM items WHERE tenant_id = 5), (SELECT count(*) FROM orders WHERE tenant_id = 5);
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT ARRAY(SELECT id FROM items WHERE tenant_id = $1);
--> one shard, key ($1) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = (SELECT 5);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = (SELECT 5)
SELECT * FROM orders WHERE tenant_id = 5 AND id = (SELECT max(id) FROM orders WHERE tenant_id = 5);
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 AND id > ALL (SELECT id FROM orders WHERE tenant_id = 6);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-1: SELECT t.tenant_id, t.id FROM public.orders t WHERE t.tenant_id = 6
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id = 5 AND id > ALL (SELECT id FROM cleave_rel_2 orders WHERE tenant_id = 6)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o WHERE o.tenant_id = 5 ORDER BY (SELECT max(id) FROM items i WHERE i.tenant_id = o.tenant_id);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT count(*) FROM orders o WHERE o.tenant_id = 5 HAVING count(*) > (SELECT count(*) FROM items);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT count(*) AS c1 FROM items
-->   relation cleave_rel_2: shard-0: SELECT t.tenant_id FROM public.orders t WHERE t.tenant_id = 5
-->   shard text: SELECT count(*) FROM cleave_rel_2 o WHERE o.tenant_id = 5 HAVING count(*) > (SELECT COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS count FROM cleave_rel_1)
-->   why: its rows cannot be combined as they come from the shards
-- Names that mean something else than they seem to.
SELECT * FROM items WHERE tenant_id = 5 AND EXISTS (SELECT 1 FROM orders WHERE tenant_id = 5);
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM items WHERE EXISTS (SELECT 1 FROM small WHERE tenant_id = 5);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM items WHERE EXISTS (SELECT 1 FROM small WHERE tenant_id = 5)
SELECT * FROM items i WHERE i.tenant_id = 5 AND EXISTS (SELECT 1 FROM orders o WHERE tenant_id = i.tenant_id);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM items i WHERE i.tenant_id = 5 AND EXISTS (SELECT 1 FROM orders o WHERE order_id = 5);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.orders t
-->   shard text: SELECT * FROM cleave_rel_1 i WHERE i.tenant_id = 5 AND EXISTS (SELECT 1 FROM cleave_rel_2 o WHERE order_id = 5)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM items WHERE items.tenant_id = 5 AND EXISTS (SELECT 1 FROM orders items WHERE items.tenant_id = items.tenant_id);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.orders t WHERE t.tenant_id = t.tenant_id
-->   index on cleave_rel_2: tenant_id
-->   shard text: SELECT * FROM cleave_rel_1 items WHERE items.tenant_id = 5 AND EXISTS (SELECT 1 FROM cleave_rel_2 items WHERE items.tenant_id = items.tenant_id)
-->   why: its rows cannot be combined as they come from the shards
-- Set operations: each arm by itself.
SELECT id FROM orders WHERE tenant_id = 5 UNION ALL SELECT id FROM items WHERE tenant_id = 5;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT id FROM orders WHERE tenant_id = 5 UNION SELECT id FROM items;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id FROM public.items t
-->   shard text: SELECT id FROM cleave_rel_1 orders WHERE tenant_id = 5 UNION SELECT id FROM cleave_rel_2 items
-->   why: its rows cannot be combined as they come from the shards
SELECT id FROM orders WHERE tenant_id = 5 EXCEPT SELECT id FROM items WHERE tenant_id = 5 ORDER BY 1 LIMIT 2;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT id FROM orders WHERE tenant_id = 5 INTERSECT SELECT 7;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (SELECT tenant_id FROM orders UNION ALL SELECT tenant_id FROM items) u WHERE tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id FROM public.items t
-->   shard text: SELECT * FROM (SELECT tenant_id FROM cleave_rel_1 orders UNION ALL SELECT tenant_id FROM cleave_rel_2 items) u WHERE tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT tenant_id FROM orders WHERE tenant_id = 5 UNION ALL SELECT tenant_id FROM items WHERE tenant_id = 5) u JOIN items i ON i.tenant_id = u.tenant_id;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT 1 UNION SELECT 2;
--> any shard [SELECT, read only, rows]
