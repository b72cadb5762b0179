-- Filters and projections over all shards.


-- foreach t: orders | items | customers | devices | visits | readings | events | stock | countries | settings | nothing
SELECT count(*) FROM ${t};
-- foreach t: orders | items | customers | devices | visits | readings | events | stock | countries | settings | nothing
-- order: any
SELECT * FROM ${t};
