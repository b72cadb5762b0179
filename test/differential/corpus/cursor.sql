-- Cursors over several shards.

-- foreach q: SELECT tenant_id, id, qty FROM orders ORDER BY tenant_id, id | SELECT o.tenant_id, i.id FROM orders o JOIN items i ON i.order_id = o.id AND i.n = o.qty ORDER BY 1, 2, o.id, i.tenant_id | SELECT status, count(*) FROM orders GROUP BY status ORDER BY status | SELECT tenant_id, id FROM orders WHERE tenant_id = 3 ORDER BY id | SELECT sensor, seq FROM readings WHERE sensor > 5 ORDER BY sensor DESC, seq
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
-- block
BEGIN;
DECLARE c CURSOR FOR SELECT count(*) FROM nothing;
FETCH ALL FROM c;
FETCH ALL FROM c;
COMMIT;
-- end
-- block
BEGIN;
DECLARE c CURSOR FOR SELECT 1 / (qty - 1) FROM orders ORDER BY tenant_id, id;
FETCH 50 FROM c;
ROLLBACK;
-- end
FETCH 1 FROM nosuch;
CLOSE nosuch;
DECLARE c CURSOR FOR SELECT 1 FROM orders;

-- Read in all directions.

-- foreach q: SELECT tenant_id, id, qty FROM orders ORDER BY tenant_id, id | SELECT status, count(*) FROM orders GROUP BY status ORDER BY status | SELECT o.tenant_id, i.id FROM orders o JOIN items i ON i.order_id = o.id AND i.n = o.qty ORDER BY 1, 2, o.id, i.tenant_id | SELECT id FROM orders WHERE qty < -100 | SELECT id FROM orders WHERE tenant_id = 3 ORDER BY id
-- block
BEGIN;
DECLARE c SCROLL CURSOR FOR ${q};
FETCH 0 FROM c;
MOVE 0 IN c;
FETCH PRIOR FROM c;
FETCH 3 FROM c;
FETCH 0 FROM c;
MOVE 0 IN c;
FETCH BACKWARD 1 FROM c;
FETCH RELATIVE 0 FROM c;
FETCH RELATIVE 2 FROM c;
FETCH RELATIVE -2 FROM c;
FETCH FORWARD -1 FROM c;
FETCH BACKWARD -2 FROM c;
FETCH FORWARD 1 FROM c;
FETCH ABSOLUTE 5 FROM c;
FETCH ABSOLUTE -1 FROM c;
FETCH NEXT FROM c;
FETCH NEXT FROM c;
MOVE 0 IN c;
FETCH BACKWARD 2 FROM c;
FETCH ABSOLUTE -3 FROM c;
FETCH ABSOLUTE 0 FROM c;
FETCH BACKWARD 1 FROM c;
FETCH ABSOLUTE 1000000 FROM c;
FETCH PRIOR FROM c;
MOVE BACKWARD ALL IN c;
FETCH FIRST FROM c;
MOVE FORWARD ALL IN c;
MOVE BACKWARD 2 IN c;
FETCH ALL FROM c;
MOVE ABSOLUTE 2 IN c;
FETCH BACKWARD ALL FROM c;
FETCH BACKWARD ALL FROM c;
FETCH LAST FROM c;
MOVE LAST IN c;
MOVE FIRST IN c;
MOVE PRIOR IN c;
CLOSE c;
COMMIT;
-- end
-- block
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT tenant_id, id FROM orders ORDER BY tenant_id, id;
FETCH ABSOLUTE 1 FROM c;
FETCH ABSOLUTE 3 FROM c;
FETCH RELATIVE 1 FROM c;
MOVE 0 IN c;
FETCH ABSOLUTE 4 FROM c;
ROLLBACK;
-- end
-- foreach way: PRIOR | BACKWARD 1 | 0 | RELATIVE 0 | ABSOLUTE 0 | ABSOLUTE -1 | FIRST
-- block
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT tenant_id, id FROM orders ORDER BY tenant_id, id;
FETCH 2 FROM c;
FETCH ${way} FROM c;
ROLLBACK;
-- end
-- block
BEGIN;
DECLARE c CURSOR FOR SELECT tenant_id, id FROM orders ORDER BY tenant_id, id;
FETCH 2 FROM c;
FETCH BACKWARD 1 FROM c;
FETCH FIRST FROM c;
MOVE ALL IN c;
FETCH BACKWARD 3 FROM c;
ROLLBACK;
-- end
-- block
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT tenant_id, id, note FROM orders ORDER BY tenant_id, id;
FETCH 2 FROM c;
UPDATE orders SET note = 'while read' WHERE tenant_id < 5;
SAVEPOINT s;
DECLARE d SCROLL CURSOR FOR SELECT id FROM items ORDER BY tenant_id, id;
FETCH 3 FROM d;
FETCH BACKWARD 1 FROM d;
FETCH 2 FROM c;
ROLLBACK TO SAVEPOINT s;
FETCH 2 FROM c;
FETCH FIRST FROM c;
FETCH FIRST FROM d;
ROLLBACK;
-- end

