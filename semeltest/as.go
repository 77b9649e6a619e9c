package semeltest

import "github.com/semel-dev/semel/driver"

// as finds an interface that a setup is known to have. It panics where it is missing.
func as[T any](s any) T {
	t, ok := driver.As[T](s)
	if !ok {
		panic("a setup lacks an interface that its case needs")
	}
	return t
}
