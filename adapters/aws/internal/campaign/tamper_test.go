package campaign

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

// object is a decoded request or response.
type object = map[string]any

// tamper changes requests and responses of a process: mistakes are planted on the wire, not in the adapters.
type tamper struct {
	next http.RoundTripper
	// request may change a request. If it returns a response, the request is not sent; lost = there is no response.
	request func(x *exchange) (response object)
	// reply may change a response.
	reply func(x *exchange, status int, out object)
}

// lost stands for a missing response.
var lost = object{"lost": true}

// exchange is one request.
type exchange struct {
	t  *tamper
	r  *http.Request
	op string
	in object
}

func (t *tamper) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return nil, err
	}
	x := &exchange{t: t, r: r}
	_, x.op, _ = strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if err := json.Unmarshal(body, &x.in); err != nil {
		return nil, err
	}
	if t.request != nil {
		switch out := t.request(x); {
		case out["lost"] != nil:
			return nil, awstest.ErrFault
		case out != nil:
			return responseOf(r, http.StatusOK, out), nil
		}
	}
	status, out, err := x.send(x.op, x.in)
	if err != nil {
		return nil, err
	}
	if t.reply != nil {
		t.reply(x, status, out)
	}
	return responseOf(r, status, out), nil
}

// send sends a request of the same client.
func (x *exchange) send(op string, in object) (status int, out object, err error) {
	b, err := json.Marshal(in)
	if err != nil {
		return 0, nil, err
	}
	r := x.r.Clone(x.r.Context())
	target, _, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	r.Header.Set("X-Amz-Target", target+"."+op)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	got, err := x.t.next.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	b, err = io.ReadAll(got.Body)
	if err = errors.Join(err, got.Body.Close()); err != nil {
		return 0, nil, err
	}
	return got.StatusCode, out, json.Unmarshal(b, &out)
}

func responseOf(r *http.Request, status int, out object) *http.Response {
	b, err := json.Marshal(out)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	head := http.Header{}
	head.Set("Content-Type", "application/x-amz-json-1.0")
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: head,
		Body: io.NopCloser(bytes.NewReader(b)), ContentLength: int64(len(b)), Request: r,
	}
}

// at returns a member of nested objects, nil if there is none.
func at(o object, path ...string) any {
	var v any = o
	for _, p := range path {
		m, _ := v.(object)
		v = m[p]
	}
	return v
}

// updates returns the conditional updates of records in a request: the request itself, or parts of a transaction.
func (x *exchange) updates() (all []object) {
	if x.op == "UpdateItem" {
		all = append(all, x.in)
	}
	items, _ := x.in["TransactItems"].([]any)
	for _, it := range items {
		if u, ok := at(it.(object), "Update").(object); ok {
			all = append(all, u)
		}
	}
	return slices.DeleteFunc(all, func(u object) bool { return u["TableName"] != records })
}

// sets reports that an update writes this state.
func sets(u object, state string) bool {
	values, _ := u["ExpressionAttributeValues"].(object)
	for _, v := range values {
		if at(v.(object), "S") == state {
			return true
		}
	}
	return false
}

// unguard replaces the condition of an update by one that always holds.
func unguard(u object) {
	names, _ := u["ExpressionAttributeNames"].(object)
	condition, ok := u["ConditionExpression"].(string)
	for name := range names {
		if ok {
			u["ConditionExpression"] = "(" + condition + ") OR attribute_exists(" + name + ") OR attribute_not_exists(" + name + ")"
		}
		return
	}
}

// failedItem returns the item whose condition failed, nil if there is none.
func failedItem(status int, out object) object {
	kind, _ := out["__type"].(string)
	if status != http.StatusBadRequest || !strings.HasSuffix(kind, "#ConditionalCheckFailedException") {
		return nil
	}
	item, _ := out["Item"].(object)
	return item
}
