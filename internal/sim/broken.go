package sim

import (
	"fmt"

	"github.com/semel-dev/semel/internal/machine"
)

// This file is I24: as long as no run of a worker has succeeded and the runs of several keys failed for one reason, one
// message at a time is tried.

// broken is what a worker knows of its runs since it started.
type broken struct {
	keys  [maxKeys]bool // whose runs failed
	fails int
	works bool // a run succeeded, or may have
}

// names differ in the reasons of one failure. They are plain words: nothing marks them as names.
var names = [...]string{"ada", "bob", "cyd", "dan", "eve", "fay"}

// returned records the end of a run, just before the machine gets it.
func (k *worker) returned(r *run) {
	w := k.w
	if r.key < 0 || r.result.Class != machine.Failed && r.result.Class != machine.Permanent {
		k.works = true // or the result is inconclusive: then nothing is checked
		return
	}
	if w.mut == mutReasonsDiffer {
		r.result.Err = fmt.Errorf("%w for %s", errHandler, names[r.key])
	}
	first := r.result.Class == machine.Failed && r.item.Failures() == 0 && w.sc.cfg.MaxAttempts > 1
	if r.cancelled || first || k.keys[r.key] {
		return
	}
	k.keys[r.key] = true
	k.fails++
}

// checkBroken judges a start.
func (w *simulation) checkBroken(k *worker, r *run) {
	if most := w.sc.cfg.Breaker.Keys; most == 0 || k.works || k.fails < most || r.key < 0 || r.job.InTx {
		return
	}
	r.tries = true
	for i := range w.runs.n {
		if o := w.runs.all[i]; o != r && o.worker == k.id && o.tries && !o.over {
			w.fail("I24", r.key, "worker %d starts a second run at once, although those of %d keys failed and none succeeded", k.id, k.fails)
		}
	}
}
