-- IN lists, arrays, OR and rows: all keys have to be on one shard.
SELECT * FROM orders WHERE tenant_id IN (5);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id IN (5, 5, NULL);
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (NULL);
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5, '5');
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5.5, '5.0');
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id IN (5.5, '5.0')
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id IN (5.5, '5.0')
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id IN (5.5, 5);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5.5, $1);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id IN (5.5, $1)
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id IN (5.5, $1)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id IN (5, 2::float8);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id IN (5, 2::float8)
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id IN (5, 2::float8)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id IN ($1, $2);
--> one shard, key ($1), ($2) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5, id);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id IN (5, t.id)
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id IN (5, id)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id IN (SELECT 5);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id IN (SELECT 5)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[5]);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY['5']);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = ANY(ARRAY['5'])
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id = ANY(ARRAY['5'])
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY['5']::bigint[]);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[$1]);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = ANY(ARRAY[$1])
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id = ANY(ARRAY[$1])
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[$1]::bigint[]);
--> one shard, key ($1::bigint) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[$1, 5]);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = ANY(ARRAY[$1, 5])
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id = ANY(ARRAY[$1, 5])
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id = ANY ('{5}');
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = ANY('{5}')
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id = ANY('{5}')
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id = ANY ($1);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = ANY($1)
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id = ANY($1)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id = SOME (ARRAY[5]);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 OR tenant_id = 5;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 AND id = 1 OR tenant_id = 5 AND id = 2;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 1 OR tenant_id = 2 OR tenant_id = 3 OR tenant_id = 4;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 1 OR t.tenant_id = 2 OR t.tenant_id = 3 OR t.tenant_id = 4
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE tenant_id = 1 OR tenant_id = 2 OR tenant_id = 3 OR tenant_id = 4
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE (tenant_id = 5 OR note = 'x') AND (tenant_id = 5 OR id = 1);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE (t.tenant_id = 5 OR t.note = 'x') AND (t.tenant_id = 5 OR t.id = 1)
-->   shard text: SELECT * FROM cleave_rel_1 orders WHERE (tenant_id = 5 OR note = 'x') AND (tenant_id = 5 OR id = 1)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM orders WHERE tenant_id IN (1, 2, 3) AND tenant_id = 2;
--> one shard shard-2, key (2) [SELECT, read only, rows]
SELECT * FROM visits WHERE region = 'eu' AND visitor = 5;
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE (region, visitor) = ('eu', 5);
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE ROW(region, visitor) = ROW('eu', 5);
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE (visitor, region) = (5, 'eu');
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE (region, visitor) IN (('eu', 5));
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE (region, visitor) IN (('eu', 5), ('us', 6), ('eu', 6), ('us', 5));
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.region, t.visitor, t.page FROM public.visits t WHERE (t.region, t.visitor) IN (('eu', 5), ('us', 6), ('eu', 6), ('us', 5))
-->   shard text: SELECT * FROM cleave_rel_1 visits WHERE (region, visitor) IN (('eu', 5), ('us', 6), ('eu', 6), ('us', 5))
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM visits WHERE (region, visitor) IN (('eu', 5), ('eu', NULL));
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE region IN ('eu') AND visitor IN (5);
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE region = 'eu';
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.region, t.visitor, t.page FROM public.visits t WHERE t.region = 'eu'
-->   shard text: SELECT * FROM cleave_rel_1 visits WHERE region = 'eu'
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM visits WHERE visitor = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.region, t.visitor, t.page FROM public.visits t WHERE t.visitor = 5
-->   shard text: SELECT * FROM cleave_rel_1 visits WHERE visitor = 5
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM visits WHERE region = $1 AND visitor = $2;
--> one shard, key ($1, $2) [SELECT, read only, rows]
SELECT * FROM visits WHERE region = 'eu' AND visitor = 3000000000;
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT * FROM visits WHERE (region, visitor) > ('eu', 5);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.region, t.visitor, t.page FROM public.visits t WHERE (t.region, t.visitor) > ('eu', 5)
-->   shard text: SELECT * FROM cleave_rel_1 visits WHERE (region, visitor) > ('eu', 5)
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM visits WHERE (region, visitor, page) IN (('eu', 5, 'x'));
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
