package fakesqs

// maxBatch is how many entries one batch may have.
const maxBatch = 10

// batchResult is the response of every batch operation.
type batchResult[T any] struct {
	Successful []T          `json:"Successful"`
	Failed     []entryError `json:"Failed,omitempty"`
}

// checkBatch checks what holds for every batch. It refuses the whole request: nothing of it is carried out.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
func checkBatch[E any](shape string, entries []E, id func(E) string) error {
	if len(entries) == 0 {
		return modelled("EmptyBatchRequest", legacy+"EmptyBatchRequest",
			"There should be at least one %s in the request.", shape)
	}
	if len(entries) > maxBatch {
		return modelled("TooManyEntriesInBatchRequest", legacy+"TooManyEntriesInBatchRequest",
			"Maximum number of entries per request are %d. You have sent %d.", maxBatch, len(entries))
	}
	seen := map[string]bool{}
	for _, e := range entries {
		switch {
		case id(e) == "":
			return missing(shape + ".Id")
		case len(id(e)) > 80 || !queueName.MatchString(id(e)): // an ID has the form of a name
			return modelled("InvalidBatchEntryId", legacy+"InvalidBatchEntryId", "A batch entry id can only contain "+
				"alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		case seen[id(e)]:
			return modelled("BatchEntryIdsNotDistinct", legacy+"BatchEntryIdsNotDistinct", "Id %s repeated.", id(e))
		}
		seen[id(e)] = true
	}
	return nil
}

// runBatch carries out the entries one by one: each succeeds or fails alone.
func runBatch[E, T any](entries []E, id func(E) string, do func(E) (T, error)) batchResult[T] {
	r := batchResult[T]{Successful: []T{}}
	for _, e := range entries {
		out, err := do(e)
		if err != nil {
			r.Failed = append(r.Failed, failed(id(e), err))
			continue
		}
		r.Successful = append(r.Successful, out)
	}
	return r
}
