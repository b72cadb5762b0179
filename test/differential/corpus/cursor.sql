-- Cursors over several shards.

-- foreach q: SELECT tenant_id, id, qty FROM orders ORDER BY tenant_id, id | SELECT o.tenant_id, i.id FROM orders o JOIN items i ON i.order_id = o.id AND i.n = o.qty ORDER BY 1, 2, o.id, i.tenant_id | SELECT status, count(*) FROM orders GROUP BY status ORDER BY status | SELECT tenant_id, id FROM orders WHERE tenant_id = 3 ORDER BY id | SELECT sensor, seq FROM readings WHERE sensor > 5 ORDER BY sensor DESC, seq
-- only: postgres
-- block
BEGIN;
DECLARE c CURSOR FOR ${q};
FETCH 3 FROM c;
FETCH NEXT FROM c;
FETCH 2 FROM c;
MOVE 1 FROM c;
FETCH FORWARD 2 FROM c;
FETCH ALL FROM c;
FETCH 1 FROM c;
CLOSE c;
COMMIT;
-- end
-- only: postgres
-- block
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT tenant_id, id FROM orders ORDER BY tenant_id, id;
FETCH 5 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH FIRST FROM c;
FETCH LAST FROM c;
FETCH ABSOLUTE 4 FROM c;
FETCH RELATIVE -1 FROM c;
FETCH PRIOR FROM c;
MOVE FORWARD ALL IN c;
FETCH BACKWARD ALL FROM c;
COMMIT;
-- end
-- only: postgres
-- block
BEGIN;
DECLARE a CURSOR FOR SELECT tenant_id FROM orders ORDER BY tenant_id, id;
DECLARE b NO SCROLL CURSOR FOR SELECT id FROM items ORDER BY tenant_id, id;
FETCH 2 FROM a;
FETCH 2 FROM b;
FETCH 2 FROM a;
CLOSE a;
FETCH 2 FROM b;
CLOSE ALL;
FETCH 1 FROM b;
ROLLBACK;
-- end
-- only: postgres
-- block
BEGIN;
DECLARE c CURSOR FOR SELECT tenant_id FROM orders ORDER BY tenant_id, id;
FETCH 1 FROM c;
UPDATE orders SET note = 'cur' WHERE tenant_id = 1;
UPDATE orders SET note = 'cur' WHERE tenant_id = 2;
FETCH 1 FROM c;
CLOSE c;
ROLLBACK;
-- end
-- only: postgres
-- block
BEGIN;
DECLARE c CURSOR FOR SELECT count(*) FROM nothing;
FETCH ALL FROM c;
FETCH ALL FROM c;
COMMIT;
-- end
-- only: postgres
-- block
BEGIN;
DECLARE c CURSOR FOR SELECT 1 / (qty - 1) FROM orders ORDER BY tenant_id, id;
FETCH 50 FROM c;
ROLLBACK;
-- end
FETCH 1 FROM nosuch;
CLOSE nosuch;
DECLARE c CURSOR FOR SELECT 1 FROM orders;
