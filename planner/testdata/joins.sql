-- Joins of colocated tables.
SELECT * FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o, items i WHERE o.tenant_id = i.tenant_id AND i.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o, items i WHERE o.tenant_id = 5 AND i.tenant_id = 5;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders o, items i WHERE o.tenant_id = 5 AND i.order_id = o.id;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o, cleave_rel_2 i WHERE o.tenant_id = 5 AND i.order_id = o.id
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o JOIN items i ON i.order_id = o.id WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o JOIN cleave_rel_2 i ON i.order_id = o.id WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o JOIN items i USING (tenant_id) WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o JOIN items i USING (tenant_id) WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o JOIN items i USING (tenant_id) AS u WHERE u.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o JOIN items i USING (id) WHERE o.tenant_id = 5 AND i.tenant_id = 5;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders o JOIN items i USING (id) WHERE tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o JOIN cleave_rel_2 i USING (id) WHERE tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders NATURAL JOIN items WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o CROSS JOIN items i WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o CROSS JOIN cleave_rel_2 i WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (orders o JOIN items i ON i.tenant_id = o.tenant_id) AS j(a, b, c, d, e, f) WHERE a = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM (orders o JOIN items i ON i.tenant_id = o.tenant_id) AS j WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM (orders o JOIN items i ON i.tenant_id = o.tenant_id ) j WHERE o.tenant_id = 5
SELECT * FROM orders o JOIN orders p ON o.tenant_id = p.tenant_id JOIN items i ON i.tenant_id = p.tenant_id WHERE o.tenant_id = $1;
--> one shard, key ($1) [SELECT, read only, rows]
-- Outer joins: ON restricts the nullable side only.
SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND o.tenant_id = 5
SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = 5 WHERE o.tenant_id = 5;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN items i ON i.order_id = o.id WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o LEFT JOIN cleave_rel_2 i ON i.order_id = o.id WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id WHERE i.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id WHERE i.tenant_id IS NULL AND o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id WHERE i.tenant_id IS NULL;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id WHERE i.tenant_id IS NULL
SELECT * FROM items i RIGHT JOIN orders o ON i.tenant_id = o.tenant_id WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM items i RIGHT JOIN orders o ON i.tenant_id = o.tenant_id AND i.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM items i RIGHT JOIN orders o ON i.tenant_id = o.tenant_id AND i.tenant_id = 5
SELECT * FROM orders o RIGHT JOIN items i USING (tenant_id) WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN items i USING (tenant_id) WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN items i USING (tenant_id) WHERE i.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o FULL JOIN items i ON i.tenant_id = o.tenant_id WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o FULL JOIN cleave_rel_2 i ON i.tenant_id = o.tenant_id WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o FULL JOIN items i ON i.tenant_id = o.tenant_id WHERE o.tenant_id = 5 AND i.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o FULL JOIN items i USING (tenant_id) WHERE tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o FULL JOIN cleave_rel_2 i USING (tenant_id) WHERE tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o FULL JOIN items i ON i.tenant_id = o.tenant_id AND o.tenant_id = 5 AND i.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o FULL JOIN cleave_rel_2 i ON i.tenant_id = o.tenant_id AND o.tenant_id = 5 AND i.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM (SELECT * FROM orders WHERE tenant_id = 5) o FULL JOIN (SELECT * FROM items WHERE tenant_id = 5) i ON i.order_id = o.id;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM small s LEFT JOIN orders o ON o.tenant_id = 5 AND o.id = s.id;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM small s LEFT JOIN orders o ON o.tenant_id = s.id WHERE s.id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN small s ON s.id = o.id AND o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o LEFT JOIN small s ON s.id = o.id AND o.tenant_id = 5
SELECT * FROM orders o LEFT JOIN (items i LEFT JOIN orders p ON p.tenant_id = i.tenant_id) ON i.tenant_id = o.tenant_id WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id LEFT JOIN items j ON j.tenant_id = i.tenant_id WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN items i ON true WHERE o.tenant_id = i.tenant_id AND o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
-- Equality that does not carry a value over.
SELECT * FROM orders o JOIN items i ON i.tenant_id = o.tenant_id OR i.id = 3 WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o JOIN cleave_rel_2 i ON i.tenant_id = o.tenant_id OR i.id = 3 WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o JOIN items i ON i.tenant_id > o.tenant_id WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o JOIN cleave_rel_2 i ON i.tenant_id > o.tenant_id WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o JOIN items i ON i.tenant_id = o.tenant_id + 0 WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o JOIN cleave_rel_2 i ON i.tenant_id = (o.tenant_id + 0) WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o JOIN items i ON i.tenant_id = o.price WHERE o.tenant_id = 5 AND o.price = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5 AND t.price = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o JOIN cleave_rel_2 i ON i.tenant_id = o.price WHERE o.tenant_id = 5 AND o.price = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o JOIN items i ON i.tenant_id = o.qty WHERE o.tenant_id = 5 AND o.qty = 5;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders o JOIN items i ON i.tenant_id::text = o.tenant_id::text WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: SELECT * FROM cleave_rel_1 o JOIN cleave_rel_2 i ON i.tenant_id::text = o.tenant_id::text WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
-- Reference tables join with anything; their columns carry values too.
SELECT * FROM orders o JOIN small s ON s.id = o.id WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o JOIN small s ON s.id = o.tenant_id WHERE s.id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o JOIN small s ON s.tenant = o.tenant_id WHERE s.tenant = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o JOIN small s ON s.id = o.tenant_id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o JOIN small s ON s.id = o.tenant_id
-- Mixed kinds.
SELECT * FROM orders o JOIN notes n ON n.id = o.id WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0: SELECT t.id, t.body FROM public.notes t
-->   shard text: SELECT * FROM cleave_rel_1 o JOIN cleave_rel_2 n ON n.id = o.id WHERE o.tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders o JOIN pg_class c ON true WHERE o.tenant_id = 5;
--> refused 0A000: the catalogue table pg_catalog.pg_class is read beside rows of several shards
-->   hint: Read the catalogue in a statement of its own.
SELECT * FROM orders o JOIN nosuch n ON true WHERE o.tenant_id = 5;
--> refused 42P01: relation "nosuch" does not exist at 29
-->   hint: SELECT * FROM cleave.tables shows the tables; create new ones through the router
SELECT * FROM orders o JOIN people p ON p.name = o.note WHERE o.tenant_id = 5 AND p.name = 'bob';
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0: SELECT t.name, t.nick, t.age FROM public.people t WHERE t.name = 'bob'
-->   shard text: SELECT * FROM cleave_rel_1 o JOIN cleave_rel_2 p ON p.name = o.note WHERE o.tenant_id = 5 AND p.name = 'bob'
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM small, notes;
--> default shard [SELECT, read only, rows]
SELECT * FROM orders o, generate_series(1, 3) g WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o, generate_series(1, 3) AS g(x) WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o, (VALUES (5), (5)) v(t) WHERE o.tenant_id = v.t;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders o JOIN (VALUES (5, 'a')) v(t, x) ON o.tenant_id = v.t;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o LEFT JOIN (VALUES (5, 'a')) v(t, x) ON o.tenant_id = v.t;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o LEFT JOIN (VALUES (5, 'a')) v(t, x) ON o.tenant_id = v.t
SELECT * FROM (VALUES (5, 'a')) v(t, x) LEFT JOIN orders o ON o.tenant_id = v.t;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders NATURAL JOIN generate_series(1, 3) AS g(id) WHERE tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders NATURAL JOIN generate_series(1, 3) g(id) WHERE tenant_id = 5
SELECT * FROM orders o NATURAL JOIN generate_series(1, 3) AS g(id) WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
