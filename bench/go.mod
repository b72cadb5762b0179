module github.com/cleavedb/cleave/bench

go 1.26.0

require (
	github.com/cleavedb/cleave v0.0.0
	github.com/dgryski/go-jump v0.0.0-20170409065014-e1f439676b57
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f
	github.com/golang/groupcache v0.0.0-20241129210726-2c02b8208cf8
	github.com/jackc/pgx/v5 v5.12.0
	github.com/serialx/hashring v0.0.0-20200727003509-22c0c7ab6b1b
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/cleavedb/cleave => ..
