package ops

import (
	"fmt"
	"strconv"
	"time"

	"github.com/semel-dev/semel/internal/words"
)

// Levels of an item.
const (
	LevelAdvice  = "advice"  // what to set; nobody looked at a queue
	LevelOK      = "ok"      // the queue is set so
	LevelChange  = "change"  // the queue is set otherwise
	LevelWarning = "warning" // cannot be had without a price
	LevelDanger  = "danger"  // messages are lost or take effect twice as planned
)

// Advice is one piece of advice.
type Advice struct {
	Name     string `json:"name"`
	Level    string `json:"level"`
	Question string `json:"question"`
	Value    string `json:"value"`
	// Have is how the live queue is set.
	Have string `json:"have,omitempty"`
	// Set is where: flags of semel work, attributes of the queue.
	Set    string `json:"set,omitempty"`
	Why    string `json:"why"`
	Source string `json:"source"`
}

// Where the rules are written.
const (
	law3        = "docs/protocol.md, law 3"
	law6        = "docs/protocol.md, law 6"
	law10       = "docs/protocol.md, law 10"
	sqsGuide    = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/"
	hidden      = sqsGuide + "sqs-visibility-timeout.html"
	deadLetters = sqsGuide + "setting-up-dead-letter-queue-retention.html"
	polling     = sqsGuide + "sqs-short-and-long-polling.html"
	dedup       = sqsGuide + "using-messagededuplicationid-property.html"
	quotas      = sqsGuide + "quotas-messages.html"
	// jetStream is about consumers: AckWait, MaxDeliver.
	jetStream = "https://docs.nats.io/nats-concepts/jetstream/consumers"
	// quorum is about quorum queues: delivery limit, dead letters.
	quorum = "https://www.rabbitmq.com/docs/quorum-queues"
	lambda = "https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html"
)

// Advice is the advice for a workload that [Workload.Check] has not refused, in the order in which the questions come up.
func (in Workload) Advice() []Advice {
	in = in.Assumed()
	s := in.Settings()
	items := []Advice{visibility(in, s), lease(in, s), heartbeat(in, s), longest(in, s)}
	if in.Kind.SQS() {
		items = append(items, redrive(in, s))
	}
	if in.Kind == KindNATS {
		items = append(items, maxDeliver(in))
	}
	if in.Kind == KindRabbitMQ {
		items = append(items, deliveryLimit())
	}
	items = append(items, retention(in, s))
	if in.Kind.SQS() {
		items = append(items, deadLetterRetention(in, s), longPoll(in, s))
	}
	items = append(items, inFlight(in, s), grace(in, s))
	if in.Kind == KindFIFO {
		items = append(items, window(in))
	}
	return items
}

func visibility(in Workload, s Settings) Advice {
	it := Advice{
		Name: "visibility", Level: LevelAdvice, Question: "How long should a received message stay hidden from other workers?",
		Value: words.About(s.Visibility), Set: "--visibility " + words.About(s.Visibility), Source: hidden,
		Why: "short, because after a crash the message waits that long, and long enough that nearly every run ends without an " +
			"extension: the heartbeat covers the rest, so that it need not exceed the longest run",
	}
	switch {
	case in.LambdaTimeout > 0:
		it.Source = lambda
		it.Why = fmt.Sprintf("six times the function's time limit (%s) and the batching window (%s): Lambda may be throttled and try "+
			"again before the message is anybody else's", words.About(in.LambdaTimeout), words.About(in.LambdaWindow))
		it.Set = ""
	case in.NoHeartbeat:
		it.Why = fmt.Sprintf("nothing extends it, so it must cover the longest run (%s) of everything that a worker has in flight, and a tenth "+
			"more; after a crash the message waits all of that, which a heartbeat would save", words.About(in.MaxRuntime))
	case s.Visibility > time.Minute:
		it.Why = fmt.Sprintf("longer than the usual minute, so that the receives which a run of %s may use up fit in a redrive policy",
			words.About(in.MaxRuntime))
		it.Source = law6
	case in.P99 == 0:
		it.Why = "the usual half minute, because --p99, how long a run takes, is not given: " + it.Why
	}
	if in.Kind.SQS() {
		it.attribute("VisibilityTimeout", seconds(s.Visibility))
	}
	if in.Kind == KindNATS {
		it.Source = jetStream
		it.attribute("AckWait", words.About(s.Visibility)+" of the consumer, which has to be the same")
	}
	if in.Kind == KindRedis {
		it.attribute("visibility", words.About(s.Visibility)+" of the queue (semel queue create --default-visibility), which has to be the same")
	}
	if in.Kind == KindRabbitMQ {
		it.Source = law3
		it.Why = "RabbitMQ has no visibility timeout, and redelivers when a worker's connection ends; the lease of a claim follows from it: " + it.Why
	}
	if in.Kind == KindKafka {
		it.Source = law3
		it.Why = "Kafka hides no message: a partition belongs to one worker until its session ends (session=45s in the URL). The claim is " +
			"computed from this setting: after a crash the message waits for the longer of the two"
		return it
	}
	if l := in.Live; l != nil {
		it.compare(words.About(l.Visibility), l.Visibility == s.Visibility)
		if in.LambdaTimeout > 0 && l.Visibility < in.LambdaTimeout {
			it.Level = LevelDanger
		}
	}
	return it
}

