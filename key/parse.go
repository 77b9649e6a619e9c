package key

import (
	"fmt"
	"strings"
)

const keyForms = "id, header:NAME, json:/POINTER,/POINTER, body, event, s3, cloudevents, eventbridge, sns, gcs, pubsub, kafka, " +
	"stripe, github, sqsfifo or position"

// keyWords are the forms without an argument, and whether the body may differ between two messages with one key: then no
// fingerprint is made from it.
var keyWords = map[string]struct {
	key     Func
	differs bool
}{
	"id":                  {ByID, false},
	"body":                {FromBody(), true},
	"cloudevents":         {FromCloudEvent(), false},
	"s3":                  {FromS3(), true},
	"event":               {FromEvent(), true},
	"eventbridge":         {FromEventBridge(false), true},
	"eventbridge:replays": {FromEventBridge(true), true},
	"sns":                 {FromSNS(), true},
	"gcs":                 {FromGCS(), true},
	"pubsub":              {FromPubSub(), true},
	"kafka":               {FromKafka(), false},
	"stripe":              {FromStripe(), true},
	"github":              {FromGitHub(false), true},
	"github:any":          {FromGitHub(true), true},
	"sqsfifo":             {FromDeduplicationID(false), false},
	"sqsfifo:group":       {FromDeduplicationID(true), false},
	"position":            {FromPosition(), false},
}

// Parse returns the key function for a text form, as the worker's flag --key accepts it:
//
//	id                        ByID
//	header:NAME               FromHeader
//	json:/order_id,/action    FromJSON; a pointer cannot contain a comma here
//	body                      FromBody
//	cloudevents               FromCloudEvent
//	s3                        FromS3
//	event                     FromEvent
//	eventbridge               FromEventBridge(false); eventbridge:replays FromEventBridge(true)
//	sns                       FromSNS
//	gcs, pubsub               FromGCS, FromPubSub
//	kafka                     FromKafka
//	stripe                    FromStripe
//	github                    FromGitHub(false); github:any FromGitHub(true)
//	sqsfifo                   FromDeduplicationID(false); sqsfifo:group FromDeduplicationID(true)
//	position                  FromPosition
//
// Any other text is a *SpecError with a hint.
func Parse(spec string) (Func, error) {
	form, arg, _ := strings.Cut(spec, ":")
	switch {
	case form == "header" && arg != "":
		return FromHeader(arg), nil
	case form == "json" && arg != "":
		ptrs, err := specPointers("Key", arg)
		if err != nil {
			return nil, err
		}
		return FromJSON(ptrs...), nil
	}
	if w, ok := keyWords[spec]; ok {
		return w.key, nil
	}
	return nil, specError("Key", spec, keyForms)
}

// ParseFingerprint returns the fingerprint function for a text form, as the worker's flag --fingerprint accepts it: the forms
// of [Parse], or none, for which it returns nil. json: and body are [FingerprintJSON] and [FingerprintBody]. The others hash
// the key that the key function of that form returns. Any other text is a *SpecError with a hint.
func ParseFingerprint(spec string) (FingerprintFunc, error) {
	form, arg, hasArg := strings.Cut(spec, ":")
	switch {
	case spec == "none":
		return nil, nil //nolint:nilnil // nil means no fingerprint
	case spec == "body":
		return FingerprintBody(), nil
	case form == "json" && arg != "":
		ptrs, err := specPointers("Fingerprint", arg)
		if err != nil {
			return nil, err
		}
		return FingerprintJSON(ptrs...), nil
	}
	key, err := Parse(spec)
	if err != nil {
		return nil, specError("Fingerprint", spec, "none, "+keyForms)
	}
	if hasArg {
		spec = form + ":" + strings.ToLower(arg) // the case of a header's name does not matter
	}
	return fingerprintByKey(spec, key), nil
}

// DefaultFingerprint returns the default fingerprint for a key in text form:
//   - for json: and body, nil, because the key is made from the content. A replay with another body is then reported
//     (ReplayedOtherPayload) but not a mismatch, because the difference may be a time, a trace ID or a counter.
//   - for keys made from an event (s3, event, stripe and so on), the key itself, because two messages of one event may have
//     different bodies, such as those of the two routes of an S3 event
//   - for all others, the body
func DefaultFingerprint(keySpec string) FingerprintFunc {
	w := keyWords[keySpec]
	switch form, _, _ := strings.Cut(keySpec, ":"); {
	case form == "json" || keySpec == "body":
		return nil
	case w.differs:
		return fingerprintByKey(keySpec, w.key)
	}
	return FingerprintBody()
}

func specPointers(field, list string) ([]string, error) {
	ptrs := strings.Split(list, ",")
	for _, p := range ptrs {
		if !strings.HasPrefix(p, "/") {
			return nil, &SpecError{
				Field: field, Problem: fmt.Sprintf("%q in json:%s is no JSON pointer", p, list),
				Hint: fmt.Sprintf("begin every pointer with /: json:/order_id,/action; perhaps %q", "/"+strings.TrimSpace(p)),
			}
		}
	}
	if _, err := parsePointers(ptrs); err != nil {
		return nil, &SpecError{Field: field, Problem: err.Error(), Hint: "write ~1 for / and ~0 for ~ in a name"}
	}
	return ptrs, nil
}

func specError(field, spec, forms string) error {
	hint := "write " + forms
	switch {
	case strings.HasPrefix(spec, "/"):
		hint = fmt.Sprintf("for fields of a JSON body write json:%s", spec)
	case spec == "header" || spec == "header:":
		hint = "name the header: header:idempotency-key"
	case spec == "json" || spec == "json:":
		hint = "name the fields: json:/order_id,/action; for the whole body write body"
	case spec == "cloudevent":
		hint = "write cloudevents"
	case spec == "events":
		hint = "write event"
	}
	return &SpecError{Field: field, Problem: fmt.Sprintf("%q is none of its forms", spec), Hint: hint}
}
