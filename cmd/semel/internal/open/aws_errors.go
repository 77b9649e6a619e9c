package open

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// awsError says why a place on AWS could not be opened or made, in one line, and what to do about it. missing is what to
// do when the queue or table does not exist.
func awsError(t Target, doing string, err error, missing string) error {
	if e := (*output.Error)(nil); errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	var api smithy.APIError
	if errors.As(err, &api) && (codeOf(api) == "QueueNameExists" || codeOf(api) == "QueueAlreadyExists") {
		return output.Failed("%s %s: it, or the queue of its dead letters, exists with other attributes", doing, t.Shown).
			WithHint("change them there (aws sqs set-queue-attributes), or choose another name")
	}
	text, hint := refusal(t, err, missing)
	return &output.Error{Code: output.CodeUnreachable, Err: &worded{fmt.Sprintf("%s %s: %s", doing, t.Shown, text), err}, Hint: hint}
}

func awsExplain(t Target, doing string, err error) error { return awsError(t, doing, err, "") }

// refusal words what a service, or the way to it, said.
func refusal(t Target, err error, missing string) (text, hint string) {
	action := actionOf(err)
	var api smithy.APIError
	if errors.As(err, &api) {
		switch code := codeOf(api); {
		case code == "QueueDoesNotExist" || code == "NonExistentQueue":
			return "the queue does not exist" + t.aws.where(), missing
		case code == "ResourceNotFoundException":
			return "the table does not exist" + t.aws.where(), missing
		case code == "ValidationException" && strings.Contains(api.ErrorMessage(), "key element"):
			return "the table has other keys than the URL says: " + api.ErrorMessage(),
				"name them (?pk=message_id, and &sk=NAME where it has a sort key), or let semel migrate make another table"
		case strings.HasPrefix(code, "AccessDenied") || code == "NotAuthorized":
			return "access is denied", "allow the IAM action " + action + " to the credentials in use"
		case strings.HasPrefix(strings.ToUpper(code), "KMS"):
			return "its key is refused: " + api.ErrorMessage(), "allow kms:Decrypt and kms:GenerateDataKey on the key that encrypts it"
		case code == "ExpiredToken" || code == "ExpiredTokenException" || code == "RequestExpired":
			return "the credentials have expired", "renew them (aws sso login), and check the clock of this machine"
		case code == "InvalidClientTokenId" || code == "UnrecognizedClientException" || code == "SignatureDoesNotMatch" ||
			code == "InvalidSignatureException" || code == "InvalidSecurity" || code == "IncompleteSignatureException":
			return "the credentials are refused", "aws sts get-caller-identity tells whose they are; check region and endpoint, too"
		case strings.HasPrefix(code, "UnknownOperation") || code == "InvalidAction":
			return "the service at the endpoint does not know " + action, "check the endpoint: it has to be that of the service"
		}
		return strings.TrimSpace(codeOf(api) + ": " + api.ErrorMessage()), ""
	}
	text = err.Error()
	var decode *smithy.DeserializationError
	why, known := cause(err)
	switch {
	case errors.As(err, &decode):
		return "the server" + t.aws.where() + " is not the service", "check the endpoint, and that no proxy is in between"
	case known || strings.Contains(text, "request send failed") && !strings.Contains(text, "deadline exceeded"):
		return "it cannot be reached: " + why, "check the endpoint" + t.aws.where() + ", and that something listens there"
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not respond in time", "check the endpoint" + t.aws.where() + " and the network"
	}
	return output.Split(err)
}

// where names region and endpoint: those of the URL, or what the SDK found in their place.
func (a *awsPlace) where() string {
	var s string
	if region := cmp.Or(a.region, a.used.region); region != "" {
		s = " in region " + region
	}
	if endpoint := cmp.Or(a.endpoint, a.used.endpoint); endpoint != "" {
		if u, err := url.Parse(endpoint); err == nil {
			u.User = nil
			endpoint = u.String()
		}
		s += " at " + endpoint
	}
	return s
}

// actionOf is the IAM action of the operation that failed: that of a batch is the single operation's.
func actionOf(err error) string {
	var op *smithy.OperationError
	if !errors.As(err, &op) {
		return "of the service"
	}
	return strings.ToLower(op.ServiceID) + ":" + strings.TrimSuffix(op.OperationName, "Batch")
}

// codeOf is the code of an error without its namespace.
func codeOf(api smithy.APIError) string {
	code := api.ErrorCode()
	return code[strings.LastIndexAny(code, "#.")+1:]
}

// cause is the last word on a connection that failed: before it stands the URL, several times. known tells that it is the
// reason, however the waiting for something better ended.
func cause(err error) (text string, known bool) {
	var dns *net.DNSError
	var number syscall.Errno
	var plain tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &dns):
		return dns.Error(), true
	case errors.As(err, &number):
		return number.Error(), true
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return "it does not speak TLS, and the endpoint begins with https", true
	case errors.As(err, &certificate):
		return certificate.Error(), true
	}
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err.Error(), false
}
