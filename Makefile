# test-quick needs Go and nothing else. race needs a C compiler (the race detector does); lint and the modules outside of
# the workspace fetch what they pin through the Go module proxy, once.
#
# Tests that need a PostgreSQL, MariaDB or MySQL, Redis, NATS or RabbitMQ take the one that SEMEL_TEST_POSTGRES,
# SEMEL_TEST_MYSQL, SEMEL_TEST_REDIS, SEMEL_TEST_NATS or SEMEL_TEST_RABBITMQ names, else the one on the standard port of this
# machine, else they start one of their own from the installed binaries or from Debian's packages (not MariaDB's and
# RabbitMQ's). The tests of a full disk mount a file system, which takes root. SQS, DynamoDB, Step Functions and Kafka are
# fakes in the process (SEMEL_TEST_KAFKA names a real one); where moto_server, the aws command, npm, terraform, Valkey or
# Chromium are installed, tests use them too, and DynamoDB Local where SEMEL_TEST_DYNAMODB has its URL. make test lists at
# the end which tests were left out for what this machine does not have.
# SEMEL_SKIP=postgres,mysql,redis,nats,rabbitmq,tmpfs,moto_server leaves them out anyway; what SEMEL_DEMAND lists must not
# be left out.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# Arguments for every `go test`, e.g. make test TESTFLAGS='-run FM51 -v'.
TESTFLAGS ?=
# Packages of the workspace that are tested at once; beside them run half as many of the modules outside. Two a processor,
# because they wait half of the time. Far more do not end sooner: their workers lose leases to each other.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)
ATONCE ?= $(shell expr 2 \* $(PROCESSORS))
# They run with -vet=off: golangci-lint has the vet checks, and test-quick runs go vet.
# Packages that take longest are tested first: at the end nothing would be beside them.
LONGEST := ./cmd/semel ./cmd/semel/internal/lab/... ./adapters/sqlite ./adapters/postgres
# Arguments of the comparison with raw SQLite, e.g. make bench BENCHFLAGS='-n 20000 -rounds 3'.
BENCHFLAGS ?=
# Arguments of the measures on PostgreSQL and Redis, e.g. make bench-report REPORTFLAGS='-rounds 3 -measure semel'.
REPORTFLAGS ?=
# Records of the large stores of bench-long: 50 million need tens of GB of disk for one store at a time.
KEYS ?= 50000000
# Arguments of the campaign: messages, SIGKILLs of workers, restarts of the server, and what repeats it.
CAMPAIGNFLAGS ?= -queue postgres -messages 200000 -kills 50 -freezes 5 -restarts 10 -seed 1
# Arguments of the demo, e.g. make demo DEMOFLAGS='--seed 7'.
DEMOFLAGS ?=

# Arguments of the lab's targets, e.g. make scenario-happy ARGS="--count 10 --batch-size 5".
ARGS ?=

# Modules outside of the workspace (go.work says why); those inside are "work". Whoever adds one finds it tested.
OUTSIDE := $(filter-out tools,$(patsubst %/go.mod,%,$(wildcard */go.mod)))
LINTER := $(CURDIR)/bin/golangci-lint

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binary: bin/semel
	$(GO) build -tags grpcnotrace -o bin/ ./cmd/semel

.PHONY: test-quick
test-quick: ## Vet and the short tests of all workspace modules: needs nothing but Go
	$(GO) vet work
	$(GO) test -vet=off -short -p $(ATONCE) $(TESTFLAGS) work

.PHONY: test
test: ## All tests, in shuffled order: the workspace and, at the same time, the modules outside (servers, oracles, browser)
	@export SEMEL_LEFT_OUT=$$(mktemp); trap 'rm -f "$$SEMEL_LEFT_OUT"' EXIT; \
	$(MAKE) --no-print-directory -k -j2 test-work test-outside; \
	sort -u "$$SEMEL_LEFT_OUT"

