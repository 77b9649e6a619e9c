package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/simulate"
)

// simulate makes cfg consume with the simulated handler, if that was asked for. It is to be closed.
func (s *shift) simulate(cfg *semel.Config) (*simulate.Worker, error) {
	if !s.w.Simulate.On {
		return nil, nil //nolint:nilnil // another handler was asked for
	}
	sim, err := simulate.New(s.w.Simulate, s.log)
	if err != nil {
		return nil, output.Usage("--simulate: %w", err).WithHint("ledger=effects.jsonl, in a directory that exists")
	}
	var effects semel.Handler
	switch {
	case !s.w.Simulate.Transactional:
	case s.store.Features().Kind == "dynamodb":
		effects = writes(sim, s.w.Simulate.Ledger)
	default:
		effects = sim.Statements()
	}
	sim.Attach(cfg, effects)
	if cfg.Concurrency < s.w.Concurrency {
		s.log.Info("one handler at a time: crashes are simulated, and effects do not commit with the record",
			"hint", "--simulate=transactional,ledger=TABLE")
	}
	return sim, nil
}

// addEffect is the effect on DynamoDB: an item for each effect key, which counts its runs.
//
//	#runs, :one  how often it happened    :key, :id, :attempt, :token, :at  who was the last
const addEffect = "SET message_key = :key, message_id = :id, attempt = :attempt, #token = :token, #at = :at ADD #runs :one"

// writes is the transactional handler on DynamoDB. The table has the partition key effect_key, a string.
func writes(sim *simulate.Worker, table string) semel.Handler {
	return semel.InTx(func(ctx context.Context, tx *dynamodb.Writes, a *semel.Attempt) error {
		return sim.Queued(ctx, a, func(e simulate.Effect) {
			text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
			number := func(n uint64) types.AttributeValue {
				return &types.AttributeValueMemberN{Value: strconv.FormatUint(n, 10)}
			}
			tx.Update(types.Update{
				TableName: aws.String(table), Key: map[string]types.AttributeValue{"effect_key": text(e.EffectKey)},
				UpdateExpression:         aws.String(addEffect),
				ExpressionAttributeNames: map[string]string{"#runs": "runs", "#token": "token", "#at": "at"},
				ExpressionAttributeValues: map[string]types.AttributeValue{
					":key": text(e.Key), ":id": text(e.MessageID), ":attempt": number(uint64(e.Attempt)), ":token": number(e.Token),
					":at": text(e.At.Format(time.RFC3339Nano)), ":one": number(1),
				},
			})
		})
	})
}
