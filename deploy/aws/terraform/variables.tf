variable "aws_region" {
  description = "Region of everything."
  type        = string
  default     = "us-west-1"
}

variable "project_name" {
  description = "Prefix of all names."
  type        = string
  default     = "sqs-demo"
  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$", var.project_name))
    error_message = "Use 1 to 40 letters, digits, - and _."
  }
}

variable "queue_visibility_timeout" {
  description = "Seconds that a received message is kept from others without a heartbeat. Short is right for workers, which extend it; a Lambda function needs six times its timeout. With less than 30, a slow call or two of DynamoDB costs a worker its lease."
  type        = number
  default     = 30
  validation {
    condition     = var.queue_visibility_timeout >= 1 && var.queue_visibility_timeout <= 43200
    error_message = "Use 1 to 43200 seconds: with 0 every receive of two workers is a duplicate."
  }
}

variable "queue_receive_wait" {
  description = "Seconds that a receive waits for messages (long polling)."
  type        = number
  default     = 10
  validation {
    condition     = var.queue_receive_wait >= 0 && var.queue_receive_wait <= 20
    error_message = "SQS waits for 20 seconds at most."
  }
}

variable "queue_retention" {
  description = "Seconds that an unsettled message is kept. Records outlive it: see record_retention_days."
  type        = number
  default     = 345600 # 4 days
  validation {
    condition     = var.queue_retention >= 60 && var.queue_retention <= 1209600
    error_message = "Use 60 to 1209600 seconds (14 days)."
  }
}

variable "max_receive_count" {
  description = "Receives after which SQS moves a message to the dead letters by itself. Deferred duplicates count as receives, so it is no number of attempts: attempts are counted in the record, see max_attempts. At least max_attempts × (1 + max runtime ÷ lease)."
  type        = number
  default     = 200
  validation {
    condition     = var.max_receive_count >= 5 && var.max_receive_count <= 1000
    error_message = "Use 5 to 1000."
  }
}

variable "max_attempts" {
  description = "Failed runs after which semel makes a dead letter of a message."
  type        = number
  default     = 5
}

variable "record_retention_days" {
  description = "How long a record outlives its message: at least the queue's retention and that of its dead letters (14 days), because a redrive sends them again."
  type        = number
  default     = 28
  validation {
    condition     = var.record_retention_days >= 18
    error_message = "A copy can come for 4 days from the queue and for 14 more from its dead letters: keep records for 18 days or more."
  }
}

variable "table_protection" {
  description = "Protect the table of records from deletion. Set it to false, and apply, before you destroy the module."
  type        = bool
  default     = true
}

variable "key" {
  description = "What must take effect once (semel work --key). Do not use the broker's message ID: a redrive changes it."
  type        = string
  default     = "json:/id"
}

variable "handler" {
  description = "Command that the worker runs for each message (semel work --exec)."
  type        = string
  default     = "./handler"
}

variable "alarm_topic_arn" {
  description = "SNS topic that alarms are sent to. Empty: alarms have no action."
  type        = string
  default     = ""
}

variable "queue_depth_alarm" {
  description = "Messages that may wait."
  type        = number
  default     = 1000
}

variable "oldest_message_alarm" {
  description = "Seconds that the oldest message may wait."
  type        = number
  default     = 900
}

variable "service" {
  description = "The workers on ECS (Fargate). null: queue, table, policies and alarms only."
  type = object({
    image              = string
    subnets            = list(string)
    security_groups    = list(string)
    cpu                = optional(number, 1024)
    memory             = optional(number, 2048)
    concurrency        = optional(number, 16)
    min_tasks          = optional(number, 2)
    max_tasks          = optional(number, 20)
    backlog_per_task   = optional(number, 100)
    scale_in_cooldown  = optional(number, 300)
    scale_out_cooldown = optional(number, 60)
    stop_timeout       = optional(number, 60)
  })
  default = null
}

variable "state_machine" {
  description = "Name of a state machine whose duplicate starts raise an alarm. Empty: no such alarm."
  type        = string
  default     = ""
}

variable "audited" {
  description = "Set it when semel audit --emf - runs at least once a day: its absence then raises an alarm. A count of no duplicate effects says nothing about the time since."
  type        = bool
  default     = false
}
