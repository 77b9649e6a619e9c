module github.com/semel-dev/semel/adapters/sqlite

go 1.26

require github.com/semel-dev/semel v0.0.0

replace github.com/semel-dev/semel => ../..
