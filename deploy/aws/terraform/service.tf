# Workers on ECS, scaled by the backlog of each: (visible + in flight) ÷ tasks.

locals {
  on = var.service == null ? 0 : 1
}

resource "aws_ecs_cluster" "main" {
  count = local.on
  name  = var.project_name
  setting {
    name  = "containerInsights" # RunningTaskCount, which the scaling divides by
    value = "enabled"
  }
}

resource "aws_cloudwatch_log_group" "worker" {
  count             = local.on
  name              = "/semel/${var.project_name}"
  retention_in_days = 30
}

data "aws_iam_policy_document" "tasks" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "task" {
  count              = local.on
  name               = "${var.project_name}-task"
  assume_role_policy = data.aws_iam_policy_document.tasks.json
}

resource "aws_iam_role_policy_attachment" "task" {
  count      = local.on
  role       = aws_iam_role.task[0].name
  policy_arn = aws_iam_policy.worker.arn
}

resource "aws_iam_role" "execution" {
  count              = local.on
  name               = "${var.project_name}-execution"
  assume_role_policy = data.aws_iam_policy_document.tasks.json
}

resource "aws_iam_role_policy_attachment" "execution" {
  count      = local.on
  role       = aws_iam_role.execution[0].name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AmazonECSTaskExecutionRolePolicy"
}

resource "aws_ecs_task_definition" "worker" {
  count                    = local.on
  family                   = var.project_name
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.service.cpu
  memory                   = var.service.memory
  task_role_arn            = aws_iam_role.task[0].arn
  execution_role_arn       = aws_iam_role.execution[0].arn
  container_definitions = jsonencode([{
    name        = "worker"
    image       = var.service.image
    essential   = true
    stopTimeout = var.service.stop_timeout # longer than --grace: SIGKILL before the end of a drain costs a lease
    command = [
      "semel", "work",
      "--queue", aws_sqs_queue.main.url,
      "--store", "dynamodb://${aws_dynamodb_table.records.name}?region=${var.aws_region}",
      "--consumer", var.project_name,
      "--key", var.key,
      "--exec", var.handler,
      "--concurrency", tostring(var.service.concurrency),
      "--visibility", "${var.queue_visibility_timeout}s",
      "--max-attempts", tostring(var.max_attempts),
      "--retention", "${var.record_retention_days}d",
      "--grace", "${max(var.service.stop_timeout - 10, 1)}s",
      "--listen", "127.0.0.1:9464",
      "--emf", "-",
    ]
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.worker[0].name
        awslogs-region        = var.aws_region
        awslogs-stream-prefix = "worker"
      }
    }
  }])
}

resource "aws_ecs_service" "worker" {
  count                              = local.on
  name                               = var.project_name
  cluster                            = aws_ecs_cluster.main[0].id
  task_definition                    = aws_ecs_task_definition.worker[0].arn
  desired_count                      = var.service.min_tasks
  launch_type                        = "FARGATE"
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200
  network_configuration {
    subnets         = var.service.subnets
    security_groups = var.service.security_groups
  }
  lifecycle {
    ignore_changes = [desired_count] # the scaling's
  }
}

resource "aws_appautoscaling_target" "worker" {
  count              = local.on
  service_namespace  = "ecs"
  resource_id        = "service/${aws_ecs_cluster.main[0].name}/${aws_ecs_service.worker[0].name}"
  scalable_dimension = "ecs:service:DesiredCount"
  min_capacity       = var.service.min_tasks
  max_capacity       = var.service.max_tasks
}

resource "aws_appautoscaling_policy" "backlog" {
  count              = local.on
  name               = "${var.project_name}-backlog-per-task"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.worker[0].service_namespace
  resource_id        = aws_appautoscaling_target.worker[0].resource_id
  scalable_dimension = aws_appautoscaling_target.worker[0].scalable_dimension
  target_tracking_scaling_policy_configuration {
    target_value       = var.service.backlog_per_task
    scale_in_cooldown  = var.service.scale_in_cooldown
    scale_out_cooldown = var.service.scale_out_cooldown
    customized_metric_specification {
      metrics {
        id          = "visible"
        return_data = false
        metric_stat {
          stat = "Sum"
          metric {
            namespace   = "AWS/SQS"
            metric_name = "ApproximateNumberOfMessagesVisible"
            dimensions {
              name  = "QueueName"
              value = aws_sqs_queue.main.name
            }
          }
        }
      }
      metrics {
        id          = "flight"
        return_data = false
        metric_stat {
          stat = "Sum"
          metric {
            namespace   = "AWS/SQS"
            metric_name = "ApproximateNumberOfMessagesNotVisible"
            dimensions {
              name  = "QueueName"
              value = aws_sqs_queue.main.name
            }
          }
        }
      }
      metrics {
        id          = "tasks"
        return_data = false
        metric_stat {
          stat = "Average"
          metric {
            namespace   = "ECS/ContainerInsights"
            metric_name = "RunningTaskCount"
            dimensions {
              name  = "ClusterName"
              value = aws_ecs_cluster.main[0].name
            }
            dimensions {
              name  = "ServiceName"
              value = aws_ecs_service.worker[0].name
            }
          }
        }
      }
      metrics {
        id          = "backlog"
        label       = "messages for each task"
        expression  = "(visible + flight) / IF(tasks > 0, tasks, 1)"
        return_data = true
      }
    }
  }
}
