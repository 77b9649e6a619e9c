module github.com/semel-dev/semel/adapters/rabbitmq

go 1.26.0

require (
	github.com/rabbitmq/amqp091-go v1.16.0
	github.com/semel-dev/semel v0.0.0
)

replace github.com/semel-dev/semel => ../..
