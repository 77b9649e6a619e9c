package fakesqs

import (
	"crypto/md5" // the service returns MD5, and clients compare it
	"encoding/binary"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// attribute is one attribute of a message.
type attribute struct {
	DataType    string
	StringValue *string `json:",omitempty"`
	BinaryValue []byte  `json:",omitempty"`
}

func (a attribute) binary() bool { return strings.HasPrefix(a.DataType, "Binary") }

func (a attribute) value() string {
	if a.binary() {
		return string(a.BinaryValue)
	}
	if a.StringValue == nil {
		return ""
	}
	return *a.StringValue
}

func sum(text string) string {
	h := md5.Sum([]byte(text))
	return hex.EncodeToString(h[:])
}

// digest is the MD5 of attributes, "" when there is none.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#sqs-attributes-md5-message-digest-calculation
func digest(attributes map[string]attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	var b []byte
	put := func(text string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		put(name)
		put(a.DataType)
		kind := byte(1)
		if a.binary() {
			kind = 2
		}
		b = append(b, kind)
		put(a.value())
	}
	return sum(string(b))
}

// size is what counts against the limit: body, and name, type and value of every attribute.
func size(body string, attributes map[string]attribute) int {
	n := len(body)
	for name, a := range attributes {
		n += len(name) + len(a.DataType) + len(a.value())
	}
	return n
}

// legal reports whether SQS accepts the text: #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
func legal(text string) bool {
	for _, r := range text {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}

var (
	attributeName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	attributeType = regexp.MustCompile(`^(String|Number|Binary)(\..*)?$`)
	// attributeNumber is a number as SQS reads it, whatever its range.
	attributeNumber = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

	fifoID = regexp.MustCompile("^[a-zA-Z0-9!-/:-@\\[-`{-~]+$")
)

// validFIFOID is for groups, deduplication IDs and attempts. Lengths are not in the patterns, which would take long to compile at
// every start of the binary.
func validFIFOID(id string) bool { return len(id) <= 128 && fifoID.MatchString(id) }

// checkAttributes checks the attributes of a message.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
func checkAttributes(attributes map[string]attribute) error {
	if len(attributes) > 10 {
		return invalidValue("Number of message attributes [%d] exceeds the allowed maximum [10].", len(attributes))
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a, lower := attributes[name], strings.ToLower(name)
		switch {
		case len(name) > 256, !attributeName.MatchString(name), strings.HasPrefix(name, "."), strings.HasSuffix(name, "."), strings.Contains(name, ".."):
			return invalidValue("Message (user) attribute name '%s' is not valid: use up to 256 alphanumeric characters, "+
				"underscores, hyphens and periods, no period first, last or twice in a row.", name)
		case strings.HasPrefix(lower, "aws."), strings.HasPrefix(lower, "amazon."):
			return invalidValue("Message (user) attribute name '%s' starts with a reserved prefix.", name)
		case a.DataType == "":
			return invalidValue("Message (user) attribute '%s' must contain a non-empty attribute type.", name)
		case !attributeType.MatchString(a.DataType) || len(a.DataType) > 256:
			return invalidValue("Message (user) attribute '%s' has an invalid message attribute type, the set of supported type "+
				"prefixes is Binary, Number, and String.", name)
		case a.value() == "":
			return invalidValue("Message (user) attribute '%s' must contain a non-empty value of type '%s'.", name, base(a.DataType))
		case strings.HasPrefix(a.DataType, "Number") && !attributeNumber.MatchString(a.value()):
			return invalidValue("Can't cast the value of message (user) attribute '%s' to a number.", name)
		case !a.binary() && !legal(a.value()):
			return invalidValue("Message (user) attribute '%s' contains characters that are not allowed.", name)
		}
	}
	return nil
}

// base is the type without its custom label; a number travels as a string.
func base(dataType string) string {
	if strings.HasPrefix(dataType, "Binary") {
		return "Binary"
	}
	return "String"
}
