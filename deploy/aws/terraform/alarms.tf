# Alarms on effects that happened twice and on messages that are not processed. None on suppressed duplicates and none on
# DynamoDB's ConditionalCheckFailedRequests: both show that the guard works.

locals {
  actions = var.alarm_topic_arn == "" ? [] : [var.alarm_topic_arn]
  figures = { Consumer = var.project_name, Queue = var.project_name } # of semel work --emf and semel audit --emf
}

resource "aws_cloudwatch_metric_alarm" "duplicate_effects" {
  alarm_name          = "${var.project_name}-duplicate-effects"
  alarm_description   = "An audit found effects that happened more than once (semel audit --emf -)."
  namespace           = "Semel"
  metric_name         = "DuplicateEffects"
  dimensions          = local.figures
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.actions
}

resource "aws_cloudwatch_metric_alarm" "audit_missing" {
  count               = var.audited ? 1 : 0
  alarm_name          = "${var.project_name}-audit-missing"
  alarm_description   = "The effects were not audited for a day: the audit fails, or it no longer runs."
  namespace           = "Semel"
  metric_name         = "DuplicateEffects"
  dimensions          = local.figures
  statistic           = "SampleCount"
  period              = 86400
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = local.actions
}

resource "aws_cloudwatch_metric_alarm" "uncertain" {
  alarm_name          = "${var.project_name}-uncertain"
  alarm_description   = "Messages were set aside or abandoned claims parked, because it is unknown whether their effect happened (semel records ls --state UNCERTAIN)."
  namespace           = "Semel"
  metric_name         = "Uncertain"
  dimensions          = local.figures
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.actions
}

resource "aws_cloudwatch_metric_alarm" "dead_letters" {
  alarm_name          = "${var.project_name}-dead-letters"
  alarm_description   = "Dead letters wait for a person (semel dlq ls)."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.dead_letters.name }
  statistic           = "Maximum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.actions
}

resource "aws_cloudwatch_metric_alarm" "depth" {
  alarm_name          = "${var.project_name}-depth"
  alarm_description   = "Messages arrive faster than they are processed."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.main.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 10
  threshold           = var.queue_depth_alarm
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.actions
}

resource "aws_cloudwatch_metric_alarm" "oldest" {
  alarm_name          = "${var.project_name}-oldest-message"
  alarm_description   = "No worker consumes, or one message blocks its group."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = aws_sqs_queue.main.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  threshold           = var.oldest_message_alarm
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.actions
}

# The same for a workflow: semel audit --emf - --emf-as Custom/StepFunctions,DuplicateExecutions,StateMachine=NAME
resource "aws_cloudwatch_metric_alarm" "duplicate_executions" {
  count               = var.state_machine == "" ? 0 : 1
  alarm_name          = "StepFunctions-Duplicate-Executions"
  alarm_description   = "A workflow was started more than once for the same event, as an audit of its effects found."
  namespace           = "Custom/StepFunctions"
  metric_name         = "DuplicateExecutions"
  dimensions          = { StateMachine = var.state_machine }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.actions
}
