package sqslocal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The query protocol, which SDKs of before November 2023 speak: forms in, XML out. A request is translated to the JSON
// protocol, and its response back, so that both are the same service.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-making-api-requests-xml.html

// spoken tells the shape of a member in the query protocol.
type spoken struct {
	// form is the name of a list or a map in forms: "AttributeName.1", "Attribute.1.Name".
	form string
	// key and value are the names of a map's parts; key "" = it is a list.
	key, value string
	// entries: the elements are objects of members of their own.
	entries bool
}

// members are those of requests that are lists or maps, by their names in JSON. Everything else is a text or a number.
var members = map[string]spoken{
	"AttributeNames":              {form: "AttributeName"},
	"MessageSystemAttributeNames": {form: "MessageSystemAttributeName"},
	"MessageAttributeNames":       {form: "MessageAttributeName"},
	"TagKeys":                     {form: "TagKey"},
	"Attributes":                  {form: "Attribute", key: "Name", value: "Value"},
	"MessageAttributes":           {form: "MessageAttribute", key: "Name", value: "Value", entries: true},
	"MessageSystemAttributes":     {form: "MessageSystemAttribute", key: "Name", value: "Value", entries: true},
	"Tags":                        {form: "Tag", key: "Key", value: "Value"},
}

// whole are the members that are numbers.
var whole = []string{
	"DelaySeconds", "MaxNumberOfMessages", "VisibilityTimeout", "WaitTimeSeconds", "MaxResults", "MaxNumberOfMessagesPerSecond",
}

// formTree is a form with its dotted names taken apart.
type formTree struct {
	text *string
	sub  map[string]*formTree
}

// maxDepth bounds dotted names: SendMessageBatchRequestEntry.1.MessageAttribute.2.Value.StringValue has six parts.
const maxDepth = 8

func newTree(form url.Values) *formTree {
	root := &formTree{sub: map[string]*formTree{}}
	for name, values := range form {
		at, parts := root, strings.Split(name, ".")
		if len(parts) > maxDepth || len(values) == 0 {
			continue
		}
		for _, part := range parts {
			if at.sub == nil {
				at.sub = map[string]*formTree{}
			}
			if at.sub[part] == nil {
				at.sub[part] = &formTree{}
			}
			at = at.sub[part]
		}
		at.text = &values[0]
	}
	return root
}