func lease(in Workload, s Settings) Advice {
	it := Advice{
		Name: "lease", Level: LevelAdvice, Question: "How long is a claim good for?", Value: words.About(s.Lease), Source: law3,
		Why: "nine tenths of the visibility, which semel sets by itself: the claim must end before the message can be seen again, " +
			"so that a duplicate finds it either running or free, never in between",
	}
	if in.LambdaTimeout > 0 {
		it.Why = "the function's time limit: a frozen function extends nothing, so the lease must not outlive it"
	}
	return it
}

func heartbeat(in Workload, s Settings) Advice {
	it := Advice{
		Name: "heartbeat", Level: LevelAdvice, Question: "How often should the visibility be extended?", Value: words.About(s.Heartbeat), Source: law3,
		Why: fmt.Sprintf("a third of the lease, so that two extensions in a row may fail, counted from the receive and not from the "+
			"start of the run; a run of %s needs %d extensions", words.About(s.MaxRuntime), extensions(s)),
	}
	if in.NoHeartbeat {
		it.Level, it.Value = LevelWarning, "never"
		it.Why = "as you said; a run that lasts longer than the visibility then runs a second time beside the first"
	}
	return it
}

// extensions is how many a longest run needs.
func extensions(s Settings) int64 {
	if s.Heartbeat <= 0 {
		return 0
	}
	return int64(s.MaxRuntime / s.Heartbeat)
}

func longest(in Workload, s Settings) Advice {
	it := Advice{
		Name: "max-runtime", Level: LevelAdvice, Question: "How long may one run last?", Value: words.About(s.MaxRuntime),
		Set: "--max-runtime " + words.About(s.MaxRuntime), Source: "docs/guide.md",
		Why: "a limit ends a run that hangs while its heartbeat goes on: without one its message would stay hidden forever",
	}
	switch {
	case s.Steps:
		it.Level, it.Value, it.Source, it.Set = LevelDanger, "steps", hidden, ""
		it.Why = fmt.Sprintf("SQS hides a message for 12 h in all, counted from its receive, so a run of %s is handed out a second time: "+
			"cut it in durable steps (package steps) that go on where they were", words.About(in.MaxRuntime))
	case in.LambdaTimeout > 0:
		it.Source = lambda
		it.Why = "the function's time limit; begin no message that would not end, with its record, before it, and report the rest as failed"
		it.Set = ""
	}
	return it
}

