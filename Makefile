# `make help` lists what there is to run.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
LDFLAGS  := -X main.version=$(VERSION)
FUZZTIME ?= 30s
TESTTIME ?= 45m
ATONCE   ?= 3
# `make check` has run go vet on all; debug information only makes linking longer.
TEST     := $(GO) test -p $(ATONCE) -vet=off -ldflags=-w -timeout $(TESTTIME)
SEED     ?= 1
COUNT    ?= 1000000
ORDERS   ?= 5000

# The SQL parser is PostgreSQL's own, in C.
export CGO_ENABLED := 1

# test and bench are modules of their own, so that what only they need is not required of who imports the Go client; go.work puts them
# together. `go get` and `go install ...@version` look at neither; GOWORK=off keeps other commands from them.
ALL := ./... ./test/... ./bench/...

# `make test` tests every package once, in its short form; internal/testrun says in each test what that leaves out, and why.
# `make test-long` has the rest, and whole those packages that share memory between goroutines, with the race detector; for
# the others its second compilation of the SQL parser and of SQLite would buy nothing.
# Those that take long come first: packages are begun in the order given, and one at the end would run alone.
# Their tests wait more than they compute (for servers, leases, cutovers), so that ATONCE of them share two cores well.
RACE := ./gateway/... ./engine/... ./executor/... ./schema/... ./admin/... ./shardmap/... ./telemetry/... ./internal/localpg/... ./internal/pipe/...
LONG := ./gateway ./test/move ./test/differential ./test/e2e ./cmd/cleave ./engine/postgres ./schema ./test/crash

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  FUZZTIME=$(FUZZTIME)  for each fuzz target    VERSION=$(VERSION)"

.PHONY: build
build: ## build bin/cleave
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/cleave ./cmd/cleave

.PHONY: run
run: build ## build, and start a cluster on this machine under ./.cleave
	./bin/cleave up

.PHONY: test
test: check fetch short ## before each change: linters, and every package's tests in short form, on real servers

.PHONY: test-long
test-long: fetch rest race ## what `make test` leaves out: long tests, and the race detector

.PHONY: check
check: ## formatting, go vet, staticcheck
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet $(ALL)
	$(GO) vet -tags crashpoint ./internal/crashpoint
	$(GO) tool staticcheck $(ALL)

# Fetched before the tests that need it, whose time is bounded.
.PHONY: fetch
fetch: ## the PostgreSQL versions, and the etcd and S3 servers that tests need, where they are missing
	$(GO) test -vet=off -timeout 60m -run 'TestEveryVersionRuns|TestPrograms|TestServerAnswers' ./internal/pgtest ./internal/etcdtest ./internal/s3test

.PHONY: short
short: ## tests of every package in short form
	$(TEST) -short $(LONG) $$($(GO) list $(ALL) | grep -vxF "$$($(GO) list $(LONG))")

# Packages whose tests leave something out of the short form, but for those that are tested whole below.
.PHONY: rest
rest: ## what the short form leaves out, of the packages without the race detector
	CLEAVE_TESTS=rest $(TEST) $$($(GO) list $$(grep -rlE --include='*_test.go' 'cleave/internal/testrun"|VersionsOfRun' . | xargs -n 1 dirname | sort -ru) | grep -vxF "$$($(GO) list $(RACE))")

.PHONY: race
race: ## tests of the packages that share memory, whole, with the race detector
	$(TEST) -race $(RACE)

.PHONY: soak
soak: ## everything is killed while money moves between shards, then while the shards' data moves; for SOAK (30m) each
	CLEAVE_SOAK=$(or $(SOAK),30m) $(GO) test -count=1 -timeout 0 -p 1 -v -run 'TestBank|TestHistories' ./test/e2e ./test/move

.PHONY: crash
crash: ## each process killed, stopped and cut off at each step of each workflow: hours; SEED, ONLY, FOR, FROM
	nice -n 10 $(GO) test -count=1 -timeout 0 -v -run TestCrash ./test/crash -whole -seed $(SEED) -only '$(ONLY)' -for $(or $(FOR),0) -from $(or $(FROM),0)

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "== $$target in $$(dirname "$$file")"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" < /dev/null; \
		done; \
	done

.PHONY: fuzz-sql
fuzz-sql: ## statements made at random, router against one PostgreSQL; SEED, COUNT
	$(GO) test ./test/differential -run '^TestFuzz$$' -count 1 -v -timeout 0 -seed $(SEED) -statements $(COUNT)

.PHONY: tpch
tpch: ## the 22 queries of TPC-H on every configuration; ORDERS
	$(GO) test ./test/differential -run '^TestTPCH$$' -count 1 -v -timeout 0 -orders $(ORDERS)

.PHONY: regress
regress: ## the share of PostgreSQL's own regression scripts; DIR is its folder src/test/regress
	$(GO) run ./test/differential/regress -dir $(DIR)

.PHONY: model
model: ## the model of the cutover with two routers: some minutes and gigabytes
	$(GO) test ./test/model -run TestCutover -routers 2 -timeout 60m -v

.PHONY: drivers
drivers: ## drivers', ORMs' and migrators' suites that others wrote, router beside PostgreSQL; writes docs/drivers.md
	$(GO) test ./test/drivers -count 1 -v -timeout 60m -all -update

.PHONY: bench
bench: build ## router against a direct connection and pgbouncer, CPU per statement
	$(GO) run ./bench

.PHONY: docs
docs: ## write anew what is made in docs: cli.md, the tables of settings and metrics, simulate.md
	$(GO) test ./cmd/cleave -run 'TestManual|TestSettingsTable|TestMetricsTable|TestSimulatePage' -update
	$(GO) test ./internal/lint -run TestErrorsPage -update

.PHONY: fmt
fmt: ## format all Go files
	gofmt -w .

.PHONY: clean
clean: ## remove what was built; data folders stay
	rm -rf bin