.PHONY: test-work
test-work:
	@$(GO) test -vet=off -p $(ATONCE) -shuffle=on -timeout 60m $(TESTFLAGS) $(LONGEST) work

.PHONY: test-outside
test-outside:
	@export GOWORK=off; for dir in $(OUTSIDE) tools; do \
		(cd $$dir; $(GO) test -vet=off -p $(PROCESSORS) -shuffle=on -timeout 60m $(TESTFLAGS) ./...); \
	done

.PHONY: nightly
nightly: ## make test at full length (every cell, every scenario on every place), the simulator, the long measures
	SEMEL_NIGHTLY=1 $(MAKE) test
	$(GO) run ./cmd/semel verify --seeds 1000000
	$(MAKE) bench-long

# A simulated world has one goroutine, and is fifteen times as slow under the race detector: a few seeds do.
.PHONY: race
race: ## The tests of the core under the race detector (needs a C compiler)
	SEMEL_SIM_SEEDS=500 CGO_ENABLED=1 $(GO) test -race -short -p $(ATONCE) -shuffle=on -timeout 60m $(TESTFLAGS) ./...

.PHONY: fuzz
fuzz: ## Every fuzz target of the core for FUZZTIME (10s) each
	@for pkg in $$($(GO) list ./...); do \
		for name in $$($(GO) test -list '^Fuzz' "$$pkg" | grep '^Fuzz' || true); do \
			echo "fuzz $$pkg $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $${FUZZTIME:-10s} "$$pkg"; \
		done; \
	done

.PHONY: lint
lint: $(LINTER) ## The linters, for every module
	$(LINTER) config verify
	@failed=; \
	lint() { echo "lint $$1"; (cd "$$1" && $(LINTER) run ./...) || failed="$$failed $$1"; }; \
	for dir in $$($(GO) list -m -f '{{.Dir}}'); do lint "$$dir"; done; \
	export GOWORK=off; \
	for dir in $(OUTSIDE) tools; do lint "$$dir"; done; \
	if [ -n "$$failed" ]; then echo "lint failed in:$$failed"; exit 1; fi

.PHONY: check
check: ## The core requires no module, links inside of the repository lead somewhere; warns of long files
	cd tools && GOWORK=off $(GO) build -o ../bin/repocheck ./repocheck
	bin/repocheck .

# The linter is built from the version that tools/go.mod pins.
$(LINTER): tools/go.mod tools/go.sum
	cd tools && GOWORK=off $(GO) build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: fmt
fmt: $(LINTER) ## Format all Go files
	$(LINTER) fmt

.PHONY: bench
bench: ## Engine on the memory adapters (ns, allocations), SQLite against raw SQLite (ratios in one interleaved run)
	$(GO) test -run '^$$' -bench 'Engine|Machine' -benchmem -benchtime 100000x -count 3 . ./internal/machine
	cd bench && GOWORK=off $(GO) run ./sqlite $(BENCHFLAGS)

.PHONY: bench-report
bench-report: ## Measure semel, its peers and the servers' limits in interleaved rounds; renews docs/benchmarks.md (6 min)
	cd bench && GOWORK=off $(GO) run . -o results.jsonl $(REPORTFLAGS)
	cd bench && GOWORK=off $(GO) run . -from "$$(ls results.jsonl long.jsonl languages.jsonl brokers.jsonl 2>/dev/null | paste -sd,)" -report ../docs/benchmarks.md

.PHONY: bench-languages
bench-languages: ## Handlers in Python and Node.js beside Go's, BullMQ (npm) and Celery (Debian); prints a table (5 min)
	cd bench && GOWORK=off $(GO) run . -measure language -rounds 1 -o languages.jsonl -table

.PHONY: bench-brokers
bench-brokers: ## Kafka, RabbitMQ, Redis streams and NATS through semel and through watermill; prints a table (4 min)
	cd bench && GOWORK=off $(GO) run . -measure broker -rounds 2 -o brokers.jsonl -table

