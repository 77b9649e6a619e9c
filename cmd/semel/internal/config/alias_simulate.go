package config

import "github.com/semel-dev/semel/cmd/semel/internal/simulate"

// knobs are the variables that turn the knobs of --simulate. Without that flag they mean nothing.
func knobs() []Alias {
	var out []Alias
	for _, v := range []struct{ name, knob string }{
		{"SLEEP_MIN_SECONDS", simulate.SleepMin},
		{"SLEEP_MAX_SECONDS", simulate.SleepMax},
		{"LONG_SLEEP_SECONDS", simulate.LongSleep},
		{"LONG_SLEEP_EVERY", simulate.LongEvery},
		{"CRASH_RATE", simulate.CrashRate},
		{"CRASH_SEED", simulate.Seed},
		{"CRASH_AFTER_RECEIVE", simulate.CrashAfterReceive},
		{"CRASH_AFTER_SIDE_EFFECT", simulate.CrashAfterSideEffect},
		{"REJECT_PAYLOAD_MARKER", simulate.Reject},
		{"USE_TRANSACTIONAL_WRITES", simulate.Transactional},
	} {
		out = append(out, Alias{
			Var: v.name, Setting: "simulate",
			When: func(get func(string) string) bool { return get("simulate") != "" },
			Merge: func(current, value string) (string, error) {
				var k simulate.Knobs
				if err := k.Set(current); err != nil || k.Says(v.knob) {
					return current, err
				}
				err := k.Turn(v.knob, value)
				return k.String(), err
			},
		})
	}
	return out
}
