package verify

import "time"

// Straggle sets how long the plain run waits for what the handler left running.
func Straggle(o *Options, d time.Duration) { o.straggle = d }

// Kinds is the number of schedules that Run makes.
var Kinds = inProcess