-- Cursors that outlive their transaction.

-- foreach how: SCROLL | NO SCROLL | ASENSITIVE
-- foreach q: SELECT tenant_id, id, qty FROM orders ORDER BY tenant_id, id | SELECT id FROM orders WHERE tenant_id = 3 ORDER BY id | SELECT count(*) FROM items | SELECT generate_series(1, 5)
-- block
BEGIN;
DECLARE h ${how} CURSOR WITH HOLD FOR ${q};
FETCH 2 FROM h;
COMMIT;
FETCH 2 FROM h;
FETCH ALL FROM h;
FETCH 1 FROM h;
CLOSE h;
FETCH 1 FROM h;
-- end
-- foreach q: SELECT tenant_id, id, qty FROM orders ORDER BY tenant_id, id | SELECT id FROM orders WHERE tenant_id = 3 ORDER BY id | SELECT name FROM countries ORDER BY 1
-- block
DECLARE h SCROLL CURSOR WITH HOLD FOR ${q};
FETCH 2 FROM h;
FETCH LAST FROM h;
BEGIN;
FETCH BACKWARD 2 FROM h;
DECLARE h CURSOR FOR SELECT 1;
ROLLBACK;
FETCH PRIOR FROM h;
BEGIN;
UPDATE orders SET note = 'kept' WHERE tenant_id = 3;
FETCH ABSOLUTE 2 FROM h;
CLOSE h;
ROLLBACK;
FETCH 1 FROM h;
-- end
-- block
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT tenant_id FROM orders ORDER BY tenant_id, id;
FETCH 1 FROM h;
ROLLBACK;
FETCH 1 FROM h;
-- end
-- block
BEGIN;
DECLARE a CURSOR WITH HOLD FOR SELECT tenant_id FROM orders ORDER BY tenant_id, id;
SAVEPOINT s;
DECLARE b CURSOR WITH HOLD FOR SELECT tenant_id FROM orders ORDER BY tenant_id, id;
ROLLBACK TO s;
COMMIT;
FETCH 1 FROM a;
CLOSE ALL;
FETCH 1 FROM a;
-- end
-- block
DECLARE h CURSOR WITH HOLD FOR SELECT 1 / (qty - 1) FROM orders WHERE qty = 1;
FETCH 1 FROM h;
DECLARE h CURSOR WITH HOLD FOR SELECT tenant_id FROM orders FOR UPDATE;
DECLARE h SCROLL CURSOR FOR SELECT tenant_id FROM orders FOR SHARE;
DECLARE h INSENSITIVE CURSOR WITH HOLD FOR SELECT tenant_id FROM orders ORDER BY tenant_id, id;
FETCH 1 FROM h;
DISCARD ALL;
FETCH 1 FROM h;
-- end
