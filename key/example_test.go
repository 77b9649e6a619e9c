package key_test

import (
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// The parts of a key stay apart, whatever they contain.
func ExampleTuple() {
	fmt.Println(key.Tuple("order-12345", "charge"))
	fmt.Println(key.Tuple("a|b", "c"))
	fmt.Println(key.Tuple("a", "b|c"))
	// Output:
	// order-12345|charge
	// a\|b|c
	// a|b\|c
}

// The business key survives producers that send twice: both messages below charge order A-1 once.
func ExampleFromJSON() {
	of := key.FromJSON("/order_id", "/action")
	for _, m := range []*driver.Message{
		{ID: "uuid-1", Body: []byte(`{"order_id":"A-1","action":"charge","sent_at":"12:00:00"}`)},
		{ID: "uuid-2", Body: []byte(`{"action":"charge","order_id":"A-1","sent_at":"12:00:09"}`)},
	} {
		k, err := of(m)
		fmt.Println(k, err)
	}
	_, err := of(&driver.Message{ID: "uuid-3", Body: []byte(`{"action":"charge"}`)})
	fmt.Println(errors.Is(err, key.ErrMissing), err)
	// Output:
	// A-1|charge <nil>
	// A-1|charge <nil>
	// true semel: key of message "uuid-3": no value at "/order_id" in the body
}

// Producers that know an id put it into the body; for the others the broker's has to do.
func ExampleFirst() {
	of := key.First(key.FromJSON("/id"), key.ByID)
	fmt.Println(of(&driver.Message{ID: "m-1", Body: []byte(`{"id":"order-1"}`)}))
	fmt.Println(of(&driver.Message{ID: "m-2", Body: []byte(`no JSON`)}))
	fmt.Println(of(&driver.Message{ID: "m-3", Body: []byte(`{"id":""}`)}))
	// Output:
	// order-1 <nil>
	// m-2 <nil>
	//  semel: key of message "m-3": the value at "/id" is an empty string, and it would be the key of every message without a value: send the id, or leave the field out
}

// The same content is the same key, however it is written.
func ExampleFromBody() {
	of := key.FromBody()
	a, _ := of(&driver.Message{Body: []byte(`{"id": 7, "amount": 12.50}`)})
	b, _ := of(&driver.Message{Body: []byte(`{"amount":12.5,"id":7}`)})
	fmt.Println(a == b, a[:13])
	// Output: true json:5ad31bd8
}

// Worker flags become key functions. The error for a mistake has a hint.
func ExampleParse() {
	of, err := key.Parse("json:/order_id,/action")
	fmt.Println(of != nil, err)
	_, err = key.Parse("json:order_id")
	fmt.Println(err)
	// Output:
	// true <nil>
	// semel: config Key: "order_id" in json:order_id is no JSON pointer (begin every pointer with /: json:/order_id,/action; perhaps "/order_id")
}

// The fingerprint notices one key with two payloads, and only where it matters.
func ExampleFingerprintJSON() {
	fingerprint := key.FingerprintJSON("/amount", "/currency")
	first, _ := fingerprint(&driver.Message{Body: []byte(`{"order":"A-1","amount":100,"currency":"EUR","trace":"x"}`)})
	again, _ := fingerprint(&driver.Message{Body: []byte(`{"order":"A-1","amount":1e2,"currency":"EUR","trace":"y"}`)})
	other, _ := fingerprint(&driver.Message{Body: []byte(`{"order":"A-1","amount":999,"currency":"EUR","trace":"x"}`)})
	fmt.Println(first.Differs(again), first.Differs(other))
	// Output: false true
}

// The two routes of one upload give one key.
func ExampleFromS3() {
	of := key.FromS3()
	for _, body := range []string{
		`{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"in"},
			"object":{"key":"my+report.csv","versionId":"V1","sequencer":"0055AED6"}}}]}`,
		`{"detail-type":"Object Created","source":"aws.s3","detail":{"bucket":{"name":"in"},
			"object":{"key":"my report.csv","version-id":"V1","sequencer":"0055AED6"}}}`,
	} {
		fmt.Println(of(&driver.Message{Body: []byte(body)}))
	}
	// Output:
	// in|my report.csv|V1 <nil>
	// in|my report.csv|V1 <nil>
}

// SplitTuple returns the parts of a key from its text form.
func ExampleSplitTuple() {
	parts, err := key.SplitTuple(`a\|b|c`)
	fmt.Printf("%q %v\n", parts, err)
	// Output: ["a|b" "c"] <nil>
}
