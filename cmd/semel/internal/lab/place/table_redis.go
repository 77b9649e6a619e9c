package place

import (
	"context"
	"errors"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// hashTable is a hash in Redis with a field for each row: when it was written, a space, the text. Its rows do not commit
// with records.
type hashTable struct {
	client goredis.UniversalClient
	name   string
}

// putField has the arguments id, text, when it is written, and until.
var putField = goredis.NewScript(`local is = redis.call('HGET', KEYS[1], ARGV[1])
if is and tonumber(string.match(is, '^%d+')) > tonumber(ARGV[4]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] .. ' ' .. ARGV[2])
return 1`)

func (t hashTable) put(ctx context.Context, r row, until int64) (bool, error) {
	return putField.Run(ctx, t.client, []string{t.name}, r.id, r.text, r.at, until).Bool()
}

func (t hashTable) get(ctx context.Context, id string) (string, error) {
	field, err := t.client.HGet(ctx, t.name, id).Result()
	if errors.Is(err, goredis.Nil) {
		return "", nil
	}
	return textOf(field), err
}

func (t hashTable) remove(ctx context.Context, id string) error {
	return t.client.HDel(ctx, t.name, id).Err()
}

func (t hashTable) all(ctx context.Context) ([]string, error) {
	fields, err := t.client.HVals(ctx, t.name).Result()
	for i := range fields {
		fields[i] = textOf(fields[i])
	}
	return fields, err
}

func (t hashTable) count(ctx context.Context) (int, error) {
	n, err := t.client.HLen(ctx, t.name).Result()
	return int(n), err
}

func textOf(field string) string {
	_, text, _ := strings.Cut(field, " ")
	return text
}