func redrive(in Workload, s Settings) Advice {
	it := Advice{
		Name: "redrive limit", Level: LevelAdvice, Question: "After how many receives may the queue itself move a message to the dead-letter queue?",
		Value: strconv.Itoa(s.MaxReceives) + " or more", Source: law6,
		Why: fmt.Sprintf("%d attempts × (1 + longest run %s / lease %s): a duplicate that is deferred while its key runs is received, too, "+
			"and a smaller limit moves healthy messages away; failures are counted by semel", in.Attempts, words.About(s.MaxRuntime), words.About(s.Lease)),
	}
	if Receives(in.Attempts, s.MaxRuntime, s.Lease) > maxReceives {
		it.Level = LevelWarning
		it.Why += fmt.Sprintf("; more than %d cannot be set", maxReceives)
	}
	if in.LambdaTimeout > 0 && s.MaxReceives == lambdaReceives {
		it.Source, it.Why = lambda, "5 at least: a receive that Lambda was throttled for counts as well"
	}
	it.attribute("RedrivePolicy.maxReceiveCount", strconv.Itoa(s.MaxReceives))
	if l := in.Live; l != nil {
		have := "no redrive policy"
		if l.MaxReceives > 0 {
			have = strconv.Itoa(l.MaxReceives)
		}
		it.compare(have, l.MaxReceives == 0 || l.MaxReceives >= s.MaxReceives)
		if it.Level == LevelChange {
			it.Level = LevelDanger
		}
	}
	return it
}

// maxDeliver is about JetStream's own limit, which keeps no dead letters.
func maxDeliver(in Workload) Advice {
	it := Advice{
		Name: "max deliver", Level: LevelAdvice, Question: "After how many deliveries may JetStream stop delivering a message?", Value: "-1 (never)",
		Source: jetStream, Why: "a message that reaches MaxDeliver is delivered to nobody and stays in the stream: semel counts attempts and keeps dead letters",
	}
	it.attribute("MaxDeliver", "-1")
	if l := in.Live; l != nil {
		it.compare(strconv.Itoa(l.MaxReceives), l.MaxReceives == 0)
		if it.Level == LevelChange {
			it.Level = LevelDanger
		} else {
			it.Have = "-1"
		}
	}
	return it
}

func deliveryLimit() Advice {
	it := Advice{
		Name: "delivery limit", Level: LevelAdvice, Question: "After how many deliveries may RabbitMQ drop a message?", Value: "none", Source: quorum,
		Why: "every disconnect of a worker counts for all prefetched messages, and a message over the limit is dropped without a handler run; " +
			"semel counts attempts and keeps dead letters; RabbitMQ 4.0 has a limit of 20 by default",
	}
	it.attribute("x-delivery-limit", "-1, and on RabbitMQ 3 no such argument")
	return it
}

func retention(in Workload, s Settings) Advice {
	it := Advice{
		Name: "record retention", Level: LevelAdvice, Question: "How long must a record outlive its run?", Value: words.About(s.Retention),
		Set: "--retention " + words.About(s.Retention), Source: law10,
		Why: "the default: this queue has no limit of its own; say with --redrive and --producer-retries how late messages are sent again",
	}
	if s.Horizon > 0 {
		it.Why = fmt.Sprintf("a duplicate may come as late as %s (%s): one that comes after its record is gone takes effect again",
			words.About(s.Horizon), in.late(in.deadLetters()).Parts())
	}
	if l := in.Live; l != nil && l.DeadLetterRetention > 0 {
		if now := in.late(l.DeadLetterRetention).Horizon(); now != s.Horizon {
			it.Why += fmt.Sprintf("; %s as the dead-letter queue is set now", words.About(now))
		}
	}
	return it
}

func deadLetterRetention(in Workload, s Settings) Advice {
	it := Advice{
		Name: "dead-letter retention", Level: LevelAdvice, Question: "How long should the dead-letter queue keep a message?",
		Value: words.About(s.DeadLetterRetention), Source: deadLetters,
		Why: "longer than the queue itself: on a standard queue a message's age goes on counting when it is moved, so an equal retention " +
			"leaves a message that failed late no time at all",
	}
	if in.Kind == KindFIFO {
		it.Why = "as long as can be: the age of a message begins anew when a FIFO queue moves it, and nobody looks at dead letters every day"
	}
	if in.Retention >= maxKept && in.Kind == KindSQS {
		it.Level = LevelWarning
		it.Why += "; the queue's own retention is the most there is, so lower it, or keep dead letters in DynamoDB (dead_letters=dynamodb:TABLE)"
	}
	it.attribute("dead-letter queue MessageRetentionPeriod", seconds(s.DeadLetterRetention))
	if l := in.Live; l != nil && l.DeadLetterRetention > 0 {
		it.compare(words.About(l.DeadLetterRetention), deadLettersOutlast(in.Retention, l.DeadLetterRetention, in.Kind == KindFIFO))
	}
	return it
}

