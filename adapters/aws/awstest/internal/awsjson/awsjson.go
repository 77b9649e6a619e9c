// Package awsjson is the server side of the AWS JSON protocol (application/x-amz-json-1.0 and 1.1), which the fakes share.
//
// https://smithy.io/2.0/aws/protocols/aws-json-1_0-protocol.html
package awsjson

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Error is an error of the service, as clients see it.
type Error struct {
	// Status is the HTTP status; 0 = 400.
	Status int
	// Type is the shape's name with its namespace ("com.amazonaws.sqs#QueueDoesNotExist").
	Type    string
	Message string
	// Query is the code of the query protocol, for the header x-amzn-query-error; "" = none.
	Query string
	// Fields are members in addition to the message.
	Fields map[string]any
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Type, e.Message) }

// Operation carries out one operation.
type Operation func(ctx context.Context, body []byte) (any, error)

// Op makes an Operation of a function with decoded input.
func Op[I, O any](do func(ctx context.Context, in I) (O, error)) Operation {
	return func(ctx context.Context, body []byte) (any, error) {
		var in I
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, &Error{Type: "com.amazon.coral.service#SerializationException", Message: err.Error()}
		}
		return do(ctx, in)
	}
}

// Service serves operations by their name, the part of X-Amz-Target after the dot.
type Service struct {
	// Target is the part before the dot ("AmazonSQS").
	Target string
	// ContentType of the responses ("application/x-amz-json-1.0").
	ContentType string
	Operations  map[string]Operation
	// MaxBody bounds requests, in bytes.
	MaxBody int64
	// Checksum adds the header X-Amz-Crc32 to every response, as DynamoDB does; its clients compare it with the body.
	Checksum bool
}

// Name returns the operation of a request, "" if it is not one of the protocol.
func Name(r *http.Request) string {
	_, name, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	return name
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// An error is written even if the client seems to be gone: a handler that writes nothing responds with 200.
	out, err := s.serve(r)
	status, head := http.StatusOK, w.Header()
	if err != nil {
		status, out = failure(err, head)
	}
	head.Set("Content-Type", s.ContentType)
	head.Set("X-Amzn-Requestid", requestID())
	b, err := json.Marshal(out)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"__type":"InternalServerError","message":"the fake cannot write its response"}`)
	}
	if s.Checksum {
		head.Set("X-Amz-Crc32", Checksum(b))
	}
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// Checksum returns the value of the header X-Amz-Crc32 for a body: its CRC-32 (IEEE) as a decimal number.
func Checksum(body []byte) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10)
}

func (s *Service) serve(r *http.Request) (any, error) {
	target, name, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	do := s.Operations[name]
	if r.Method != http.MethodPost || target != s.Target || do == nil {
		return nil, &Error{
			Type: "com.amazon.coral.service#UnknownOperationException", Message: fmt.Sprintf("unknown operation %q", r.Header.Get("X-Amz-Target")),
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, s.MaxBody))
	if err != nil {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Type: "com.amazon.coral.service#SerializationException", Message: err.Error()}
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	return do(r.Context(), body)
}

func failure(err error, head http.Header) (status int, body map[string]any) {
	e := (*Error)(nil)
	if !errors.As(err, &e) {
		e = &Error{Status: http.StatusInternalServerError, Type: "com.amazon.coral.service#InternalFailure", Message: err.Error()}
	}
	if e.Query != "" {
		head.Set("X-Amzn-Query-Error", e.Query)
	}
	body = map[string]any{"__type": e.Type, "message": e.Message}
	for k, v := range e.Fields {
		body[k] = v
	}
	if e.Status == 0 {
		return http.StatusBadRequest, body
	}
	return e.Status, body
}

func requestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
