-- IN lists, arrays, OR and rows: all keys have to be on one shard.
SELECT * FROM orders WHERE tenant_id IN (5);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
SELECT * FROM orders WHERE tenant_id IN (5, 5, NULL);
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (NULL);
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5, '5');
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5.5, '5.0');
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IN (5.5, '5.0')
SELECT * FROM orders WHERE tenant_id IN (5.5, 5);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5.5, $1);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IN (5.5, $1)
SELECT * FROM orders WHERE tenant_id IN (5, 2::float8);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IN (5, 2::float8)
SELECT * FROM orders WHERE tenant_id IN ($1, $2);
--> one shard, key ($1), ($2) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5, id);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IN (5, id)
SELECT * FROM orders WHERE tenant_id IN (SELECT 5);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IN (SELECT 5)
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[5]);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY['5']);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = ANY(ARRAY['5'])
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY['5']::bigint[]);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[$1]);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = ANY(ARRAY[$1])
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[$1]::bigint[]);
--> one shard, key ($1::bigint) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[$1, 5]);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = ANY(ARRAY[$1, 5])
SELECT * FROM orders WHERE tenant_id = ANY ('{5}');
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY ($1);
--> one shard, key (any of $1) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = SOME (ARRAY[5]);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 OR tenant_id = 5;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 AND id = 1 OR tenant_id = 5 AND id = 2;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 1 OR tenant_id = 2 OR tenant_id = 3 OR tenant_id = 4;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = 1 OR tenant_id = 2 OR tenant_id = 3 OR tenant_id = 4
SELECT * FROM orders WHERE (tenant_id = 5 OR note = 'x') AND (tenant_id = 5 OR id = 1);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE (tenant_id = 5 OR note = 'x') AND (tenant_id = 5 OR id = 1)
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
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM visits WHERE (region, visitor) IN (('eu', 5), ('us', 6), ('eu', 6), ('us', 5))
SELECT * FROM visits WHERE (region, visitor) IN (('eu', 5), ('eu', NULL));
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE region IN ('eu') AND visitor IN (5);
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE region = 'eu';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM visits WHERE region = 'eu'
SELECT * FROM visits WHERE visitor = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM visits WHERE visitor = 5
SELECT * FROM visits WHERE region = $1 AND visitor = $2;
--> one shard, key ($1, $2) [SELECT, read only, rows]
SELECT * FROM visits WHERE region = 'eu' AND visitor = 3000000000;
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT * FROM visits WHERE (region, visitor) > ('eu', 5);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM visits WHERE (region, visitor) > ('eu', 5)
SELECT * FROM visits WHERE (region, visitor, page) IN (('eu', 5, 'x'));
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
