//go:build unix && !linux

package worker

import "syscall"

// processAttr puts a handler into a process group of its own. There is no parent-death signal here: the guard process
// alone ends handlers whose worker died.
func processAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// processesOf: processes cannot be found by their environment here; their groups stand in.
func processesOf(map[string]int) []int { return nil }
