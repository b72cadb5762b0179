-- INSERT: rows for many shards, SELECT, ON CONFLICT, RETURNING, DEFAULT. The tables are compared after each.

INSERT INTO orders (tenant_id, id, status) VALUES (100, 1, 'a');
INSERT INTO orders (tenant_id, id, status) VALUES (101, 1, 'a'), (102, 1, 'b'), (103, 1, 'c'), (104, 1, NULL), (105, 1, 'e');
INSERT INTO orders (tenant_id, id, status, qty) VALUES (111, 1, 'a', 1), (112, 1, 'b', 2), (113, 1, 'c', 3) RETURNING *;
INSERT INTO orders (tenant_id, id, status, qty) VALUES (121, 1, 'a', 1), (122, 1, 'b', 2), (123, 1, 'c', 3) RETURNING tenant_id + id AS s, upper(status);
INSERT INTO orders (id, status, tenant_id) VALUES (7, 'late', 131), (8, 'key', 132);
INSERT INTO orders VALUES (141, 1, 'x', 2, 3.456, '2024-05-05', '2024-05-05 05:05', true, 'n'), (142, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO orders (tenant_id, id, qty) VALUES (151, 1, 1 + 1), (152, 1, length('abc')), (150 + 3, 1, 5);
INSERT INTO orders (tenant_id, id, status) VALUES (161, 1, DEFAULT), (162, 1, 'x');
INSERT INTO orders AS o (tenant_id, id, status) VALUES (171, 1, 'x'), (172, 1, 'y') RETURNING o.tenant_id, o.status;
INSERT INTO public.orders (tenant_id, id) VALUES ('181', '1'), ('182', '2');
INSERT INTO orders (tenant_id, id, price) VALUES (191, 1, 1.005), (192, 1, 12345678), (193, 1, 1);
INSERT INTO orders (tenant_id, id, price) VALUES (194, 1, 123456789), (195, 1, 1);
INSERT INTO orders (tenant_id, id) VALUES (1, 1), (201, 1);
INSERT INTO orders (tenant_id, id) VALUES (202, 1), (202, 1);
INSERT INTO orders (tenant_id, id) VALUES (203, 1), (204, NULL), (205, 1);
INSERT INTO orders (tenant_id, id) VALUES (NULL, 1), (206, 1);
INSERT INTO orders (id) VALUES (1);
INSERT INTO orders (tenant_id, id, qty) VALUES (207, 1, 'x'), (208, 1, '2');
INSERT INTO orders (tenant_id, id, qty) VALUES (209, 1, 1 / 0), (210, 1, 2);
INSERT INTO orders (tenant_id, id, day) VALUES (211, 1, '2024-02-30'), (212, 1, '2024-02-29');
INSERT INTO orders (tenant_id, id, nosuch) VALUES (213, 1, 1);
INSERT INTO orders (tenant_id, id) VALUES (214, 1, 2);
INSERT INTO orders (tenant_id, id) VALUES (214);
INSERT INTO orders (tenant_id, id, tenant_id) VALUES (214, 1, 2);
INSERT INTO orders DEFAULT VALUES;
INSERT INTO orders (tenant_id, id) VALUES ('x', 1), (215, 1);
INSERT INTO orders (tenant_id, id) VALUES (99999999999999999999, 1);
INSERT INTO orders (tenant_id, id) VALUES (216.4, 1), (216.6, 1);

-- foreach a: DO NOTHING | (tenant_id, id) DO NOTHING | (tenant_id, id) DO UPDATE SET status = excluded.status | (tenant_id, id) DO UPDATE SET qty = orders.qty + excluded.qty, note = 'met' | (tenant_id, id) DO UPDATE SET qty = excluded.qty WHERE orders.qty > 2 | ON CONSTRAINT orders_pkey DO UPDATE SET status = 'con'
INSERT INTO orders (tenant_id, id, status, qty) VALUES (1, 1, 'met', 9), (2, 1, 'met', 8), (3, 77, 'new', 7), (4, 1, 'met', 6), (300, 1, 'new', 5) ON CONFLICT ${a};
-- foreach a: DO NOTHING | (tenant_id, id) DO UPDATE SET note = excluded.status || orders.status
INSERT INTO orders (tenant_id, id, status, qty) VALUES (1, 1, 'met', 9), (2, 1, 'met', 8), (4, 1, 'met', 6), (301, 1, 'new', 5) ON CONFLICT ${a} RETURNING tenant_id, id, status, note;
INSERT INTO orders (tenant_id, id) VALUES (302, 1), (302, 1) ON CONFLICT DO NOTHING;
INSERT INTO orders (tenant_id, id, qty) VALUES (303, 1, 1), (303, 1, 2) ON CONFLICT (tenant_id, id) DO UPDATE SET qty = excluded.qty;
INSERT INTO orders (tenant_id, id) VALUES (1, 1), (304, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET tenant_id = excluded.tenant_id;
INSERT INTO orders (tenant_id, id) VALUES (1, 1), (305, 1) ON CONFLICT (qty) DO NOTHING;

INSERT INTO orders (tenant_id, id, status) SELECT tenant_id, id + 1000, sku FROM items WHERE n = 2;
INSERT INTO orders (tenant_id, id, status) SELECT tenant_id, id + 2000, sku FROM items WHERE tenant_id = 3;
INSERT INTO orders (tenant_id, id, status) SELECT tenant_id + 400, id, status FROM orders WHERE id = 2;
INSERT INTO orders (tenant_id, id, qty) SELECT 500 + n, 1, n FROM generate_series(1, 9) AS n;
INSERT INTO orders (tenant_id, id, qty) SELECT 510 + n, 1, n FROM generate_series(1, 5) AS n RETURNING tenant_id, qty;
INSERT INTO orders (tenant_id, id, qty) SELECT 520 + id, id, length(name) FROM countries WHERE name IS NOT NULL;
INSERT INTO orders (tenant_id, id, qty) SELECT 530 + id, id, length(name) FROM settings WHERE name IS NOT NULL;
INSERT INTO orders (tenant_id, id, qty) SELECT 540 + tenant_id, 1, count(*) FROM items GROUP BY tenant_id;
INSERT INTO orders (tenant_id, id, qty) SELECT 560 + (row_number() OVER (ORDER BY sku)), 1, max(n) FROM items GROUP BY sku;
INSERT INTO orders (tenant_id, id, qty) SELECT DISTINCT ON (tenant_id) tenant_id + 580, 1, n FROM items ORDER BY tenant_id, n, id;
INSERT INTO orders (tenant_id, id, qty) SELECT sensor + 600, seq, value FROM readings WHERE sensor < 5;
INSERT INTO orders (tenant_id, id) SELECT tenant_id + 640, id FROM items ORDER BY tenant_id, id LIMIT 5;
INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM items ON CONFLICT DO NOTHING;
INSERT INTO orders (tenant_id, id, qty) SELECT tenant_id, id, n FROM items WHERE id < 3 ON CONFLICT (tenant_id, id) DO UPDATE SET qty = excluded.qty;
INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM items;
INSERT INTO orders (tenant_id, id) WITH x AS (SELECT tenant_id FROM items WHERE id = 1) SELECT tenant_id + 700, 1 FROM x;
WITH x AS (SELECT tenant_id FROM items WHERE id = 1) INSERT INTO orders (tenant_id, id) SELECT tenant_id + 720, 1 FROM x;
INSERT INTO orders (tenant_id, id) SELECT 740 + n, 1 FROM (VALUES (1), (2), (3)) v(n);
INSERT INTO orders (tenant_id, id) SELECT tenant_id + 760, 1 FROM orders WHERE id = 1 UNION SELECT tenant_id + 760, 1 FROM items;
INSERT INTO orders (tenant_id, id) SELECT 1 / 0, 1 FROM items;
INSERT INTO orders SELECT * FROM items;
INSERT INTO nothing (k, a, c) VALUES (1, 1, 'a'), (2, NULL, 'b'), (3, 3, NULL);
INSERT INTO nothing SELECT k + 10, a, c FROM nothing;
INSERT INTO nothing SELECT tenant_id * 100 + id, n, sku FROM items;

INSERT INTO customers (email, name) VALUES ('new1@x', 'N1'), ('new2@x', 'N2'), ('new3@x', NULL), ('', 'empty');
INSERT INTO customers (email, name) VALUES ('Ada@y.net', 'other'), ('ada@y.net', 'dup');
INSERT INTO devices (id, kind) VALUES ('00000000-0000-0000-0000-000000000001', 'a'), ('ffffffff-0000-0000-0000-000000000002', 'b'), ('77777777-0000-0000-0000-000000000003', 'c') RETURNING id, kind;
INSERT INTO devices (id, kind) SELECT md5('new' || n)::uuid, 'made' FROM generate_series(1, 6) n;
INSERT INTO visits (region, visitor, pages) VALUES ('eu', 50, 1), ('us', 50, 2), ('asia', 51, 3), ('', 52, NULL) RETURNING *;
INSERT INTO visits (region, visitor) SELECT region || '2', visitor FROM visits;
INSERT INTO readings (sensor, seq, value) VALUES (3, 50, 1), (4, 50, 2), (13, 50, 3), (24, 50, 4), (100, 50, 5), (-100, 50, 6);
INSERT INTO readings (sensor, seq, value) SELECT n, 60, n FROM generate_series(0, 24) n;
INSERT INTO events (at, id, kind) VALUES ('2024-01-31 23:59:59.999999', 70, 'a'), ('2024-02-01', 70, 'b'), ('2030-01-01', 70, 'c'), ('1990-01-01', 70, 'd') RETURNING at, kind;
INSERT INTO stock (class, id, name) VALUES ('a', 70, 'x'), ('b', 70, 'y'), ('d', 71, 'z') RETURNING *;
INSERT INTO countries (id, code, name) VALUES (50, 'aa', 'Aland'), (51, 'bb', 'Bland');
INSERT INTO countries (id, code, name) VALUES (52, 'cc', 'Cland') RETURNING *;
INSERT INTO countries (id, code) VALUES (1, 'dup') ON CONFLICT (id) DO UPDATE SET code = excluded.code RETURNING id, code;
INSERT INTO countries (id, code) VALUES (1, 'dup');
INSERT INTO countries SELECT id + 100, code, name, region, big FROM countries WHERE id < 4;
INSERT INTO countries (id, name) SELECT 200 + id, max(status) FROM orders GROUP BY id;
INSERT INTO settings (id, name) VALUES (50, 'a'), (51, 'b') RETURNING *;
INSERT INTO settings (id, name) SELECT 100 + id, name FROM countries WHERE name IS NOT NULL;
INSERT INTO settings (id, name) SELECT 200 + tenant_id, max(status) FROM orders GROUP BY tenant_id;
-- params: 800 | 801
-- params: 802 | \N
-- params: 803 | 803
INSERT INTO orders (tenant_id, id, status) VALUES ($1, 1, 'p'), ($2, 2, 'q');
-- params: 810 | 811 | x
INSERT INTO orders (tenant_id, id, status) VALUES ($1, 1, $3), ($2, 1, $3) ON CONFLICT (tenant_id, id) DO UPDATE SET status = 'again' RETURNING tenant_id, status;
-- params: {820,821,822} | {1,2,3}
INSERT INTO orders (tenant_id, id) SELECT * FROM unnest($1::bigint[], $2::integer[]) ON CONFLICT DO NOTHING;
-- params: 830
INSERT INTO orders (tenant_id, id) SELECT $1::bigint + n, 1 FROM generate_series(1, 4) n ON CONFLICT (tenant_id, id) DO UPDATE SET note = 'met';
-- params: 2024-06-01 00:00:00 | 2024-01-01 00:00:00
INSERT INTO events (at, id) VALUES ($1, 90), ($2, 90) ON CONFLICT DO NOTHING;
