# The queue and its dead-letter queue, which also gets the messages that SQS moves by its redrive policy.

resource "aws_sqs_queue" "dead_letters" {
  name                      = "${var.project_name}-dead-letters"
  message_retention_seconds = 1209600 # 14 days, the longest there is
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue" "main" {
  name                       = var.project_name
  visibility_timeout_seconds = var.queue_visibility_timeout
  receive_wait_time_seconds  = var.queue_receive_wait
  message_retention_seconds  = var.queue_retention
  sqs_managed_sse_enabled    = true
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters.arn
    maxReceiveCount     = var.max_receive_count
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "dead_letters" {
  queue_url = aws_sqs_queue.dead_letters.id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.main.arn]
  })
}

# Records: one item per key. The layout is that of `semel migrate --store dynamodb://…`, which leaves this table as it is.
resource "aws_dynamodb_table" "records" {
  name         = "${var.project_name}-records"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"

  # Without these records every message would take effect again. To destroy the module, apply with table_protection=false first.
  deletion_protection_enabled = var.table_protection

  attribute {
    name = "pk"
    type = "S"
  }
  attribute {
    name = "sk"
    type = "S"
  }
  ttl {
    attribute_name = "ttl"
    enabled        = true
  }
  point_in_time_recovery {
    enabled = true
  }
  lifecycle {
    precondition {
      condition     = var.record_retention_days * 86400 >= var.queue_retention + 1209600
      error_message = "A copy can come for queue_retention and for 14 days more from the dead letters: a record that ends before (record_retention_days) lets it take effect again."
    }
  }
  # No replicas: two regions of a global table with eventual consistency can both win one claim.
}
