package fakesqs

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are the attributes of a queue that can be set, as they were given. A missing one has its default.
type settings map[string]string

// maxSize is the greatest message, and the greatest batch.
const maxSize = 1 << 20

// number is an attribute that is one, with its range.
type number struct{ least, most, def int }

// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html
var numbers = map[string]number{
	"DelaySeconds":                  {0, 900, 0},
	"MaximumMessageSize":            {1024, maxSize, maxSize},
	"MessageRetentionPeriod":        {60, 14 * 86400, 4 * 86400},
	"ReceiveMessageWaitTimeSeconds": {0, 20, 0},
	"VisibilityTimeout":             {0, 43200, 30},
	"KmsDataKeyReusePeriodSeconds":  {60, 86400, 300},
}

// choices are attributes with few values; fifoOnly lists those of FIFO queues.
var choices = map[string][]string{
	"FifoQueue":                 {"true", "false"},
	"ContentBasedDeduplication": {"true", "false"},
	"DeduplicationScope":        {"queue", "messageGroup"},
	"FifoThroughputLimit":       {"perQueue", "perMessageGroupId"},
	"SqsManagedSseEnabled":      {"true", "false"},
}

var fifoOnly = []string{"ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"}

// free are attributes that this server stores and does not look at.
var free = []string{"Policy", "KmsMasterKeyId", "RedrivePolicy", "RedriveAllowPolicy"}

func (c settings) number(name string) int {
	if n, err := strconv.Atoi(c[name]); err == nil {
		return n
	}
	return numbers[name].def
}

func (c settings) seconds(name string) time.Duration {
	return time.Duration(c.number(name)) * time.Second
}
func (c settings) retention() time.Duration { return c.seconds("MessageRetentionPeriod") }

// lower writes "True" as "true": the service takes both.
func (c settings) lower() settings {
	out := settings{}
	for name, v := range c {
		if l := strings.ToLower(v); l == "true" || l == "false" {
			v = l
		}
		out[name] = v
	}
	return out
}

// redrive is what a queue does with messages that were received too often.
type redrive struct {
	Target string      `json:"deadLetterTargetArn"`
	Max    json.Number `json:"maxReceiveCount"`
}

// policy is the redrive policy, with its count; ok is false when there is none.
func (c settings) policy() (target string, most int, ok bool) {
	var r redrive
	if c["RedrivePolicy"] == "" || json.Unmarshal([]byte(c["RedrivePolicy"]), &r) != nil {
		return "", 0, false
	}
	n, err := r.Max.Int64()
	return r.Target, int(n), err == nil && n > 0
}

func badAttribute(name, reason string) error {
	return modelled("InvalidAttributeValue", "InvalidAttributeValue", "Invalid value for the parameter %s. Reason: %s", name, reason)
}

// check checks attributes of a queue that is made or changed.
func (c settings) check(fifo bool) error {
	for name, v := range c {
		if err := checkAttribute(name, v, fifo); err != nil {
			return err
		}
	}
	return nil
}

func checkAttribute(name, v string, fifo bool) error {
	unknown := modelled("InvalidAttributeName", "InvalidAttributeName", "Unknown Attribute %s.", name)
	if n, ok := numbers[name]; ok {
		i, err := strconv.Atoi(v)
		if err != nil || i < n.least || i > n.most {
			return modelled("InvalidAttributeValue", "InvalidAttributeValue", "Invalid value for the parameter %s.", name)
		}
		return nil
	}
	if list, ok := choices[name]; ok {
		switch {
		case name == "FifoQueue" && !fifo, name == "ContentBasedDeduplication" && !fifo:
			return unknown
		case slices.Contains(fifoOnly, name) && !fifo:
			return modelled("InvalidAttributeName", "InvalidAttributeName",
				"You can specify the %s only when FifoQueue is set to true.", name)
		case !slices.ContainsFunc(list, func(c string) bool { return strings.EqualFold(c, v) }):
			return modelled("InvalidAttributeValue", "InvalidAttributeValue", "Invalid value for the parameter %s.", name)
		}
		return nil
	}
	if !slices.Contains(free, name) {
		return unknown
	}
	if v != "" && strings.HasPrefix(name, "Redrive") {
		return checkPolicy(name, v)
	}
	return nil
}

// checkPolicy checks the JSON of RedrivePolicy and RedriveAllowPolicy; whether the queues exist is checked elsewhere.
func checkPolicy(name, v string) error {
	if name == "RedriveAllowPolicy" {
		var p allowPolicy
		if json.Unmarshal([]byte(v), &p) != nil || !slices.Contains([]string{"allowAll", "denyAll", "byQueue"}, p.Permission) {
			return badAttribute(name, "Enter redrivePermission as allowAll, denyAll or byQueue.")
		}
		if (p.Permission == "byQueue") != (len(p.Sources) > 0) || len(p.Sources) > 10 {
			return badAttribute(name, "Enter one to ten sourceQueueArns with byQueue, and none otherwise.")
		}
		return nil
	}
	var r redrive
	if json.Unmarshal([]byte(v), &r) != nil {
		return badAttribute(name, "Redrive policy is not a valid JSON map.")
	}
	n, err := r.Max.Int64()
	switch {
	case r.Target == "":
		return badAttribute(name, "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
	case r.Max == "":
		return badAttribute(name, "Redrive policy does not contain mandatory attribute: maxReceiveCount.")
	case err != nil || n < 1 || n > 1000:
		return badAttribute(name, "maxReceiveCount must be between 1 and 1000.")
	}
	return nil
}

// allowPolicy says whose dead-letter queue a queue may be.
type allowPolicy struct {
	Permission string   `json:"redrivePermission"`
	Sources    []string `json:"sourceQueueArns"`
}

func (c settings) allows(source string) bool {
	var p allowPolicy
	if c["RedriveAllowPolicy"] == "" || json.Unmarshal([]byte(c["RedriveAllowPolicy"]), &p) != nil {
		return true
	}
	return p.Permission == "allowAll" || p.Permission == "byQueue" && slices.Contains(p.Sources, source)
}