// listed are the parts "1", "2", … in their order.
func (t *formTree) listed() []*formTree {
	if t == nil {
		return nil
	}
	var numbers []int
	for part := range t.sub {
		if n, err := strconv.Atoi(part); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	var out []*formTree
	for _, n := range slices.Compact(numbers) {
		if e := t.sub[strconv.Itoa(n)]; e != nil {
			out = append(out, e)
		}
	}
	return out
}

func (t *formTree) value() string {
	if t == nil || t.text == nil {
		return ""
	}
	return *t.text
}

// object is what a part of a form is in JSON.
func (t *formTree) object(batch string) (map[string]any, error) {
	out := map[string]any{}
	for name, m := range members {
		parts := t.sub[m.form].listed()
		if len(parts) == 0 {
			continue
		}
		if m.key == "" {
			var list []string
			for _, p := range parts {
				list = append(list, p.value())
			}
			out[name] = list
			continue
		}
		pairs := map[string]any{}
		for _, p := range parts {
			var v any = p.sub[m.value].value()
			if m.entries && p.sub[m.value] != nil {
				o, err := p.sub[m.value].object("")
				if err != nil {
					return nil, err
				}
				v = o
			}
			pairs[p.sub[m.key].value()] = v
		}
		out[name] = pairs
	}
	if batch != "" {
		entries := []any{}
		for _, p := range t.sub[batch].listed() {
			e, err := p.object("")
			if err != nil {
				return nil, err
			}
			entries = append(entries, e)
		}
		out["Entries"] = entries
	}
	for name, p := range t.sub {
		if p.text == nil || name == "Action" || name == "Version" {
			continue
		}
		out[name] = *p.text
		if slices.Contains(whole, name) {
			n, err := strconv.Atoi(*p.text)
			if err != nil {
				return nil, fmt.Errorf("value %q for parameter %s is no whole number", *p.text, name)
			}
			out[name] = n
		}
	}
	return out, nil
}

// readings are the actions that change nothing, which may be sent by GET.
var readings = []string{
	"GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues", "ListMessageMoveTasks", "ListQueueTags", "ListQueues",
}

// isQuery tells a request of the query protocol from one of JSON.
func isQuery(r *http.Request) bool {
	if r.Header.Get("X-Amz-Target") != "" {
		return false
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return r.Method == http.MethodGet || r.Method == http.MethodPost && kind == "application/x-www-form-urlencoded"
}

// serveQuery serves a request of the query protocol by one of JSON.
func (s *Server) serveQuery(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		xmlError(w, http.StatusBadRequest, "Sender", "MalformedInput", err.Error())
		return
	}
	op := r.Form.Get("Action")
	if op == "" {
		xmlError(w, http.StatusBadRequest, "Sender", "MissingAction",
			"This is semel sqs, a local Amazon SQS: point an SDK or the aws command at it. The request names no Action.")
		return
	}
	if !slices.Contains(operations, op) {
		xmlError(w, http.StatusBadRequest, "Sender", "InvalidAction", fmt.Sprintf("The action %s is not valid for this endpoint.", op))
		return
	}
	if r.Method != http.MethodPost && !slices.Contains(readings, op) { // any web page can make a browser send a GET
		w.Header().Set("Allow", http.MethodPost)
		xmlError(w, http.StatusMethodNotAllowed, "Sender", "AccessDenied", fmt.Sprintf("%s changes something: send it by POST.", op))
		return
	}
	batch := ""
	if slices.Contains(batches, op) {
		batch = op + "RequestEntry"
	}
	in, err := newTree(r.Form).object(batch)
	if err != nil {
		xmlError(w, http.StatusBadRequest, "Sender", "InvalidParameterValue", err.Error())
		return
	}
	if path := strings.Trim(r.URL.Path, "/"); in["QueueUrl"] == nil && path != "" {
		in["QueueUrl"] = "http://" + r.Host + "/" + path
	}
	j := r.Clone(r.Context())
	j.Method, j.Body = http.MethodPost, io.NopCloser(bytes.NewReader(encode(in)))
	j.URL.RawQuery = ""
	j.Header.Set("X-Amz-Target", "AmazonSQS."+op)
	a := &recorder{head: http.Header{}, status: http.StatusOK}
	s.serve(a, j) // what breaks the connection panics, here too
	if a.torn {
		_, _ = w.Write([]byte("<" + op + "Response"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	writeXML(w, op, a)
}

// writeXML writes a response of the JSON protocol as XML.
func writeXML(w http.ResponseWriter, op string, a *recorder) {
	var out map[string]any
	d := json.NewDecoder(bytes.NewReader(a.body.Bytes()))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		xmlError(w, http.StatusInternalServerError, "Receiver", "InternalFailure", err.Error())
		return
	}
	if a.status != http.StatusOK {
		code, kind, _ := strings.Cut(a.head.Get("X-Amzn-Query-Error"), ";")
		if code == "" {
			_, code, _ = strings.Cut(fmt.Sprint(out["__type"]), "#")
		}
		if kind == "" {
			kind = "Sender"
		}
		xmlError(w, a.status, kind, code, fmt.Sprint(out["message"]))
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<?xml version="1.0"?><%sResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">`, op)
	if !slices.Contains(silent, op) {
		tag(&b, op+"Result", func() { members2XML(&b, op, out) })
	}
	tag(&b, "ResponseMetadata", func() { leaf(&b, "RequestId", a.head.Get("X-Amzn-Requestid")) })
	fmt.Fprintf(&b, "</%sResponse>", op)
	sendXML(w, http.StatusOK, b.Bytes())
}

// silent are the operations without a result.
var silent = []string{
	"AddPermission", "ChangeMessageVisibility", "DeleteMessage", "DeleteQueue", "PurgeQueue", "RemovePermission",
	"SetQueueAttributes", "TagQueue", "UntagQueue",
}

// elements are the names of a list's elements in XML, by the name of the list in JSON.
var elements = map[string]string{
	"Messages": "Message", "QueueUrls": "QueueUrl", "queueUrls": "QueueUrl", "Results": "ListMessageMoveTasksResultEntry",
	"Failed": "BatchResultErrorEntry",
}

// members2XML writes an object: maps as pairs, lists as elements that are repeated.
func members2XML(b *bytes.Buffer, op string, o map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		switch v := o[name].(type) {
		case map[string]any:
			pairs2XML(b, op, name, v)
		case []any:
			element := elements[name]
			if name == "Successful" {
				element = op + "ResultEntry"
			}
			for _, e := range v {
				if m, ok := e.(map[string]any); ok {
					tag(b, element, func() { members2XML(b, op, m) })
				} else {
					leaf(b, element, fmt.Sprint(e))
				}
			}
		default:
			leaf(b, name, fmt.Sprint(v))
		}
	}
}

func pairs2XML(b *bytes.Buffer, op, name string, pairs map[string]any) {
	m, ok := members[name]
	if !ok {
		tag(b, name, func() { members2XML(b, op, pairs) })
		return
	}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		tag(b, m.form, func() {
			leaf(b, m.key, key)
			if v, ok := pairs[key].(map[string]any); ok {
				tag(b, m.value, func() { members2XML(b, op, v) })
			} else {
				leaf(b, m.value, fmt.Sprint(pairs[key]))
			}
		})
	}
}

func tag(b *bytes.Buffer, name string, inner func()) {
	fmt.Fprintf(b, "<%s>", name)
	inner()
	fmt.Fprintf(b, "</%s>", name)
}

// entities are what XML cannot hold as it is; a carriage return would arrive as a newline.
var entities = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\r", "&#xD;", "\n", "&#xA;", "\t", "&#x9;")

func leaf(b *bytes.Buffer, name, text string) {
	fmt.Fprintf(b, "<%s>%s</%s>", name, entities.Replace(text), name)
}

func xmlError(w http.ResponseWriter, status int, kind, code, message string) {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">`)
	tag(&b, "Error", func() {
		leaf(&b, "Type", kind)
		leaf(&b, "Code", code)
		leaf(&b, "Message", message)
	})
	leaf(&b, "RequestId", "00000000-0000-0000-0000-000000000000")
	b.WriteString("</ErrorResponse>")
	sendXML(w, status, b.Bytes())
}

func sendXML(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
