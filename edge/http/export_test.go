package edgehttp

// Attempts counts the attempts that a transport remembers.
func Attempts(t *Transport) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.calls)
}
