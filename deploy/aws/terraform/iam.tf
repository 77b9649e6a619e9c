# Least privilege: a policy for workers, one for producers and one for the operator who handles dead letters.

data "aws_iam_policy_document" "worker" {
  statement {
    sid       = "Queue"
    actions   = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"]
    resources = [aws_sqs_queue.main.arn]
  }
  statement {
    sid       = "DeadLetters"
    actions   = ["sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"]
    resources = [aws_sqs_queue.dead_letters.arn]
  }
  statement {
    sid       = "Records"
    actions   = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:Scan"]
    resources = [aws_dynamodb_table.records.arn]
  }
}

data "aws_iam_policy_document" "producer" {
  statement {
    sid       = "Send"
    actions   = ["sqs:SendMessage", "sqs:GetQueueUrl", "sqs:GetQueueAttributes"]
    resources = [aws_sqs_queue.main.arn]
  }
}

data "aws_iam_policy_document" "operator" {
  source_policy_documents = [data.aws_iam_policy_document.worker.json, data.aws_iam_policy_document.producer.json]
  statement {
    sid       = "Examine"
    actions   = ["dynamodb:Query", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:DescribeContinuousBackups"]
    resources = [aws_dynamodb_table.records.arn]
  }
}

resource "aws_iam_policy" "worker" {
  name        = "${var.project_name}-worker"
  description = "semel work: receive, settle, keep records and dead letters. Add what the handler itself needs."
  policy      = data.aws_iam_policy_document.worker.json
}

resource "aws_iam_policy" "producer" {
  name        = "${var.project_name}-producer"
  description = "semel send, or any producer."
  policy      = data.aws_iam_policy_document.producer.json
}

resource "aws_iam_policy" "operator" {
  name        = "${var.project_name}-operator"
  description = "semel doctor, records, dlq: an operator who handles dead letters."
  policy      = data.aws_iam_policy_document.operator.json
}