.PHONY: bench-long
bench-long: ## Measure what takes long: stores of KEYS records, a window of 20 million keys, a sweep, 300,000 messages (over an hour)
	cd bench && GOWORK=off $(GO) run . -measure semel-pg-growth,semel-sqlite-growth -n $(KEYS) -rounds 1 -o long.jsonl
	cd bench && GOWORK=off $(GO) run . -measure semel-sqlite-window,semel-pg-window -rounds 1 >> long.jsonl
	cd bench && GOWORK=off $(GO) run . -measure semel-sqlite-sweep,semel-pg-sweep -rounds 3 >> long.jsonl
	cd bench && GOWORK=off $(GO) run . -rounds 3 -measure \
		b2-long,semel-pg-queued-1-long,semel-pg-at-commit-long,semel-pg-batch-long,semel-pg-queue-long,semel-sqlite-long >> long.jsonl

.PHONY: bench-gate
bench-gate: ## The same, and fails when a ratio is below its gate
	cd bench && GOWORK=off $(GO) run . -gate $(REPORTFLAGS)

.PHONY: campaign
campaign: ## Workers killed, servers restarted, responses lost, for CAMPAIGNFLAGS; the ledger is counted at the end
	cd tests && GOWORK=off $(GO) test -count=1 -v -timeout 0 ./campaign -run TestCampaign $(CAMPAIGNFLAGS)

.PHONY: real-input
real-input: ## Real webhooks of an npm package through three worker processes, one killed; reports when npm is out of reach
	cd tests && SEMEL_NIGHTLY=1 GOWORK=off $(GO) test -count=1 -v -skip TestPairs ./realinput

.PHONY: pairs
pairs: ## The same through each queue onto each store; renews the table of the README (6 min)
	cd tests && SEMEL_PAIRS=$(CURDIR)/docs/pairs.jsonl GOWORK=off $(GO) test -count=1 -timeout 30m -v -run TestPairs ./realinput
	cd tools && GOWORK=off $(GO) run ./repocheck -write ..

.PHONY: demo
demo: build ## The main job: real worker processes, killed, with the guard off and on; writes demo.html
	bin/semel demo $(DEMOFLAGS)

scenario-%: build ## One scenario of the lab, e.g. make scenario-happy ARGS="--count 10 --batch-size 5"
	bin/semel lab run $* $(ARGS)

.PHONY: scenarios
scenarios: build ## All scenarios of the lab, with ARGS
	bin/semel lab run --all $(ARGS)

.PHONY: scenarios-fast
scenarios-fast: build ## Those that take seconds
	bin/semel lab run --all --fast $(ARGS)

.PHONY: scenarios-slow
scenarios-slow: build ## Those that take longer
	bin/semel lab run --all --slow $(ARGS)

.PHONY: validate
validate: build ## Check that scenarios can be run here, e.g. ARGS='--on aws'
	bin/semel lab validate $(ARGS)

.PHONY: preflight
preflight: validate ## The same

.PHONY: infra-up
infra-up: build ## A queue and a store on this machine, and .env with the settings of a worker
	bin/semel lab up --env .env --worker=false $(ARGS)

.PHONY: infra-down
infra-down: build ## Take that down, and list what was removed
	bin/semel lab down

.PHONY: load-test
load-test: build ## Load test with worker processes, e.g. ARGS='--n 1000 --same-key'
	bin/semel bench $(ARGS)

.PHONY: docs
docs: check ## Check the docs: links, and that the examples in them that are Go tests pass
	$(GO) test -run '^Example' work

.PHONY: verify
verify: ## The simulator: a million schedules, every crash point, the planted mistakes
	$(GO) run ./cmd/semel verify --seeds 1000000

.PHONY: ci
ci: test race lint check campaign ## Everything that .ci/run does, one after the other
