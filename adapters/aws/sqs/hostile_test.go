package sqs

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
)

// rawDeadLetter sends a raw message to the dead-letter queue, as anybody with the permission to send can.
func (b *bench) rawDeadLetter(body string, attributes map[string]types.MessageAttributeValue) {
	b.t.Helper()
	_, err := b.client.SendMessage(b.t.Context(), &awssqs.SendMessageInput{
		QueueUrl: &b.q.dlq.(*DeadLetterQueue).q.url, MessageBody: &body, MessageAttributes: attributes,
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestHostilePieces: a message that only looks like a piece of a dead letter is a dead letter with an unknown key. Whatever
// it contains, it does not crash a look at the dead letters.
func TestHostilePieces(t *testing.T) {
	for _, part := range []string{
		`{"dead_letter":"x","set":"s","number":-1,"of":3}`, `{"dead_letter":"x","set":"s","number":3,"of":3}`, `{"dead_letter":"x","set":"s","number":0,"of":0}`,
		`{"dead_letter":"","set":"s","number":0,"of":1}`, `{"dead_letter":"x","number":"1"}`, `[]`, `{`, `null`,
	} {
		b := newBench(t, setup{frozen: true})
		b.rawDeadLetter("body", textAttributes(attrPart, part))
		if ls := b.listed(); len(ls) != 1 || string(ls[0].Message.Body) != "body" || ls[0].Kind != driver.DeadLetterFailed {
			t.Errorf("%s: listed as %+v", part, ls)
		}
		// In the queue itself it is an ordinary message.
		b.raw(awssqs.SendMessageInput{MessageBody: aws.String("body"), MessageAttributes: textAttributes(attrPart, part)})
		if d := b.one(); string(d.Body) != "body" {
			t.Errorf("%s: received %+v", part, d)
		}
	}
	b := newBench(t, setup{frozen: true})
	// A piece that claims more pieces than there is memory for, and copies of two dead letters with one set name.
	b.rawDeadLetter("body", textAttributes(attrPart, `{"dead_letter":"huge","set":"s","number":0,"of":9000000000000000000}`))
	b.rawDeadLetter(`{"meta":{"id":"other"},"body":""}`, textAttributes(attrPart, `{"dead_letter":"forged","set":"s","number":0,"of":1}`))
	b.rawDeadLetter(`{"meta":{"id":"one"},"body":"MQ=="}`, textAttributes(attrPart, `{"dead_letter":"one","set":"s","number":0,"of":1}`))
	b.rawDeadLetter(`{"meta":{"id":"two"},"body":"Mg=="}`, textAttributes(attrPart, `{"dead_letter":"two","set":"s","number":0,"of":1}`))
	ls := b.listed()
	if len(ls) != 2 || ls[0].ID != "one" || string(ls[0].Message.Body) != "1" || ls[1].ID != "two" || string(ls[1].Message.Body) != "2" {
		t.Errorf("dead letters %+v, wanted one and two: two copies with one set name are two", ls)
	}
	for _, id := range []string{"huge", "forged", "one", "two"} {
		if err := b.q.DeleteDeadLetter(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if n := len(b.server.Messages("orders-dead")); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// TestHostileDeadLetters: a message with invalid attributes of ours is still a dead letter, and blocks no other.
func TestHostileDeadLetters(t *testing.T) {
	b := newBench(t, setup{frozen: true})
	for _, text := range []string{`{`, `{"id":""}`, `{"id":7}`, `null`, `{"id":"x","token":-1}`} {
		b.rawDeadLetter(text, textAttributes(attrDeadLetter, text))
	}
	if err := b.q.PutDeadLetter(t.Context(), driver.DeadLetter{ID: "fine", Message: driver.Message{ID: "m"}}); err != nil {
		t.Fatal(err)
	}
	ls := b.listed()
	if len(ls) != 6 {
		t.Fatalf("%d dead letters", len(ls))
	}
	for _, l := range ls {
		if l.ID != "fine" && !strings.HasPrefix(l.ID, "sqs-") {
			t.Errorf("dead letter %q", l.ID)
		}
		if err := b.q.DeleteDeadLetter(t.Context(), l.ID); err != nil {
			t.Error(err)
		}
	}
	if ls := b.listed(); len(ls) != 0 {
		t.Errorf("%d dead letters are left", len(ls))
	}
}

// TestNamesThatResembleOurs: a group with our prefix is a group, and attributes that differ from ours only in case are
// headers.
func TestNamesThatResembleOurs(t *testing.T) {
	b := newBench(t, setup{name: "orders.fifo", frozen: true, o: Options{Ungrouped: true}})
	b.send(driver.Message{ID: "m", Group: ungrouped + "mine"})
	d := b.one()
	if d.Group != ungrouped+"mine" {
		t.Errorf("the group came as %q", d.Group)
	}
	b.settle(driver.Applied, driver.Settlement{Receipt: d.Receipt})
	attributes := map[string]types.MessageAttributeValue{}
	for _, name := range []string{"Semel-Id", "SEMEL-PART", "Semel-Not-Before", "semel-Dead-Letter"} {
		maps.Copy(attributes, textAttributes(name, b.clock.Now().Add(time.Hour).UnixMilli()))
	}
	id := b.raw(awssqs.SendMessageInput{
		MessageBody: aws.String("x"), MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String("d"), MessageAttributes: attributes,
	})
	if d := b.one(); d.ID != id || len(d.Headers) != len(attributes)+1 {
		t.Errorf("received %+v", d)
	}
}

// TestHostileNeighbours: whatever is wrong with one message, the others of a receive are delivered.
func TestHostileNeighbours(t *testing.T) {
	b := newBench(t, setup{frozen: true, o: Options{Unwrap: true}})
	ten := map[string]types.MessageAttributeValue{}
	for i := range 10 {
		maps.Copy(ten, textAttributes(fmt.Sprintf("a%d", i), strings.Repeat("v", 1000)))
	}
	deep := `{"Type":"Notification","TopicArn":"t","MessageId":"m","Message":"x"}`
	for range 6 {
		deep = fmt.Sprintf(`{"Type":"Notification","TopicArn":"t","MessageId":"m","Message":%q}`, deep)
	}
	for _, in := range []awssqs.SendMessageInput{
		{MessageBody: aws.String("ten"), MessageAttributes: ten},
		{MessageBody: aws.String("id"), MessageAttributes: textAttributes(attrID, strings.Repeat("x", 5000))},
		{MessageBody: aws.String("not before"), MessageAttributes: textAttributes(attrDue, "-9223372036854775808")},
		{MessageBody: aws.String("rest"), MessageAttributes: textAttributes(attrHeaders, `{"headers":[],"id":7}`)},
		{MessageBody: aws.String("rest"), MessageAttributes: textAttributes(attrHeaders, strings.Repeat("[", 100_000))},
		{MessageBody: aws.String("encoding"), MessageAttributes: textAttributes(attrEncoding, "rot13")},
		{MessageBody: aws.String(deep)},
		{MessageBody: aws.String(strings.Repeat("[", 200_000))},
		{MessageBody: aws.String(`{"Records":[{"eventSource":":s3","s3":{"object":{"key":"` + strings.Repeat("k", 10_000) + `"}}}]}`)},
	} {
		b.raw(in)
	}
	b.raw(awssqs.SendMessageInput{MessageBody: aws.String("last")})
	ds := b.receive(10)
	for _, d := range ds {
		l := deadLetterOf(d, driver.NewMessageID())
		b.settle(driver.Applied, driver.Settlement{Receipt: d.Receipt, Action: driver.Dead, DeadLetter: l})
	}
	if ls := b.listed(); len(ls) != 10 {
		t.Errorf("%d dead letters of 10 messages", len(ls))
	}
}

// TestDeadLettersOfSeveralQueues: a dead letter that the provider moved names its source queue.
func TestDeadLettersOfSeveralQueues(t *testing.T) {
	b := newBench(t, setup{frozen: true, create: CreateOptions{MaxReceive: 1}})
	b.raw(awssqs.SendMessageInput{MessageBody: aws.String("x")})
	b.one()
	b.clock.Advance(31 * time.Second)
	b.q.wait = 0
	if ds, err := b.q.Receive(t.Context(), 1); err != nil || len(ds) != 0 {
		t.Fatalf("received %v, %v", ds, err)
	}
	if ls := b.listed(); len(ls) != 1 || ls[0].Message.Queue != "orders" {
		t.Errorf("dead letters %+v", ls)
	}
}
