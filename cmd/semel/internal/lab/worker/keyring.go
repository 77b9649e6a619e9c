package worker

import "sync"

// keyring remembers which message a receipt is for: settlements and extensions carry receipts only.
type keyring struct {
	mu sync.Mutex
	m  map[any][2]string
}

func newKeyring() *keyring { return &keyring{m: map[any][2]string{}} }

func (k *keyring) put(receipt any, key, message string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.m[receipt] = [2]string{key, message}
}

func (k *keyring) get(receipt any) (key, message string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.m[receipt]
	return v[0], v[1]
}

func (k *keyring) drop(receipt any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.m, receipt)
}
