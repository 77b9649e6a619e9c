output "queue_url" {
  description = "QUEUE_URL of producers and workers."
  value       = aws_sqs_queue.main.url
}

output "dead_letters_url" {
  description = "URL of the dead-letter queue."
  value       = aws_sqs_queue.dead_letters.url
}

output "table_name" {
  description = "TABLE_NAME of workers."
  value       = aws_dynamodb_table.records.name
}

output "policies" {
  description = "ARNs of the policies to attach."
  value = {
    worker   = aws_iam_policy.worker.arn
    producer = aws_iam_policy.producer.arn
    operator = aws_iam_policy.operator.arn
  }
}

output "work" {
  description = "The command of a worker."
  value       = "semel work --queue ${aws_sqs_queue.main.url} --store 'dynamodb://${aws_dynamodb_table.records.name}?region=${var.aws_region}' --consumer ${var.project_name} --key ${var.key} --visibility ${var.queue_visibility_timeout}s --retention ${var.record_retention_days}d --emf - --exec '${var.handler}'"
}
