-- name: AddLines :batchexec
INSERT INTO lines (tenant_id, order_id, number, product, quantity, price)
VALUES ($1, $2, $3, $4, $5, $6);

-- name: GetLines :batchmany
SELECT * FROM lines WHERE tenant_id = $1 AND order_id = $2 ORDER BY number;
