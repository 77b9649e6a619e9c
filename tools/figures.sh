#!/usr/bin/env bash
# Prints the figures that say how large the house is. Lines are those of Go files that are no tests, with comments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lines() { git ls-files -- "$@" | grep '\.go$' | grep -v '_test\.go$' | tr '\n' '\0' | xargs -0 -r cat | wc -l; }
row() { printf '%-60s %7s\n' "$1" "$2"; }

row 'lines of go doc -short .' "$(go doc -short . | wc -l)"
row 'source files of the root' "$(git ls-files ':(glob)*.go' | grep -vc '_test\.go$')"
row 'cmd/semel without the laboratory' "$(lines cmd/semel ':!cmd/semel/internal/lab')"
row 'laboratory and process harnesses' "$(lines lab cmd/semel/internal/lab tests/campaign tests/internal adapters/aws/internal)"
row 'simulated worlds (type world struct)' "$(git grep -lE '^type world struct' -- '*.go' | wc -l)"
row 'folders that start and kill processes' \
	"$(git grep -lE 'Process\.(Kill|Signal)\(|(syscall|unix)\.Kill\(' -- '*.go' | xargs -n1 dirname | sort -u | wc -l)"
row 'source lines in all' "$(lines .)"
row '  of which adapters/nats and adapters/redis' "$(lines adapters/nats adapters/redis)"
row 'adapters/sqlite and adapters/postgres' "$(lines adapters/sqlite adapters/postgres)"
go build -tags grpcnotrace -ldflags '-s -w' -o bin/stripped ./cmd/semel
row 'kilobytes of the stripped binary' "$(($(stat -c %s bin/stripped) / 1000))"
row 'adapters/mysql' "$(lines adapters/mysql)"
(cd tools && GOWORK=off go build -o ../bin/repocheck ./repocheck)
row 'lines with an old word' "$(bin/repocheck . | grep -c ': write ' || true)"
