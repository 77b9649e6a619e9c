package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// moved is a dead letter with everything that is in it: a line of an export.
type moved struct {
	deadLetter
	Tenant        string    `json:"tenant,omitempty"`
	VersionBase64 string    `json:"version_base64,omitempty"`
	SentAt        time.Time `json:"sent_at,omitzero"`
}

func movedOf(l driver.DeadLetter) moved {
	m := moved{
		deadLetter: deadLetterOf(l), Tenant: l.Key.Tenant, VersionBase64: base64.StdEncoding.EncodeToString([]byte(l.Version)),
		SentAt: l.Message.SentAt,
	}
	m.Headers = l.Message.Headers
	m.Body, m.BodyBase64 = textOr64(l.Message.Body)
	return m
}

// asDeadLetter returns the dead letter that a line of an export describes.
func (m *moved) asDeadLetter() (driver.DeadLetter, error) {
	l := driver.DeadLetter{
		ID: m.ID, Kind: driver.DeadLetterKind(m.Kind), Reason: m.Reason, Key: driver.Key{Consumer: m.Consumer, Tenant: m.Tenant, Raw: m.Key},
		Generation: m.Generation, Token: m.Token, Attempts: m.Attempts,
		Message: driver.Message{ID: m.MessageID, Queue: m.Queue, Group: m.Group, Headers: m.Headers, SentAt: m.SentAt},
	}
	if m.ID == "" || m.Kind == "" {
		return l, errors.New("it has no id or no kind: it is no line of semel dlq export")
	}
	if err := checkKind(m.Kind); err != nil {
		return l, err
	}
	version, err := base64.StdEncoding.DecodeString(m.VersionBase64)
	if err != nil {
		return l, fmt.Errorf("version_base64: %w", err)
	}
	l.Version = driver.Version(version)
	if m.Body != nil {
		l.Message.Body = []byte(*m.Body)
	} else if l.Message.Body, err = base64.StdEncoding.DecodeString(m.BodyBase64); err != nil {
		return l, fmt.Errorf("body_base64: %w", err)
	}
	if m.FirstReceivedAt != "" {
		if l.FirstReceived, err = time.Parse(time.RFC3339Nano, m.FirstReceivedAt); err != nil {
			return l, fmt.Errorf("first_received_at: %w", err)
		}
	}
	return l, nil
}

func (a *app) dlqExport(f *dlqFlags) *cobra.Command {
	var kind string
	c := &cobra.Command{
		Use: "export [ID…] --queue URL", Short: "Print whole dead letters as JSON lines (they stay)",
		Long: `export prints all or the named dead letters, one JSON object a line, without regard to -o: the fields of dlq ls, with headers
and body. dlq import reads them.`,
		Example: "  semel dlq export --queue 'sqlite:shop.db?queue=orders' > dead-letters.jsonl",
		RunE: f.with(true, func(cmd *cobra.Command, box *deadLetters, ids []string) error {
			b := batchFlags{all: len(ids) == 0}
			if b.all {
				b.kind = kind
			} else if kind != "" {
				return output.Usage("--kind goes without ids")
			}
			ls, err := b.pick(cmd.Context(), box, ids)
			if err != nil {
				return err
			}
			a.noteLeft(box)
			lines := *a.p
			lines.Format = output.JSONL
			all := make([]moved, len(ls))
			for i, l := range ls {
				all[i] = movedOf(l)
			}
			return output.List(&lines, all, nil, nil)
		}),
	}
	kindFlag(c, &kind, "")
	return c
}

func (a *app) dlqImport(f *dlqFlags) *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "import FILE|- --queue URL", Short: "Put exported dead letters into a queue; existing ones stay unchanged",
		Long: `import puts dead letters into the queue of --queue under their own ids; dead_at becomes the time of the import. It reads every
line before it writes. A dead letter belongs to the record of its key: in another database that does not exist, and the redrive
sends a new message.`,
		Example: "  semel dlq import dead-letters.jsonl --queue 'sqlite:shop.db?queue=orders'",
		Args:    oneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ls, err := a.readDeadLetters(args[0])
			if err != nil {
				return err
			}
			set, box, err := f.openQueue(cmd.Context(), false, func(ctx context.Context, set *open.Set, url string) (driver.Queue, error) {
				return set.Queue(ctx, url)
			})
			if err != nil {
				return err
			}
			defer closing(&err, set)
			put, there := 0, 0
			for _, l := range ls {
				_, ok, err := box.DeadLetters.DeadLetter(cmd.Context(), l.ID)
				if err == nil && !ok && !dry {
					err = box.DeadLetters.PutDeadLetter(cmd.Context(), l)
				}
				if err != nil {
					return fmt.Errorf("import dead letter %s, after %d others: %w", l.ID, put+there, err)
				}
				if ok {
					there++
				} else {
					put++
				}
			}
			v := map[string]any{"imported": put, "there": there, "dry_run": dry}
			return a.p.Line(v,
				"%s %s, %d already there", verb(dry, "import", "imported"), words.Count(put, "dead letter"), there)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only print what would be done")
	return c
}

// readDeadLetters reads an export.
func (a *app) readDeadLetters(path string) (out []driver.DeadLetter, err error) {
	in := a.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, output.Usage("%w", err)
		}
		defer closing(&err, file)
		in = file
	}
	r := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		b, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if len(bytes.TrimSpace(b)) > 0 {
			var m moved
			if jerr := json.Unmarshal(b, &m); jerr != nil {
				return nil, output.Usage("%s:%d: %w", path, n, jerr)
			}
			l, lerr := m.asDeadLetter()
			if lerr != nil {
				return nil, output.Usage("%s:%d: %w", path, n, lerr)
			}
			out = append(out, l)
		}
		if err != nil {
			return out, nil
		}
	}
}