func longPoll(in Workload, s Settings) Advice {
	it := Advice{
		Name: "long polling", Level: LevelAdvice, Question: "How long should a receive wait for a message?", Value: words.About(s.Wait), Source: polling,
		Set: "wait=20s in the URL",
		Why: "an idle worker then pays for 3 calls a minute and still gets a message at once; a receive that does not wait asks only some " +
			"of the servers, and may find nothing although messages are there",
	}
	it.attribute("ReceiveMessageWaitTimeSeconds", seconds(s.Wait))
	if l := in.Live; l != nil {
		it.compare(words.About(l.Wait), l.Wait > 0)
	}
	return it
}

func inFlight(in Workload, s Settings) Advice {
	it := Advice{
		Name: "batch", Level: LevelAdvice, Question: "How many messages should a worker take at once?", Value: strconv.Itoa(s.Batch),
		Set: fmt.Sprintf("--batch %d --concurrency %d", s.Batch, in.Concurrency), Source: "docs/guide.md",
		Why: "full batches save round trips, and the worker extends what waits for a handler",
	}
	if s.Batch < in.Batch {
		it.Why = fmt.Sprintf("no more than %s can begin soon: what one worker holds is hidden from an idle one", words.Count(in.Concurrency, "handler"))
	}
	if rounds := (in.Batch + in.Concurrency - 1) / in.Concurrency; in.P99 > 0 && rounds > 1 {
		it.Why += fmt.Sprintf("; the last of %d would begin after %s", in.Batch, words.About(time.Duration(rounds-1)*in.P99))
	}
	if in.Kind.SQS() && in.Batch > maxBatch {
		it.Why += "; SQS hands out 10 at most"
		it.Source = quotas
	}
	return it
}

func grace(in Workload, s Settings) Advice {
	why := "a worker that stops lets running handlers end: a handler that it kills has an unknown outcome, and runs again"
	if in.P99 > 25*time.Second {
		why += "; give the platform's own stop timeout as much"
	}
	return Advice{
		Name: "grace", Level: LevelAdvice, Question: "How long may running handlers take when a worker is stopped?", Value: words.About(s.Grace),
		Set: "--grace " + words.About(s.Grace), Why: why, Source: "docs/worker.md",
	}
}

func window(in Workload) Advice {
	it := Advice{
		Name: "deduplication window", Level: LevelOK, Question: "Does the FIFO queue's own deduplication do?", Value: words.About(dedupWindow), Source: dedup,
		Why: "it drops what is sent again within 5 minutes; it does nothing about deliveries, redrives or a crash between effect and " +
			"delete, so it saves work and guarantees nothing: the record does",
	}
	if in.ProducerRetries > dedupWindow {
		it.Level = LevelWarning
		it.Why = fmt.Sprintf("producers repeat for up to %s and it forgets after 5 minutes: what comes later is a new message to the queue, "+
			"so give --key a field of the message, which the record remembers", words.About(in.ProducerRetries))
	}
	if in.Live != nil && in.Live.ContentDedup {
		it.Have = "by content"
		it.Why += "; by content two different orders with equal bodies are one"
	}
	return it
}

// attribute says where a value goes on the queue's side.
func (it *Advice) attribute(name, value string) {
	if it.Set != "" {
		it.Set += ", "
	}
	it.Set += name + " " + value
}

func (it *Advice) compare(have string, same bool) {
	it.Have = have
	switch {
	case !same && it.Level == LevelAdvice:
		it.Level = LevelChange
	case same && it.Level == LevelAdvice:
		it.Level = LevelOK
	}
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
