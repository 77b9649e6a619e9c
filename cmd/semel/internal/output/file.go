package output

import "os"

// AppendFile opens a file that lines are appended to. One that is not there is made for its owner alone, because keys, bodies
// and results of messages are in it; one that is there keeps its mode.
func AppendFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}
