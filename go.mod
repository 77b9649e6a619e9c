module github.com/semel-dev/semel

go 1.26
