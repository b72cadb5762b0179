-- +goose Up
CREATE TABLE lines (
    tenant_id bigint NOT NULL,
    order_id uuid NOT NULL,
    number integer NOT NULL,
    product text NOT NULL,
    quantity integer NOT NULL CHECK (quantity > 0),
    price numeric(12, 2) NOT NULL,
    PRIMARY KEY (tenant_id, order_id, number),
    FOREIGN KEY (tenant_id, order_id) REFERENCES orders (tenant_id, id)
) WITH (cleave.shard_key = 'tenant_id');

CREATE INDEX lines_product ON lines (tenant_id, product);

ALTER TABLE orders ADD COLUMN note text;

-- +goose Down
ALTER TABLE orders DROP COLUMN note;
DROP TABLE lines;
